//! Where the time of a relaunch goes, and where the pages were that it used: means over the
//! switches of a group, so that the parts add up.

use serde::{Deserialize, Serialize};

use crate::result::Sample;
use crate::survey::Touched;

/// Means of one relaunch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Breakdown {
    pub relaunch_ms: f64,
    /// What the same switches take in `dram`: the program's own work, with every page mapped.
    pub work_ms: f64,
    /// The call that says that the app comes, inside the clock.
    pub call_ms: f64,
    /// Codec on behalf of faults that the program waited for, where the arm can tell.
    pub codec_ms: Option<f64>,
    /// The rest of what the daemon did for those faults.
    pub handler_ms: Option<f64>,
    /// What is left: waiting to be woken, and sharing the processors with restores. For arms of the
    /// kernel, all that its faults cost.
    pub wait_ms: f64,
    /// Pages that a relaunch touches (measured once, see [`Touched`]), if that is known.
    pub touched_pages: Option<f64>,
    /// Of the program's pages, those that it waited for in a fault, and those restored ahead.
    pub faulted_pages: f64,
    pub restored_pages: f64,
    /// Touched pages that were neither: they were mapped. At least; what is restored ahead may not
    /// have been touched.
    pub mapped_pages: Option<f64>,
}

/// Of these switches; `dram` holds the same ones in the arm without swapping.
pub fn of(samples: &[&Sample], dram: Option<&[&Sample]>, labels: &[Touched]) -> Breakdown {
    let count = samples.len().max(1) as f64;
    let mean = |of: &dyn Fn(&Sample) -> f64| samples.iter().map(|one| of(one)).sum::<f64>() / count;
    let maybe = |of: fn(&Sample) -> Option<f64>| {
        let all: Option<Vec<f64>> = samples.iter().map(|one| of(one)).collect();
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
        labels.iter().find(|label| label.program == one.program).map(|label| label.touched_pages)
    };
    let touched: Option<Vec<f64>> = samples.iter().map(|one| touched(one)).collect();
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
    use super::*;
    use crate::programs::{Kind, Layout};

    fn sample(relaunch_ms: f64) -> Sample {
        Sample { program: Kind::Redis, relaunch_ms, ..Sample::default() }
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
            program: Kind::Redis,
            layout: Layout::Scattered,
            adjacent_share: 0.2,
            run_pages: 1.2,
            touched_pages: 1_000.0,
            data_bytes: 1 << 20,
            similarity: 0.7,
        }];
        let found = of(&[&one, &two], Some(&[&fast, &slow]), &labels);
        assert_eq!((found.relaunch_ms, found.work_ms, found.call_ms), (50.0, 10.0, 0.5));
        assert_eq!((found.codec_ms, found.handler_ms), (Some(5.0), Some(10.0)));
        assert_eq!(found.wait_ms, 50.0 - 10.0 - 0.5 - 5.0 - 10.0);
        assert_eq!((found.faulted_pages, found.restored_pages), (150.0, 250.0));
        assert_eq!(found.mapped_pages, Some(600.0));
    }

    #[test]
    fn what_an_arm_cannot_tell_stays_unknown() {
        let found = of(&[&sample(30.0)], Some(&[&sample(10.0)]), &[]);
        assert_eq!((found.codec_ms, found.mapped_pages, found.wait_ms), (None, None, 20.0));
    }
}
