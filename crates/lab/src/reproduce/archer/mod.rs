//! Archer ("Adaptive Memory Compression with Page-Association-Rule Awareness for High-Speed Response of
//! Mobile Devices"): figures 1 to 3 and 7 to 10, and the measurements in its text.

mod bursts;
mod figure_1;
mod figure_10;
mod figure_2;
mod figure_3;
mod figure_7;
mod figure_8;
mod figure_9;
mod setting;
mod text;

use super::Paper;

/// The paper.
pub const PAPER: Paper = Paper {
    name: "archer",
    title: "Archer",
    about: ABOUT,
    figures: &[
        figure_1::FIGURE,
        figure_2::FIGURE,
        figure_3::FIGURE,
        figure_7::FIGURE,
        figure_8::FIGURE,
        figure_9::FIGURE,
        figure_10::FIGURE,
        text::FIGURE,
    ],
};

const ABOUT: &[&str] = &[
    "The traces are generated, as the paper's were not published. Association is in them because the generator \
     puts it there: an app's memory is made of groups of 1 to 32 pages that are always used one after the \
     other, and their lengths and order were fitted to the paper's own figure 3. So figure 3, and how many \
     associations last, say that the generator does what it should; that a miner finds groups in such a trace \
     is no evidence that apps have them.",
    "What the miner is told is the sequence of uses, and not the generator's groups: how many it finds, and how \
     many of the pages that come back with another are used, is its own doing.",
    "Costs are those of Clew's own codecs, slowed until LZ4 of a page is as fast as the paper says for the Pixel \
     6 (205.1 MB/s). Large blocks are no faster to compress with them. Where a claim says \"published \
     speed\", LZ4 from a page on is as fast as the paper says, 522.6 MB/s at 512 KiB and in between by the \
     logarithm of the size: what would follow if that were so.",
    "Sizes of apps, photos and frames are ours (docs/formats.md, generated traces). The other two phones have the \
     Pixel 6's speed, as nobody published theirs, and as much memory less as they have DRAM less.",
    "Watermarks are as near to each other as a replay has them. The published ones have no unit; as MiB they keep so \
     much free that no launch ever waits.",
];
