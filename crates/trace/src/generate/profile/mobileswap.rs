//! Thirty apps on a phone of 6 GB (MobileSwap, DAC 2021, IV).
//!
//! Published: the apps (table II), which are launched in another order in each of ten rounds (IV-C). Ours: the size of
//! each app, which the paper does not give: some times that of the app that is most like it among
//! [Archer's](super::ARCHER), so that 2 GiB of memory hold seven of them without any swap, and with another 2 GiB may
//! hold twice as many, as published; what a relaunch uses is Archer's; that an app is in front for 30 s.

use super::archer::{FEED, GAME, HOT_A_MIB, Like, MAP, RESPONSE_MS, VIDEO, WEB};
use super::{ARCHER, AppProfile, Order, Profile, app};

/// How much larger apps are.
const LARGER: f64 = 2.5;

const fn of(name: &'static str, mib: [f64; 2], like: Like) -> AppProfile {
    let hot_pages = mib[0] * HOT_A_MIB;
    app(name, [mib[0] * LARGER, mib[1] * LARGER], hot_pages, like.0, RESPONSE_MS, like.1)
}

const APPS: [AppProfile; 30] = [
    // Social networks.
    of("Facebook", [110.0, 230.0], FEED),
    of("Skype", [100.0, 190.0], FEED),
    of("Twitter", [100.0, 190.0], FEED),
    of("WeChat", [110.0, 220.0], FEED),
    of("WhatsApp", [90.0, 170.0], FEED),
    of("LinkedIn", [100.0, 190.0], FEED),
    of("TikTok", [110.0, 240.0], VIDEO),
    of("Google+", [90.0, 170.0], FEED),
    // Multimedia.
    of("MXPlayer", [110.0, 240.0], VIDEO),
    of("YouTube", [110.0, 240.0], VIDEO),
    of("Netflix", [120.0, 250.0], VIDEO),
    of("Snapchat", [130.0, 260.0], VIDEO),
    of("Youku", [120.0, 250.0], VIDEO),
    // Games.
    of("Angry Birds", [180.0, 330.0], GAME),
    of("Arena of Valor", [240.0, 480.0], GAME),
    of("Temple Run 2", [150.0, 270.0], GAME),
    of("Fruit Ninja", [150.0, 270.0], GAME),
    of("Asphalt 8", [230.0, 450.0], GAME),
    // Shops and banks.
    of("Amazon", [100.0, 200.0], FEED),
    of("AliPay", [110.0, 220.0], FEED),
    of("BOA", [80.0, 150.0], FEED),
    of("Ebay", [100.0, 190.0], FEED),
    of("Taobao", [120.0, 250.0], FEED),
    // Utilities.
    of("Chrome", [150.0, 300.0], WEB),
    of("Camera", [120.0, 160.0], VIDEO),
    of("Google Map", [120.0, 260.0], MAP),
    of("Lyft", [100.0, 200.0], MAP),
    of("BBC News", [90.0, 170.0], WEB),
    of("OfficeMobile", [110.0, 220.0], WEB),
    of("Evernote", [90.0, 170.0], WEB),
];

/// Every app in each of ten rounds, in another order each time.
pub static MOBILESWAP: Profile = Profile {
    name: "mobileswap",
    source: "apps and their use: MobileSwap, DAC 2021: IV-C, table II; sizes: Archer's",
    apps: &APPS,
    default_apps: 30,
    order: Order::Shuffled,
    relaunches: 9,
    dram_mib: 2048.0,
    ..ARCHER
};
