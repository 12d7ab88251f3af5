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
    "Every claim about Archer is run in two readings. To the letter: a page counts that is in a fifth of its app's \
     transactions of a batch (support 0.2), and costs are those of Clew's own codecs, slowed until LZ4 of a page is as \
     fast as the paper says (205.1 MB/s); large blocks are no faster with them. In its favour: any support will do, \
     and LZ4 is as fast as the paper says of large blocks, 522.6 MB/s at 512 KiB and in between by the logarithm of \
     the size: what would follow if that were so.",
    "Sizes of apps, photos and frames are ours (docs/formats.md, generated traces). Of three phones only the Pixel \
     6 is run: for the others nobody published how fast they compress.",
    "Watermarks are as near to each other as a replay has them. The published ones have no unit; as MiB they keep so \
     much free that no launch ever waits. A round is large from 512 pages of the real workload on.",
];
