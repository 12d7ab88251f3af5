//! Clew with memory of another machine beside it: what leaves goes there, as the scheme has it.
//!
//! The other machine is a network namespace of this one, at the other end of a link of MobileSwap's rate; where that cannot
//! be made, it is this one, over loopback, and what the arm is called says so. Its memory and its processor time are
//! not the arm's.

use std::ffi::OsString;
use std::fs;
use std::path::Path;

use clew_policy::Scheme;
use toml::{Table, Value};

use crate::error::{BenchError, file_error};
use crate::lenders::Lender;
use crate::network::{LINK_MBIT, Network};

/// The scheme of such an arm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DonorScheme {
    /// The one that was asked for, but all that leaves goes to the donor, packed as the scheme has it.
    Asked,
    MobileSwap,
    RemoteSwap,
    /// With a Redis server in place of a donor. Without flash: live nobody knows which pages are written, and all would go
    /// there.
    CloudSwap,
}

impl DonorScheme {
    /// All of them.
    pub const ALL: [DonorScheme; 4] = [
        DonorScheme::Asked,
        DonorScheme::MobileSwap,
        DonorScheme::RemoteSwap,
        DonorScheme::CloudSwap,
    ];

    /// The name of the arm.
    pub fn arm_name(self) -> &'static str {
        match self {
            DonorScheme::Asked => "clew+donor",
            DonorScheme::MobileSwap => "clew-mobileswap",
            DonorScheme::RemoteSwap => "clew-remoteswap",
            DonorScheme::CloudSwap => "clew-cloudswap",
        }
    }

    /// The preset, where the arm has one of its own.
    pub fn preset(self) -> Option<&'static str> {
        match self {
            DonorScheme::Asked => None,
            DonorScheme::MobileSwap => Some("mobileswap"),
            DonorScheme::RemoteSwap => Some("remoteswap"),
            DonorScheme::CloudSwap => Some("cloudswap"),
        }
    }
}

/// That scheme with everything that leaves at a donor, as a file in `directory`; its path.
pub(super) fn write_scheme(scheme: &Scheme, directory: &Path) -> Result<String, BenchError> {
    let text = to_donors(&scheme.to_toml())?;
    let path = directory.join("scheme.toml");
    fs::write(&path, text).map_err(file_error("write", &path))?;
    Ok(path.display().to_string())
}

fn to_donors(text: &str) -> Result<String, BenchError> {
    let unfit =
        |reason: &str| BenchError::Unavailable { what: "the scheme", reason: reason.to_string() };
    let mut file: Table = text.parse().map_err(|error| unfit(&format!("{error}")))?;
    let Some(Value::Table(scheme)) = file.get_mut("scheme") else {
        return Err(unfit("there is no table [scheme]"));
    };
    let mut placement = Table::new();
    placement.insert("kind".to_string(), "app-aware".into());
    placement.insert("on_loss".to_string(), "keep".into());
    placement.insert("compressed".to_string(), true.into());
    scheme.insert("placement".to_string(), placement.into());
    scheme.insert("eviction".to_string(), "none".into());
    Ok(file.to_string())
}

/// The other machine, while the arm runs. Who lends ends before the network does.
pub(super) struct Far {
    lender: Lender,
    network: Network,
    is_redis: bool,
    is_limited: bool,
}

impl Far {
    /// One that lends so many bytes to whose keys are in `scratch`.
    pub(super) fn begin(
        scheme: DonorScheme,
        exe: &Path,
        bytes: u64,
        scratch: &Path,
    ) -> Result<Far, BenchError> {
        let linked = Network::new().and_then(|network| {
            network.limit(Some(LINK_MBIT))?;
            Ok(network)
        });
        let is_limited = linked.is_ok();
        let network = linked.unwrap_or_else(|_| Network::loopback());
        let is_redis = scheme == DonorScheme::CloudSwap;
        let (own, borrower) = (scratch.join("donor-keys"), scratch.join("keys"));
        let lender = match is_redis {
            true => Lender::redis(&network, scratch)?,
            // What each piece takes beside its bytes is the donor's own account.
            false => Lender::donor(&network, exe, 2 * bytes, &own, &borrower)?,
        };
        Ok(Far { lender, network, is_redis, is_limited })
    }

    /// Between the two machines.
    pub(super) fn network(&self) -> &Network {
        &self.network
    }

    /// What the daemon is told of it, which may use so many bytes there.
    pub(super) fn options(&self, bytes: u64, scratch: &Path) -> [OsString; 6] {
        let address = self.lender.address();
        let at = if self.is_redis { format!("redis://{address}") } else { address.to_string() };
        let size = bytes.to_string();
        let words = ["--donor".into(), at.into(), "--donor-size".into(), size.into()];
        let [donor, at, size, of] = words;
        [donor, at, size, of, "--keys".into(), scratch.join("keys").into()]
    }

    /// What it is, in words.
    pub(super) fn description(&self) -> String {
        let who = if self.is_redis { "a Redis server" } else { "a donor" };
        match self.is_limited {
            true => format!("{who} behind a link of {LINK_MBIT} Mbit/s"),
            false => format!("{who} over loopback, which nothing limits"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_is_there_and_puts_pages_at_donors() {
        let presets = DonorScheme::ALL.into_iter().filter_map(DonorScheme::preset);
        let schemes = presets.map(|preset| Scheme::preset(preset).expect("a preset"));
        // What is asked for may put its pages anywhere.
        let asked = ["clew", "ariadne", "zram", "elasticzram"].map(|asked| {
            let asked = Scheme::preset(asked).expect("a preset");
            Scheme::from_toml(&to_donors(&asked.to_toml()).expect("a table")).expect("a scheme")
        });
        for scheme in schemes.chain(asked) {
            let about = scheme.placement.about();
            let is_donor = |tier: &clew_core::Tier| matches!(tier, clew_core::Tier::Donor(_));
            assert!(about.tiers.iter().any(is_donor), "{}", scheme.to_toml());
        }
        assert!(to_donors("").is_err());
    }
}
