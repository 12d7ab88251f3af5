//! MobileSwap (DAC 2021): figures 1, 4 and 6 to 9, and the experiment with a network that is disconnected.

mod disconnection;
mod figure_4;
mod figure_7;
mod figure_8;
mod figure_9;
mod reads;
mod setting;

use super::Paper;

/// The paper.
pub const PAPER: Paper = Paper {
    name: "mobileswap",
    title: "MobileSwap (DAC 2021)",
    about: ABOUT,
    figures: &[
        reads::FIGURE_1,
        figure_4::FIGURE,
        reads::FIGURE_6,
        figure_7::FIGURE,
        figure_8::FIGURE,
        figure_9::FIGURE,
        disconnection::EXPERIMENT,
    ],
};

const ABOUT: &[&str] = &[
    "The paper has one phone that borrows and four that lend, over Wi-Fi. Here both are modelled: the link carries what \
     the paper's network stack sustains, and what a chunk costs beside its bytes follows from RemoteSwap's throughput. A \
     link of network namespaces is measured by `clew bench donors`.",
    "The trace is generated: the paper's thirty apps in ten rounds of random order, with the sizes of Archer's. The memory \
     is chosen so that seven of them live in it without any swap, as published.",
    "An app is \"cached\" if it lives: it has been in front and has not been ended. Counted whenever one comes to the \
     front in the last five rounds.",
];
