//! Which predicted pages a relaunch leaves stored, to learn whether they are still used.
//!
//! A page that was restored early and is then used tells nothing where touches of resident pages
//! cannot be seen: a prediction would only ever grow. A stored page does tell, for its use is a
//! fault. So of the predicted pages one run in `one_in` is left out each time, another one at the
//! next relaunch: in `one_in` relaunches every page is asked once. Runs are 8 neighbours, because
//! neighbours are used together and the fault on one may bring the others.
//!
//! Choosing `one_in`: leaving out costs a fault (about 10 us) for each page that is still used,
//! restoring a page that is not used costs its decompression (1 to 2 us) and its memory until it is
//! asked. At 70 % similarity the sum is smallest between 4 and 6.

use clew_core::{PageId, Whole};
use serde::de::{Deserialize, Deserializer, Error};

/// The parameter `one_in`.
pub type OneIn = Whole<0, 64, 4>;

/// For `deserialize_with`: one in one would be all of them.
pub fn one_in<'de, D: Deserializer<'de>>(from: D) -> Result<OneIn, D::Error> {
    let read = OneIn::deserialize(from).ok().filter(|one_in| one_in.get() != 1);
    read.ok_or_else(|| D::Error::custom("expected 0 (none), or a whole number from 2 to 64"))
}

/// Whether `page` is left out of the restore of relaunch `relaunch` of its app. Never, if `one_in`
/// is 0.
pub fn is_left_out(page: PageId, relaunch: u32, one_in: u32) -> bool {
    // Fibonacci hashing: neighbouring runs get different turns.
    let run = (page.raw() >> 3).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    one_in != 0 && (run + u64::from(relaunch)).is_multiple_of(u64::from(one_in))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clew_core::{SpaceId, Vpn};

    #[test]
    fn every_page_has_its_turn_once_with_its_neighbours_and_turns_are_spread() {
        let mut by_relaunch = [0u32; 4];
        for vpn in 0..8000 {
            let page = PageId::new(SpaceId(3), Vpn(vpn));
            let turns: Vec<u32> = (8..12).filter(|n| is_left_out(page, *n, 4)).collect();
            assert_eq!(turns.len(), 1);
            let first_of_run = PageId::new(SpaceId(3), Vpn(vpn & !7));
            assert!(is_left_out(first_of_run, turns[0], 4));
            by_relaunch[turns[0] as usize - 8] += 1;
            assert!((0..4).all(|n| !is_left_out(page, n, 0)));
        }
        assert!(by_relaunch.iter().all(|pages| (1500..2500).contains(pages)), "{by_relaunch:?}");
    }
}
