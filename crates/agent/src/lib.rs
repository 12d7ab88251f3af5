//! agent
#![no_std]
