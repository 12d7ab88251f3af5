//! As much memory as the programs want: the fastest that a relaunch can be, and the yardstick for
//! what the programs need and for what their own work costs.

use super::{Arm, ArmKind, Ground, Tally};
use crate::error::BenchError;

/// The arm without a limit.
#[derive(Default)]
pub struct Dram {
    ground: Option<Ground>,
}

impl Arm for Dram {
    fn kind(&self) -> ArmKind {
        ArmKind::Dram
    }

    fn scheme(&self) -> String {
        "dram".to_string()
    }

    fn begin(&mut self, ground: &Ground) -> Result<(), BenchError> {
        self.ground = Some(ground.clone());
        Ok(())
    }

    fn tally(&mut self) -> Result<Tally, BenchError> {
        let faults = match &self.ground {
            Some(ground) => ground.group.major_faults()?,
            None => 0,
        };
        Ok(Tally { faults, ratio: None })
    }
}
