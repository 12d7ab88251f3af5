//! What is generated: the apps, their sizes and habits, and where each number comes from.

mod archer;
mod mobileswap;

pub use archer::{ARCHER, ARCHER_CAMERA, ARCHER_VIDEO, ELASTICZRAM};
pub use mobileswap::MOBILESWAP;

/// One app of a profile. Sizes are those of the whole device; a scale shrinks them.
#[derive(Clone, Copy, Debug)]
pub struct AppProfile {
    /// Its name.
    pub name: &'static str,
    /// MiB of anonymous memory after 10 s in front of its user.
    pub early_mib: f64,
    /// MiB of anonymous memory after 5 minutes.
    pub late_mib: f64,
    /// Pages that a relaunch uses.
    pub hot_pages: f64,
    /// Probability that the page behind one that a relaunch uses (in the order of swap-out) is
    /// used too.
    pub next_1: f64,
    /// Probability that the three pages behind it are used.
    pub next_3: f64,
    /// From relaunch to the first complete response with everything in DRAM, milliseconds.
    pub response_ms: f64,
    /// MiB of files that it reads.
    pub file_mib: f64,
    /// What its heap holds.
    pub taste: Taste,
}

/// What an app's heap holds more of than others'.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Taste {
    /// Objects and strings.
    Feed,
    /// Decoded frames and compressed media.
    Video,
    /// Script objects, text, documents.
    Browser,
    /// Textures, vertices, compressed assets.
    Game,
    /// Tiles, vertices, coordinates.
    Map,
}

/// In which order apps are launched.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Order {
    /// Another one for each seed and each `order`.
    Shuffled,
    /// As listed, in each round.
    Listed,
    /// The first `tested` apps are started and brought back in turn; before each of them comes one of
    /// the others after the other, so many of them.
    Tested {
        /// Apps that are tested.
        tested: usize,
        /// Others between two of them.
        between: usize,
    },
    /// The others are started, then the first app, which stays in front and has bursts.
    Bursts(Burst),
}

/// An app that wants much memory in a short time, again and again: photos in a row, frames of a video.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Burst {
    /// Photos or frames of one burst.
    pub shots: u32,
    /// MiB that each of them allocates.
    pub shot_mib: f64,
    /// Milliseconds between two of them if nothing is in the way.
    pub shot_ms: f64,
    /// Seconds in front before the first burst, and between two.
    pub idle_seconds: f64,
}

/// A device and how it is used.
#[derive(Clone, Copy, Debug)]
pub struct Profile {
    /// Its name on the command line.
    pub name: &'static str,
    /// Where its numbers come from.
    pub source: &'static str,
    /// Bytes a page.
    pub page_bytes: u32,
    /// The apps, in the order of the source.
    pub apps: &'static [AppProfile],
    /// How many of them are used if nobody says otherwise.
    pub default_apps: usize,
    /// The order of launches and relaunches.
    pub order: Order,
    /// Relaunches of each app; rounds of tested apps; bursts.
    pub relaunches: u32,
    /// Seconds that an app is in front after its launch.
    pub launch_seconds: f64,
    /// Seconds that it is in front after a relaunch.
    pub relaunch_seconds: f64,
    /// MiB of DRAM that the device leaves to apps.
    pub dram_mib: f64,
    /// Of an app's anonymous memory, what it gives up and allocates anew while it is in front.
    pub churn: f64,
    /// Share of zeros among pages of anonymous memory.
    pub zero_share: f64,
    /// MiB of files of the system, which every app reads.
    pub system_file_mib: f64,
}

impl Profile {
    /// The profiles there are.
    pub const ALL: [&'static Profile; 7] = [
        &MOBILE_2025,
        &MOBILE_2019,
        &ARCHER,
        &ARCHER_CAMERA,
        &ARCHER_VIDEO,
        &ELASTICZRAM,
        &MOBILESWAP,
    ];

    /// The profile called `name`.
    pub fn named(name: &str) -> Option<&'static Profile> {
        Profile::ALL.into_iter().find(|profile| profile.name == name)
    }
}

