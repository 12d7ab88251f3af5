//! Whether the log's invariants hold.

use super::{Lies, Log, Use, taken};
use crate::flash::Place;

impl Log {
    /// Panics unless the invariants hold, and `places` are all that lives. Nobody uses it meanwhile.
    pub fn check(&self, places: &[Place]) {
        let state = self.state.lock();
        let mut live = vec![0; state.slots.len()];
        for place in places {
            assert_eq!(state.slots[place.slot as usize].generation, place.generation);
            live[place.slot as usize] += taken(place.len);
        }
        for (number, slot) in state.slots.iter().enumerate() {
            assert_eq!(slot.live, live[number], "live bytes of slot {number}");
            let is_free = state.free.iter().filter(|free| **free as usize == number).count();
            assert_eq!(is_free, usize::from(slot.lies == Lies::Nowhere), "slot {number}");
            match slot.lies {
                Lies::Nowhere => assert_eq!((slot.generation, slot.reads), (0, 0)),
                Lies::OnDevice => assert!(slot.live > 0 || slot.reads > 0),
                Lies::Buffered(buffer) => {
                    assert_eq!(state.buffers[buffer].slot as usize, number);
                    assert_ne!(state.buffers[buffer].is, Use::Free);
                }
            }
        }
        assert_eq!(state.live, live.iter().map(|live| u64::from(*live)).sum::<u64>());
    }
}
