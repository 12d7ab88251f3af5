//! The mover against a simulated kernel and a naive model of what programs wrote.
//!
//! [`kernel`] is the kernel's side of a program: its pages, its unread events, its waiting threads.
//! [`world`] ties programs, spaces and the mover together, and checks them against the model.
//! [`races_out`] and [`races_back`] are interleavings one by one, [`deaths`] a daemon that dies in them
//! and the next one, [`blocks`] what comes back with what and waits parked, [`lending`] to the kernel,
//! [`far`] what goes to flash and is waited for,
//! [`full_tables`] what happens without room for more entries, [`figure_6`] a block of Archer's,
//! [`sequences`] of random
//! [`acts`] are many at once, [`threads`] real ones.

mod acts;
mod blocks;
mod contents;
mod deaths;
mod far;
mod figure_6;
mod full_tables;
mod kernel;
mod lending;
mod lessons;
mod races_back;
mod races_out;
mod repacked;
mod sequences;
mod threads;
mod untouched;
mod world;
