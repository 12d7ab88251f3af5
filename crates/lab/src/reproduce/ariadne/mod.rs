//! Ariadne (HPCA 2025): figures 2 to 6 and 10 to 15, tables 1 to 3.

mod energy;
mod figure_10;
mod figure_11;
mod figure_12;
mod figure_13;
mod figure_14;
mod figure_15;
mod figure_2;
mod figure_3;
mod figure_4;
mod figure_5;
mod figure_6;
mod setting;
mod table_1;
mod table_2;
mod table_3;

use super::Paper;

/// The paper.
pub const PAPER: Paper = Paper {
    name: "ariadne",
    title: "Ariadne (HPCA 2025)",
    about: ABOUT,
    figures: &[
        table_1::FIGURE,
        figure_2::FIGURE,
        figure_3::FIGURE,
        table_2::FIGURE,
        figure_4::FIGURE,
        figure_5::FIGURE,
        figure_6::FIGURE,
        table_3::FIGURE,
        figure_10::FIGURE,
        figure_11::FIGURE,
        figure_12::FIGURE,
        figure_13::FIGURE,
        figure_14::FIGURE,
        figure_15::FIGURE,
    ],
};

const ABOUT: &[&str] = &[
    "The traces are generated: the paper's are not to be had. Sizes of apps, similarity, reuse and locality of the \
     generator were fitted to the paper's tables 1 and 3 and figure 5, so these say that the generator does what \
     it should. What relaunches take in DRAM and under ZRAM is from the scripts that the authors published.",
    "Nobody says how much DRAM was left to the apps. The budget is chosen so that ZRAM makes relaunches as much \
     slower as it did there; if it cannot, figure 2 says so, and what follows is to be read with that.",
    "Two clocks. The true one is a table of costs of Clew's own LZO, as slow as a Pixel 6 is (nobody published the \
     Pixel 7's speed). The truncated one counts, for each chunk, whole microseconds only, as the probe in the \
     authors' published kernel does: a chunk that takes less takes nothing. What only holds by the truncated \
     clock is an artefact of the probe.",
    "Ariadne is the scheme ariadne-paper with LZO, and has flash as large as its region, 3 GiB. ZRAM has none. What either \
     keeps in memory is limited by the budget alone.",
];
