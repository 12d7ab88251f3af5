//! The clew command.
fn main() {}
