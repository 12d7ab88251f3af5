//! Measurements in the text (5.3, 5.4): what leaves during launches, how fast, how much of what comes back
//! together is used, and what Archer's own bookkeeping takes.

use clew_core::CodecKind;

use super::setting::{PIXEL_6, Reading, TESTED, costs, launches, launching, pressure};
use crate::error::LabError;
use crate::reproduce::desk::{Desk, Run, Workbench};
use crate::reproduce::launches::{Launch, each, of};
use crate::reproduce::{Claim, Figure, Found, Kind, Tolerance};

pub const FIGURE: Figure = Figure {
    number: "text",
    title: "what launches move, throughput, amplification, memory",
    says: "61.7 MB are compressed during a cold launch, 80.5 % of it in large grains; 45.8 MB during a hot one, \
           83.2 % of it, and 20.7 MB are decompressed. Pages are compressed at 205.1 MB/s, 512 KiB and more at \
           522.6 MB/s. Of the pages that come back together 92.6 % are used soon, so the amplification is no \
           more than 1.08. Decompressing 64 pages takes 17.6 % longer than one. 4 GiB of pages need 384 KiB of \
           metadata.",
    run,
};

/// Bytes in the paper's MB.
const MB: f64 = 1e6;
const PAGE_BYTES: f64 = 4096.0;

fn run(desk: &mut Desk<'_>) -> Result<Found, LabError> {
    let bench = launching(desk)?;
    let budget = pressure(desk, &bench)?.budget_bytes;
    let mut found = Found::default();
    for reading in Reading::BOTH {
        let runs = launches(desk, &bench, reading, budget)?;
        replayed(&runs[3], reading, &bench, &mut found);
    }
    found.claims.extend(computed()?);
    found.notes.push(
        "The launch times of figure 7 do not follow from the counts and throughputs of 5.3: 61.7 MB at 205.1 MB/s are \
         0.3 s, and a cold launch under ZRAM is said to be 1.6 s longer than a regular one."
            .to_string(),
    );
    Ok(found)
}

fn replayed(archer: &Run, reading: Reading, bench: &Workbench, found: &mut Found) {
    let mb = |kind, pages| Some(each(archer, kind, TESTED, pages)? * bench.grain * PAGE_BYTES / MB);
    let claim = |what: &str, paper: f64, unit: &str, tolerance, here| {
        let what = format!("{what} ({})", reading.said());
        Claim::new("text", what, paper, unit, tolerance).found(here, Kind::Modelled, &bench.name)
    };
    let double = Tolerance::Factor { factor: 2.0 };
    let points = Tolerance::Within { off: 15.0 };
    let replay = archer.arm.replay.clone().unwrap_or_default();
    let came = replay.prefetch.pages > 0;
    let soon = replay.prefetch.accuracy.map(|part| part * 100.0);
    let (cold, hot) = (Launch::Cold, Launch::Hot);
    found.claims.extend([
        claim("compressed in a cold launch", 61.7, "MB", double, mb(cold, |s| s.out_pages as f64)),
        claim("of it in large grains", 80.5, "%", points, in_blocks(archer, cold)),
        claim("compressed in a hot launch", 45.8, "MB", double, mb(hot, |s| s.out_pages as f64)),
        claim("of it in large grains, hot", 83.2, "%", points, in_blocks(archer, hot)),
        claim("decompressed in a hot launch", 20.7, "MB", double, mb(hot, |s| s.back_pages as f64)),
        claim(
            "pages that came with another that are used",
            92.6,
            "%",
            Tolerance::Within { off: 5.0 },
            soon,
        )
        .noted("used before they leave again; the paper: within 32 uses or a minute"),
        claim(
            "read amplification",
            1.08,
            "x",
            Tolerance::RATIO,
            replay.read_amplification.filter(|_| came),
        ),
    ]);
    let counted = |name: &str| replay.policies.get(name).copied().unwrap_or_default();
    found.notes.push(format!(
        "Archer {}: {:.0} transactions mined, {:.0} pages associated when the trace ended, {:.0} groups picked, with {:.0} \
         pages; {:.0} pages left alone.",
        reading.said(),
        counted("ft_list_mined_transactions"),
        counted("ft_list_associated_pages"),
        counted("ft_list_picked_groups"),
        counted("ft_list_wide_pages"),
        counted("ft_list_narrow_pages"),
    ));
}

/// Of what leaves during launches, per cent that leaves in blocks of several pages.
fn in_blocks(run: &Run, kind: Launch) -> Option<f64> {
    let (blocks, all) = of(run, kind, TESTED)
        .fold((0, 0), |(blocks, all), one| (blocks + one.out_in_blocks, all + one.out_pages));
    (all > 0).then(|| blocks as f64 / all as f64 * 100.0)
}

/// What follows from tables and from the paper's own numbers.
fn computed() -> Result<Vec<Claim>, LabError> {
    let paper = "the paper's own numbers";
    let claim = |what: &str, says: f64, unit: &str, tolerance, here: f64, from: &str| {
        Claim::new("text", what, says, unit, tolerance).found(Some(here), Kind::Computed, from)
    };
    let table = costs(PIXEL_6, Reading::Letter, 1.0)?;
    let speed = |chunk: u32| -> Result<f64, LabError> {
        Ok(PAGE_BYTES / table.codec(CodecKind::Lz4, chunk, 4096)?.out_ns * 1e9 / MB)
    };
    let back = |pages: u32| -> Result<f64, LabError> {
        let one = table.codec(CodecKind::Lz4, pages * 4096, 4096)?;
        Ok(table.fault_ns + one.back_ns * f64::from(pages) + table.put_ns * f64::from(pages - 1))
    };
    let factor = |factor| Tolerance::Factor { factor };
    // 5.4.3: a third of the pages in groups of 6.4, a pointer of 8 bytes each.
    let metadata = 1_048_576.0 * 0.3 / 6.4 * 8.0 / 1024.0;
    let saved_ms = 61.7 * 0.805 * (1.0 / 205.1 - 1.0 / 522.6) * 1e3;
    Ok(vec![
        claim("throughput of pages", 205.1, "MB/s", factor(1.05), speed(4096)?, "our costs")
            .noted("the table was slowed to be so"),
        claim("throughput of 512 KiB", 522.6, "MB/s", factor(1.25), speed(512 << 10)?, "our costs")
            .noted("a codec's own speed hardly depends on the block"),
        claim(
            "a fault on a block of 64 pages, against one page",
            17.6,
            "%",
            Tolerance::CHANGE,
            (back(64)? / back(1)? - 1.0) * 100.0,
            "our costs",
        )
        .noted("the paper times files of 4 and 256 KiB"),
        claim("amplification that 92.6 % is", 1.08, "x", factor(1.005), 1.0 / 0.926, paper),
        claim("metadata for 4 GiB", 384.0, "KiB", factor(1.001), metadata, paper)
            .noted("30 % of the pages, groups of 6.4, 8 bytes each; neither trees nor page arrays are in it"),
        claim(
            "saved in a cold launch by what 5.3 says, against 37.2 % faster",
            3902.0 - 3902.0 / 1.372,
            "ms",
            factor(2.0),
            saved_ms,
            paper,
        )
        .noted("80.5 % of 61.7 MB at 522.6 in place of 205.1 MB/s"),
    ])
}
