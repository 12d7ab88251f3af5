//! Pages that are like what is swapped: of live programs, and of the generated trace of ezswap's phone.

use std::path::Path;

use clew_core::seeded::Seeded;
use clew_trace::generate::contents::{Contents, Owner};
use clew_trace::generate::profile::MOBILE_2019;

use super::codec::pages_of;
use super::place;
use crate::error::BenchError;
use crate::programs::Kind;

const PAGE: usize = 4096;
/// Pages of the generated trace, half of them of files.
const GENERATED: u64 = 12_288;

/// Pages with a name.
pub struct Sample {
    /// Whose they are.
    pub name: &'static str,
    /// One after the other; neighbours are neighbours there too.
    pub pages: Vec<u8>,
}

/// Of python3 and node holding data, and of the apps of `mobile-2019` with their files.
///
/// # Errors
/// If a program does not start, or its memory cannot be read.
pub fn samples(seed: u64, scratch: &Path) -> Result<Vec<Sample>, BenchError> {
    let mut programs = Vec::new();
    for kind in [Kind::Python, Kind::Node] {
        programs.extend(pages_of(kind, seed, &place(scratch, kind.name())?)?.concat());
    }
    let programs = Sample { name: "programs", pages: programs };
    Ok(vec![programs, Sample { name: MOBILE_2019.name, pages: generated(seed) }])
}

/// Runs of 32 pages of each app's memory and files, at places by chance.
fn generated(seed: u64) -> Vec<u8> {
    const RUN: u64 = 32;
    let mut contents = Contents::new(&MOBILE_2019, seed);
    let mut random = Seeded::of(seed, &[3]);
    let apps = MOBILE_2019.apps.len();
    let mut pages = Vec::with_capacity(GENERATED as usize * PAGE);
    for run in 0..GENERATED / RUN {
        let app = run as usize / 2 % apps;
        let owner = if run % 2 == 0 { Owner::App(app) } else { Owner::File(app) };
        let first = random.below(8_192 / RUN) * RUN;
        for number in first..first + RUN {
            pages.extend_from_slice(contents.page(owner, number, 0));
        }
    }
    pages
}
