//! Thirty apps on a phone of 6 GB (MobileSwap, DAC 2021, IV).
//!
//! Published: the apps (table II), which are launched in another order in each of ten rounds (IV-C). Ours: the size of
//! each app, which the paper does not give: that of the app that is most like it among [Archer's](super::ARCHER);
//! that an app is in front for 30 s; the memory that the phone leaves to apps, chosen so that it holds seven of them
//! without any swap, as published.

use super::archer::{FEED, GAME, MAP, VIDEO, WEB, of};
use super::{ARCHER, AppProfile, Order, Profile};

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
    dram_mib: 1536.0,
    ..ARCHER
};
