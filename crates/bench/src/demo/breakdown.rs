//! Where the time of a relaunch goes, and where the pages were that it used: means over the
//! switches of a group, so that the parts add up.

use clew_report::{Breakdown, ProgramFacts, Sample};

use crate::programs::Kind;

/// Of these switches; `dram` holds the same ones in the arm without swapping.
pub fn of(
    samples: &[Sample],
    dram: Option<&[Sample]>,
    programs: &[(Kind, ProgramFacts)],
) -> Breakdown {
    let count = samples.len().max(1) as f64;
    let mean = |of: &dyn Fn(&Sample) -> f64| samples.iter().map(of).sum::<f64>() / count;
    let maybe = |of: fn(&Sample) -> Option<f64>| {
        let all: Option<Vec<f64>> = samples.iter().map(of).collect();
        all.filter(|all| !all.is_empty()).map(|all| all.iter().sum::<f64>() / count)
    };
    let relaunch_ms = mean(&|one| one.relaunch_ms);
    let work_ms = dram.map_or(0.0, |dram| {
        dram.iter().map(|one| one.relaunch_ms).sum::<f64>() / dram.len().max(1) as f64
    });
    let call_ms = mean(&|one| one.call_ms);
    let fault_ms = maybe(|one| one.fault_ms);
    let codec_ms = maybe(|one| one.fault_codec_ms);
    let handler_ms = fault_ms.zip(codec_ms).map(|(fault, codec)| (fault - codec).max(0.0));
    let known = work_ms + call_ms + codec_ms.unwrap_or(0.0) + handler_ms.unwrap_or(0.0);
    let touched = |one: &Sample| {
        let (_, facts) = programs.iter().find(|(_, facts)| facts.name == one.program)?;
        facts.label.as_ref().map(|label| label.touched_pages)
    };
    let touched: Option<Vec<f64>> = samples.iter().map(touched).collect();
    let touched_pages =
        touched.filter(|all| !all.is_empty()).map(|all| all.iter().sum::<f64>() / count);
    let faulted_pages = mean(&|one| one.faulted_pages as f64);
    let restored_pages = mean(&|one| one.restored_pages as f64);
    Breakdown {
        relaunch_ms,
        work_ms,
        call_ms,
        codec_ms,
        handler_ms,
        wait_ms: (relaunch_ms - known).max(0.0),
        touched_pages,
        faulted_pages,
        restored_pages,
        mapped_pages: touched_pages
            .map(|touched| (touched - faulted_pages - restored_pages).max(0.0)),
    }
}

#[cfg(test)]
mod tests {
    use clew_report::{Layout, Touched};

    use super::*;
    use crate::demo::facts_of;

    fn sample(relaunch_ms: f64) -> Sample {
        Sample { program: "redis".to_string(), relaunch_ms, ..Sample::default() }
    }

    #[test]
    fn the_parts_add_up() {
        let one = Sample {
            call_ms: 1.0,
            fault_ms: Some(10.0),
            fault_codec_ms: Some(4.0),
            faulted_pages: 300,
            restored_pages: 500,
            ..sample(40.0)
        };
        let two = Sample { fault_ms: Some(20.0), fault_codec_ms: Some(6.0), ..sample(60.0) };
        let (fast, slow) = (sample(8.0), sample(12.0));
        let labels = [Touched {
            program: "redis".to_string(),
            layout: Layout::Scattered,
            adjacent_share: 0.2,
            run_pages: 1.2,
            touched_pages: 1_000.0,
            data_bytes: 1 << 20,
            similarity: 0.7,
        }];
        let found = of(&[one, two], Some(&[fast, slow]), &facts_of(&[Kind::Redis], &labels, &[]));
        assert_eq!((found.relaunch_ms, found.work_ms, found.call_ms), (50.0, 10.0, 0.5));
        assert_eq!((found.codec_ms, found.handler_ms), (Some(5.0), Some(10.0)));
        assert_eq!(found.wait_ms, 50.0 - 10.0 - 0.5 - 5.0 - 10.0);
        assert_eq!((found.faulted_pages, found.restored_pages), (150.0, 250.0));
        assert_eq!(found.mapped_pages, Some(600.0));
    }

    #[test]
    fn what_an_arm_cannot_tell_stays_unknown() {
        let found = of(&[sample(30.0)], Some(&[sample(10.0)]), &[]);
        assert_eq!((found.codec_ms, found.mapped_pages, found.wait_ms), (None, None, 20.0));
    }
}
