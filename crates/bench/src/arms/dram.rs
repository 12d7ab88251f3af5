//! As much memory as the programs want: the fastest that a relaunch can be, and the yardstick for
//! what the programs need and for what their own work costs.

use super::{Arm, ArmKind, Ground, Look, Tally, look_of_kernel};
use crate::error::BenchError;
use crate::programs::Kind;

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

    fn look(&mut self, apps: &[(Kind, u32)]) -> Result<Look, BenchError> {
        let ground = self.ground.as_ref().ok_or(BenchError::NoTotal)?;
        look_of_kernel(ground, apps, None, false)
    }

    fn tally(&mut self) -> Result<Tally, BenchError> {
        let faults = match &self.ground {
            Some(ground) => ground.group.major_faults()?,
            None => 0,
        };
        Ok(Tally { faults, ..Tally::default() })
    }
}
