//! The phones of Archer's evaluation (2.2.1, 5.2, table 1): eight apps that are tested among twenty others,
//! and two that want memory in bursts.
//!
//! Published: the apps; that each is used for 30 s; 3,902 ms for a cold launch under ZRAM when memory is
//! scarce, which is 68.7 % more than when it is not (5.2.1, figure 1); of a cold launch 61.7 MB that are
//! compressed meanwhile, of a hot one 20.7 MB that are decompressed (5.3); photos and frames a second
//! with and without pressure (figures 1 and 8). Ours: the size of each app, so that launches want about
//! as much as that; locality, which is Ariadne's of the app that is most like; a photo and a frame of so
//! many MiB that at the published 205.1 MB/s (5.3) reclaiming for each takes as long as the published
//! rates differ; that what a burst makes is kept.

use super::{AppProfile, Burst, Order, Profile, Taste, app};

/// Pages that a relaunch uses for each MiB of early memory: about 8,000, two thirds of which are the
/// published 20.7 MB.
pub(super) const HOT_A_MIB: f64 = 60.0;
/// A relaunch in memory takes so long that a launch, nine times that, takes 3,902 ms / 1.687.
pub(super) const RESPONSE_MS: f64 = 257.0;

pub(super) const FEED: Like = ([0.81, 0.61], Taste::Feed);
pub(super) const VIDEO: Like = ([0.86, 0.72], Taste::Video);
pub(super) const WEB: Like = ([0.69, 0.43], Taste::Browser);
pub(super) const GAME: Like = ([0.61, 0.33], Taste::Game);
pub(super) const MAP: Like = ([0.77, 0.54], Taste::Map);

/// Locality (Ariadne, table 3), and what its heap holds.
pub(super) type Like = ([f64; 2], Taste);

const fn of(name: &'static str, mib: [f64; 2], like: Like) -> AppProfile {
    app(name, mib, mib[0] * HOT_A_MIB, like.0, RESPONSE_MS, like.1)
}

const APPS: [AppProfile; 28] = [
    // Tested (2.2.2).
    of("Facebook", [110.0, 230.0], FEED),
    of("PUBG Mobile", [250.0, 520.0], GAME),
    of("Amazon", [100.0, 200.0], FEED),
    of("Twitter", [100.0, 190.0], FEED),
    of("YouTube", [110.0, 240.0], VIDEO),
    of("Chrome", [150.0, 300.0], WEB),
    of("WeChat", [110.0, 220.0], FEED),
    of("Google Map", [120.0, 260.0], MAP),
    // The others (table 1).
    of("Skype", [100.0, 190.0], FEED),
    of("Zoom", [120.0, 240.0], VIDEO),
    of("WhatsApp", [90.0, 170.0], FEED),
    of("LinkedIn", [100.0, 190.0], FEED),
    of("Google+", [90.0, 170.0], FEED),
    of("MXPlayer", [110.0, 240.0], VIDEO),
    of("Netflix", [120.0, 250.0], VIDEO),
    of("Snapchat", [130.0, 260.0], VIDEO),
    of("Tencent Video", [120.0, 250.0], VIDEO),
    of("Angry Birds", [180.0, 330.0], GAME),
    of("Asphalt 8", [230.0, 450.0], GAME),
    of("Fruit Ninja", [150.0, 270.0], GAME),
    of("Arena of Valor", [240.0, 480.0], GAME),
    of("Alipay", [110.0, 220.0], FEED),
    of("BOA", [80.0, 150.0], FEED),
    of("eBay", [100.0, 190.0], FEED),
    of("Taobao", [120.0, 250.0], FEED),
    of("Uber", [110.0, 220.0], MAP),
    of("Lift", [100.0, 200.0], MAP),
    of("Evernote", [90.0, 170.0], WEB),
];

const CAMERA: [AppProfile; 9] = before(of("Camera", [120.0, 160.0], VIDEO));
const TIKTOK: [AppProfile; 9] = before(of("TikTok", [110.0, 240.0], VIDEO));

/// `first`, and the eight apps that are in the background then.
const fn before(first: AppProfile) -> [AppProfile; 9] {
    let [a, b, c, d, e, f, g, h, ..] = APPS;
    [first, a, b, c, d, e, f, g, h]
}

/// Launches among many apps (5.2.1).
pub static ARCHER: Profile = Profile {
    name: "archer",
    source: "Archer: 2.2.1, 5.2.1, 5.3, table 1",
    page_bytes: 4096,
    apps: &APPS,
    default_apps: 28,
    order: Order::Tested { tested: 8, between: 3 },
    relaunches: 6,
    launch_seconds: 30.0,
    relaunch_seconds: 30.0,
    dram_mib: 6144.0,
    churn: 0.015,
    zero_share: 0.01,
    system_file_mib: 0.0,
};

/// The same apps as ElasticZRAM's evaluation uses its own (4.1): a part of them, there ten of 36, is switched between in ten
/// rounds, and the others run in the background. Here a switch follows each time that one of the others does
/// something, so that each of these comes about a third as often.
pub static ELASTICZRAM: Profile = Profile {
    name: "elasticzram",
    source: "apps: Archer 5.2.1; their use: ElasticZRAM 4.1",
    order: Order::Tested { tested: 8, between: 1 },
    relaunches: 10,
    ..ARCHER
};

/// Continuous shooting (2.2.1, 5.2.2): 24 photos a second on a Pixel 6 if nothing is in the way.
pub static ARCHER_CAMERA: Profile = Profile {
    name: "archer-camera",
    source: "Archer: 2.2.1, 5.2.2, figure 8a",
    apps: &CAMERA,
    default_apps: 9,
    order: Order::Bursts(Burst {
        shots: 24,
        shot_mib: 9.6,
        shot_ms: 1000.0 / 24.0,
        idle_seconds: 30.0,
    }),
    relaunches: 6,
    dram_mib: 2048.0,
    ..ARCHER
};

/// Short videos, played and swiped (2.2.1, 5.2.2): 60 frames a second if nothing is in the way, as figure 10 has up
/// to 59.7 under pressure.
pub static ARCHER_VIDEO: Profile = Profile {
    name: "archer-video",
    source: "Archer: 2.2.1, 5.2.2, figure 8b",
    apps: &TIKTOK,
    order: Order::Bursts(Burst {
        shots: 60,
        shot_mib: 3.3,
        shot_ms: 1000.0 / 60.0,
        idle_seconds: 30.0,
    }),
    ..ARCHER_CAMERA
};
