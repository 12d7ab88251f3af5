//! Another object in the place of one, where either may be a zpage or in a slab: see [`super::super::replace`].
//!
//! The shard of the handle is locked for writing, and of an object in a slab its class, until the handle leads to
//! the new object and the old one is gone.

use super::super::budget::For;
use super::super::object::{Header, payload_bytes};
use super::super::{NoRoom, Place};
use super::{IN_FRAME, ShardState, Z3fold, chunks_of};

impl Z3fold {
    /// See [`crate::tier::ObjectTier::replace`].
    pub(super) fn replace(
        &self,
        handle: u32,
        header: Header,
        pieces: &[&[u8]],
        what: For,
        still: impl Fn(&Header, &[u8]) -> bool,
    ) -> Result<bool, NoRoom> {
        let len = payload_bytes(pieces);
        let header = Header { handle, len: len as u16, ..header };
        self.with_room(|| {
            let mut emptied = None;
            let mut state = self.shard(handle).write();
            let Some(entry) = self.small.handles.live(handle) else { return Ok(false) };
            let done = match (entry.class() == Some(IN_FRAME), chunks_of(len)) {
                (true, _) => {
                    let old = self.zpage(entry.place()).filter(|(header, payload)| {
                        header.handle == handle && still(header, payload)
                    });
                    let Some((old, _)) = old else { return Ok(false) };
                    let old = (entry.place(), usize::from(old.len));
                    self.replace_zpage(&mut state, old, &header, (pieces, what), &mut emptied)
                }
                (false, None) => self.small.replace(handle, header, pieces, what, &still),
                (false, Some(chunks)) => self.small.leave(handle, &still, || {
                    let place = self.put_zpage(&mut state, &header, pieces, chunks, what)?;
                    let done = self.small.handles.exchange(handle, place, IN_FRAME);
                    if !done {
                        emptied = self.take_zpage(&mut state, place, len);
                    }
                    Ok(done)
                }),
            };
            drop(state);
            self.release_frame(emptied);
            done
        })
    }

    /// Replaces a zpage, of which it is known where it is and how long.
    fn replace_zpage(
        &self,
        state: &mut ShardState,
        (old, old_len): (Place, usize),
        header: &Header,
        (pieces, what): (&[&[u8]], For),
        emptied: &mut Option<u32>,
    ) -> Result<bool, NoRoom> {
        let (handle, len) = (header.handle, usize::from(header.len));
        let handles = &self.small.handles;
        let done = match chunks_of(len) {
            None => self
                .small
                .put(header, pieces, what, |place, class| handles.exchange(handle, place, class))?,
            Some(chunks) => {
                let place = self.put_zpage(state, header, pieces, chunks, what)?;
                let done = handles.exchange(handle, place, IN_FRAME);
                if !done {
                    *emptied = self.take_zpage(state, place, len);
                }
                done
            }
        };
        if done {
            *emptied = self.take_zpage(state, old, old_len);
        }
        Ok(done)
    }
}
