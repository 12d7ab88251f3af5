//! ElasticZRAM (DAC 2024): figures 2, 3a and 3b, and 6 to 9.
//!
//! Its schemes are looked up by their names when a figure runs. Until they are there every claim says which
//! one is missing.

mod device;
mod responses;
mod setting;

use super::Paper;

/// The paper.
pub const PAPER: Paper = Paper {
    name: "elasticzram",
    title: "ElasticZRAM (DAC 2024)",
    about: ABOUT,
    figures: &[
        responses::FIGURE_2,
        responses::FIGURE_3A,
        device::FIGURE_3B,
        responses::FIGURE_6,
        responses::FIGURE_7,
        responses::FIGURE_8,
        responses::FIGURE_9,
    ],
};

const ABOUT: &[&str] = &[
    "The paper has 36 apps on a Pixel 6, in ten rounds of random order. The trace here is the generated one of \
     Archer's launches, on the same phone: eight apps in rounds, and others in the background. All eight are used \
     equally often, where the paper's users have favourites, of which its choice of victims lives.",
    "Responses are relaunches; those of apps that had been ended are counted as launches, and not among them. Times are modelled at the speed that is \
     published for a Pixel 6 Pro.",
];
