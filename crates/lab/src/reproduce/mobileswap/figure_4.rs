//! Figure 4 (III-B): throughput of swapping, of the network, and of both together.

use super::setting::{NUMBERS, client};
use crate::costs::LinkCost;
use crate::error::LabError;
use crate::reproduce::desk::Desk;
use crate::reproduce::{Claim, Figure, Found, Kind, Tolerance, bars};

pub const FIGURE: Figure = Figure {
    number: "4",
    title: "swapping, networking, and both",
    says: "the swap stack sustains 1,100 Mbit/s and the network 920; one on top of the other they sustain 355.",
    run,
};

/// What two stacks give if each piece passes one after the other.
pub fn in_turn(one: f64, other: f64) -> f64 {
    1.0 / (1.0 / one + 1.0 / other)
}

fn run(_: &mut Desk<'_>) -> Result<Found, LabError> {
    let client = client()?;
    let of = |field| client.need(field, "figure 4 is about it").map(|bits| bits / 1e6);
    let (swap, network) = (of("swap_bits_per_second")?, of("network_bits_per_second")?);
    let both = of("remote_swap_bits_per_second")?;
    let link = LinkCost::published(&client)?;
    let given = |what: &str, paper: f64| {
        let why = "what a phone sustains is a number that the model begins with";
        Claim::new("4", what, paper, "Mbit/s", Tolerance::CHANGE).not_run(why)
    };
    let apart = in_turn(swap, network);
    let claims = vec![
        given("the swap stack", swap),
        given("the network", network),
        Claim::new("4", "both, each page through one and then the other", both, "Mbit/s", Tolerance::Factor {
            factor: 1.2,
        })
        .found(Some(apart), Kind::Computed, NUMBERS)
        .noted("what is missing to it the paper lays to switches between the two, and to the size of pieces"),
    ];
    let rows = [
        ("swap stack (published)", swap),
        ("network (published)", network),
        ("both in turn (computed)", apart),
        ("both, page by page (published)", both),
        ("chunks of 64 KiB (computed)", link.bits_per_second() / 1e6),
    ];
    let rows = rows.map(|(name, size)| (name.to_string(), size));
    Ok(Found { claims, charts: vec![bars("throughput", "Mbit/s", rows)], ..Found::default() })
}
