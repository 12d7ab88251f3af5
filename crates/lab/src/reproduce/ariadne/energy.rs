//! A model of energy, as simple as one can be: what the phone takes anyway, and a processor's power for
//! as long as swapping keeps one busy. All of it is an assumption but the first number.

/// What a busy core takes more than an idle one, watts. Nobody published it for the Pixel 7; a core of its
/// large kind takes one to three.
pub const CORE_WATTS: f64 = 1.5;

/// A workload of table 2.
pub struct Use {
    pub name: &'static str,
    /// What the phone takes in DRAM in a minute, joules (published).
    pub dram_joules: f64,
    /// The same under ZRAM.
    pub zram_joules: f64,
    /// Apps that come to the front in that minute. The paper says ten, one second apart, or without a
    /// pause; a relaunch takes about half a second more to be seen.
    pub switches: f64,
}

/// Table 2.
pub const USES: [Use; 2] = [
    Use { name: "light", dram_joules: 178.8, zram_joules: 200.7, switches: 40.0 },
    Use { name: "heavy", dram_joules: 231.8, zram_joules: 277.0, switches: 120.0 },
];

impl Use {
    /// Energy, as a part of what it is in DRAM, if each switch makes processors busy for so long.
    pub fn part(&self, busy_ms: f64) -> f64 {
        1.0 + self.switches * busy_ms / 1e3 * CORE_WATTS / self.dram_joules
    }

    /// What the paper has.
    pub fn published(&self) -> f64 {
        self.zram_joules / self.dram_joules
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_published_adds_up_and_work_takes_energy() {
        let [light, heavy] = USES;
        assert!(
            (light.published() - 1.122).abs() < 1e-3 && (heavy.published() - 1.195).abs() < 1e-3
        );
        assert_eq!(light.part(0.0), 1.0);
        // 40 switches of 100 ms are 4 s of a core.
        assert!((light.part(100.0) - (1.0 + 4.0 * CORE_WATTS / 178.8)).abs() < 1e-12);
    }
}
