//! Nothing leaves the pool before its program asks: zram (ElasticZRAM 2.1). A full pool is full.

use clew_core::{Eviction, Observe, Unit, View};

use crate::plain;
use crate::schemes::About;

/// The policy. See the module.
#[derive(Default)]
pub struct NoEviction;

plain!(NoEviction as dyn Eviction, About { idle: true, ..About::of("none", "nothing") });

impl Observe for NoEviction {}

impl Eviction for NoEviction {
    fn pick_evictions(&mut self, _bytes: u64, _view: &View<'_>, _out: &mut Vec<Unit>) {}
}