/// Ten apps on a Pixel 7 (Ariadne, HPCA 2025, section 5).
///
/// Published: sizes at 10 s and 5 minutes (table 1) and locality (table 3) of YouTube, Twitter,
/// Firefox, Google Earth and BangDream; five relaunches of each app (section 3). The responses in
/// DRAM are in the scripts that the authors published. Ours: the five other apps take what is
/// published for the app that is most like them; a relaunch uses one page for each 15 us that ZRAM
/// made it longer in those scripts; apps are in front for 30 s, then for 54 s each time, so that
/// they have been there for 5 minutes at the end.
pub static MOBILE_2025: Profile = Profile {
    name: "mobile-2025",
    source: "Ariadne, HPCA 2025: tables 1 and 3, insights 1 to 3; Archer: figure 3",
    page_bytes: 4096,
    apps: &[
        app("YouTube", [177.0, 358.0], 3_900.0, [0.86, 0.72], 63.0, Taste::Video),
        app("Twitter", [182.0, 273.0], 10_500.0, [0.81, 0.61], 104.0, Taste::Feed),
        app("Firefox", [560.0, 716.0], 6_200.0, [0.69, 0.43], 56.0, Taste::Browser),
        app("GoogleEarth", [273.0, 429.0], 5_600.0, [0.77, 0.54], 86.0, Taste::Map),
        app("BangDream", [326.0, 821.0], 4_900.0, [0.61, 0.33], 65.0, Taste::Game),
        app("TikTok", [177.0, 358.0], 3_900.0, [0.86, 0.72], 63.0, Taste::Video),
        app("Edge", [560.0, 716.0], 6_200.0, [0.69, 0.43], 56.0, Taste::Browser),
        app("GoogleMaps", [273.0, 429.0], 5_600.0, [0.77, 0.54], 86.0, Taste::Map),
        app("AngryBirds", [326.0, 821.0], 4_900.0, [0.61, 0.33], 65.0, Taste::Game),
        app("TwitchTV", [177.0, 358.0], 3_900.0, [0.86, 0.72], 63.0, Taste::Video),
    ],
    default_apps: 10,
    order: Order::Shuffled,
    relaunches: 5,
    launch_seconds: 30.0,
    relaunch_seconds: 54.0,
    dram_mib: 3072.0,
    churn: 0.015,
    zero_share: 0.01,
    system_file_mib: 0.0,
};

const fn app(
    name: &'static str,
    mib: [f64; 2],
    hot_pages: f64,
    next: [f64; 2],
    response_ms: f64,
    taste: Taste,
) -> AppProfile {
    AppProfile {
        name,
        early_mib: mib[0],
        late_mib: mib[1],
        hot_pages,
        next_1: next[0],
        next_3: next[1],
        response_ms,
        file_mib: 0.0,
        taste,
    }
}

/// Fourteen apps on an Odroid-XU4 of 2 GB (ezswap, IEEE Access 2019, section IV), and two more for
/// its experiment with sixteen.
///
/// Published: the apps and their order (table 2), 30 s each, five rounds, 1 GB that the system
/// leaves to them, 20.3 times as many pages of files evicted as anonymous ones, many zeros among
/// the latter and mostly media among the former. Ours: the size of each app, and that of the system's files (the
/// framework's code and data), which every app reads, chosen so that these come out; locality and similarity, which it
/// does not give, are Ariadne's means.
pub static MOBILE_2019: Profile = Profile {
    name: "mobile-2019",
    source: "ezswap, IEEE Access 2019: section IV, table 2, figure 4",
    page_bytes: 4096,
    apps: &[
        old("Play Store", 63.0, 70.0, Taste::Feed),
        old("Google Calendar", 44.0, 44.0, Taste::Feed),
        old("Gmail", 49.0, 48.0, Taste::Feed),
        old("Wikipedia", 54.0, 52.0, Taste::Browser),
        old("Google Chrome", 95.0, 90.0, Taste::Browser),
        old("Facebook", 102.0, 96.0, Taste::Feed),
        old("Twitter", 68.0, 74.0, Taste::Feed),
        old("YouTube", 71.0, 82.0, Taste::Video),
        old("Twitch", 73.0, 84.0, Taste::Video),
        old("Amazon Kindle", 56.0, 60.0, Taste::Browser),
        old("TED", 59.0, 66.0, Taste::Video),
        old("Angry Birds 2", 117.0, 150.0, Taste::Game),
        old("Candy Crush Saga", 90.0, 110.0, Taste::Game),
        old("PUBG Mobile", 183.0, 230.0, Taste::Game),
        old("Microsoft Excel", 71.0, 80.0, Taste::Browser),
        old("2048", 37.0, 36.0, Taste::Game),
    ],
    default_apps: 14,
    order: Order::Listed,
    relaunches: 4,
    launch_seconds: 30.0,
    relaunch_seconds: 30.0,
    dram_mib: 1024.0,
    churn: 0.035,
    zero_share: 0.25,
    system_file_mib: 150.0,
};

/// Of the sizes in the table above, what an app has to itself: of files the rest is the system's, which all apps read
/// ([`Profile::system_file_mib`]). Both are chosen so that the published evictions come out.
const ANONYMOUS: f64 = 0.93;
const OWN_FILES: f64 = 0.6;

const fn old(name: &'static str, mib: f64, file_mib: f64, taste: Taste) -> AppProfile {
    AppProfile {
        name,
        early_mib: mib * 0.8 * ANONYMOUS,
        late_mib: mib * ANONYMOUS,
        hot_pages: mib * ANONYMOUS * 13.0,
        next_1: 0.75,
        next_3: 0.53,
        response_ms: 600.0,
        file_mib: file_mib * OWN_FILES,
        taste,
    }
}
