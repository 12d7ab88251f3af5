//! Which schemes the kernel's own swap can carry out, and the one that is used where none is named.
//!
//! For the policies the kernel's swap is [`Tier::Pool`](clew_core::Tier): the one place that pages leave for. How it
//! packs and where it puts them (zram, a disk, zswap before it) is the kernel's business: what a scheme says of
//! packing and the pool has no effect. What has no counterpart at all is refused when the scheme is read.

use clew_core::Tier;
use clew_live::config::load_scheme;
use clew_policy::schemes::{OnFull, Scheme};

use crate::error::GovernError;

/// As `clew`, and what relaunches used comes back at the next one.
const USUAL: &str = include_str!("usual.toml");

/// Where the usual scheme says what stays with those who return, and what it says there.
const KEPT: &str = "others_kept_pct = 0";

/// What stays of those behind where nobody says it, per cent of what is resident.
pub const USUAL_KEPT_PCT: u8 = 20;

/// The scheme of this name or file; the usual one, if none is named, with so much kept for those who return.
///
/// # Errors
/// It makes no sense, or the kernel's swap cannot carry it out.
pub fn read(named: Option<&str>, kept_pct: u8) -> Result<Scheme, GovernError> {
    let refused = |error: &dyn std::fmt::Display| GovernError::Scheme(error.to_string());
    let scheme = match named {
        Some(named) => load_scheme(named).map_err(|e| refused(&e))?,
        None => Scheme::from_toml(&usual(kept_pct)).map_err(|e| refused(&e))?,
    };
    match what_cannot_be(&scheme) {
        Some(why) => Err(GovernError::Scheme(format!("scheme '{}' {why}", scheme.name))),
        None => Ok(scheme),
    }
}

/// The usual scheme's text.
fn usual(kept_pct: u8) -> String {
    USUAL.replace(KEPT, &format!("others_kept_pct = {kept_pct}"))
}

/// What of a scheme the kernel's swap cannot do.
fn what_cannot_be(scheme: &Scheme) -> Option<&'static str> {
    let reclaim = scheme.reclaim.about();
    let beyond_pool = scheme.tiers().iter().any(|tier| *tier != Tier::Pool);
    if reclaim.idle {
        return Some("takes nothing out of programs, so there is nothing to govern");
    }
    if beyond_pool {
        return Some(
            "puts pages on flash or at donors, and the kernel's swap is all there is here",
        );
    }
    if scheme.kernel_share_pct() > 0 {
        return Some(
            "has the kernel's zram beside a pool, and the kernel's swap is all there is here",
        );
    }
    if scheme.admission.about().rejects {
        return Some("admits pages by what they hold, which is never read here");
    }
    if scheme.takes_files() || scheme.admission.about().takes_files {
        return Some("takes pages of files, which the kernel keeps by itself");
    }
    if scheme.eviction.about().needs_frames {
        return Some("evicts frames of a pool, and the kernel's swap shows none");
    }
    (scheme.on_full == OnFull::Kill).then_some("ends programs, and what is governed is never ended")
}

#[cfg(test)]
mod tests {
    use super::*;
    use clew_policy::reclaim::hotness_org;
    use clew_policy::schemes::all;

    #[test]
    fn the_usual_scheme_can_be_carried_out() {
        let scheme = read(None, USUAL_KEPT_PCT).expect("the usual one");
        assert_eq!(scheme.name, "govern");
        for pct in [0, 7, 100] {
            let scheme = read(None, pct).expect("a share");
            let reclaim = scheme.reclaim.parameters::<hotness_org::Params>().expect("its kind");
            assert_eq!(reclaim.others_kept_pct.get(), u32::from(pct));
        }
        assert!(read(None, 101).is_err());
    }

    #[test]
    fn presets_that_cannot_be_are_refused_and_say_why() {
        let can: Vec<String> = all()
            .into_iter()
            .filter(|scheme| what_cannot_be(scheme).is_none())
            .map(|scheme| scheme.name)
            .collect();
        let wanted = [
            "zram",
            "zram-flash",
            "ariadne",
            "ariadne-paper",
            "elasticzram",
            "seal",
            "archer",
            "shsc",
            "asap",
            "clew",
        ];
        assert_eq!(can, wanted.map(String::from));
        for (name, word) in [
            ("dram", "nothing"),
            ("mobileswap", "donors"),
            ("flash-swap", "flash"),
            ("ezswap", "never read"),
            ("nosuch", "nosuch"),
        ] {
            let error = read(Some(name), 0).expect_err(name).to_string();
            assert!(error.contains(word), "{name}: {error}");
        }
    }

    #[test]
    fn what_a_file_asks_for_beyond_that_is_refused_too() {
        let base = Scheme::from_toml(USUAL).expect("the usual one");
        let kills = Scheme { on_full: OnFull::Kill, ..base.clone() };
        assert!(what_cannot_be(&kills).is_some_and(|why| why.contains("never ended")));
        let lends = "[scheme]\nname = \"lends\"\nreclaim = \"lru\"\nadmission = \"all\"\n\
            packing = \"one-page\"\neviction = \"none\"\nplacement = \"kernel-first\"\n\
            prefetch = \"none\"\n";
        let lends = Scheme::from_toml(lends).expect("a scheme");
        assert!(what_cannot_be(&lends).is_some_and(|why| why.contains("zram")));
    }
}
