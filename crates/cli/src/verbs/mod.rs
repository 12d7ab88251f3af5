//! One file a verb.

pub mod app;
pub mod bench;
pub mod compare;
pub mod costs;
pub mod daemon;
pub mod demo;
pub mod doctor;
pub mod donate;
pub mod generate;
pub mod govern;
pub mod import;
pub mod man;
pub mod mount;
pub mod ps;
pub mod record;
pub mod replay;
pub mod report;
pub mod reproduce;
pub mod run;
pub mod schemes;
pub mod session;
pub mod simulate;
pub mod study;
pub mod sweep;
pub mod top;
pub mod trace;
