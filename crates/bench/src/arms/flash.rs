//! Clew with a disk beside memory: what does not fit goes to a file, as the scheme has it.

/// The scheme of such an arm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FlashScheme {
    /// The one that was asked for.
    Asked,
    Ariadne,
    ElasticZram,
    Seal,
    ZramFlash,
    Zswap,
    EzSwap,
}

impl FlashScheme {
    /// All of them.
    pub const ALL: [FlashScheme; 7] = [
        FlashScheme::Asked,
        FlashScheme::Ariadne,
        FlashScheme::ElasticZram,
        FlashScheme::Seal,
        FlashScheme::ZramFlash,
        FlashScheme::Zswap,
        FlashScheme::EzSwap,
    ];

    /// The name of the arm.
    pub fn arm_name(self) -> &'static str {
        match self {
            FlashScheme::Asked => "clew+flash",
            FlashScheme::Ariadne => "clew-ariadne+flash",
            FlashScheme::ElasticZram => "clew-elasticzram",
            FlashScheme::Seal => "clew-seal",
            FlashScheme::ZramFlash => "clew-zram-flash",
            FlashScheme::Zswap => "clew-zswap",
            FlashScheme::EzSwap => "clew-ezswap",
        }
    }

    /// The preset, where the arm has one of its own.
    pub fn preset(self) -> Option<&'static str> {
        match self {
            FlashScheme::Asked => None,
            FlashScheme::Ariadne => Some("ariadne"),
            FlashScheme::ElasticZram => Some("elasticzram"),
            FlashScheme::Seal => Some("seal"),
            FlashScheme::ZramFlash => Some("zram-flash"),
            FlashScheme::Zswap => Some("zswap"),
            FlashScheme::EzSwap => Some("ezswap"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_is_there_and_puts_pages_on_flash() {
        for preset in FlashScheme::ALL.into_iter().filter_map(FlashScheme::preset) {
            let scheme = clew_policy::Scheme::preset(preset).expect("a preset");
            let text = scheme.to_toml();
            let evicts = !text.contains("eviction = \"none\"");
            assert!(evicts || text.contains("launch-pages"), "{preset}: {text}");
        }
    }
}
