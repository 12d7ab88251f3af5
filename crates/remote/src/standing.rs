//! How a lender stands, as far as its borrower knows.

use std::time::Duration;

use clew_core::DonorState;

/// How a lender stands. Taken without stopping anything.
#[derive(Clone, Debug, PartialEq)]
pub struct Standing {
    /// Whether it can be used.
    pub state: DonorState,
    /// It was waited for in vain; false of one that was not reached yet, and may be.
    pub in_vain: bool,
    /// What it would still take, bytes, by its last heartbeat.
    pub free_bytes: u64,
    /// The last round trip of a question of no bytes.
    pub round_trip: Option<Duration>,
    /// Sent and acknowledged, bytes.
    pub sent_bytes: u64,
    /// Received, bytes.
    pub received_bytes: u64,
    /// What waits to be sent, or to be acknowledged, bytes.
    pub waiting_bytes: u64,
    /// Times that the link was made.
    pub connections: u64,
    /// Times that it ended.
    pub cuts: u64,
    /// Why it cannot be used, if it cannot.
    pub why: Option<String>,
}

impl Standing {
    /// One of which nothing is known yet.
    pub fn unknown() -> Standing {
        Standing {
            state: DonorState::Lost,
            in_vain: false,
            free_bytes: 0,
            round_trip: None,
            sent_bytes: 0,
            received_bytes: 0,
            waiting_bytes: 0,
            connections: 0,
            cuts: 0,
            why: Some("it was not reached yet".to_string()),
        }
    }
}
