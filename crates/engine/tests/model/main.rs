//! The mover against a simulated kernel and a naive model of what programs wrote.
//!
//! [`kernel`] is the kernel's side of a program: its pages, its unread events, its waiting threads.
//! [`world`] ties programs, spaces and the mover together, and checks them against the model.
//! [`races`] are interleavings one by one, [`sequences`] are random ones, [`threads`] real ones.

mod contents;
mod kernel;
mod races;
//mod sequences;
//mod threads;
mod world;
