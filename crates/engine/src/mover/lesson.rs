//! A lesson: a space's dictionary is made from pages that have left it, read where they are stored.

use crate::learn::{ENOUGH, Learner, SAMPLES};
use crate::space::{ManagedSpace, Memory};

use super::{BlockStore, Mover, MoverContext};

impl<S: BlockStore, M: Memory<S::Unit> + ?Sized> Mover<S, M> {
    /// Makes a dictionary if pages enough were seen; takes 8 ms then, and 3 MiB. The caller has no page of the space
    /// in his hands.
    pub(super) fn learn(
        &self,
        space: &ManagedSpace<M>,
        learner: &mut Learner,
        ctx: &mut MoverContext<S>,
    ) {
        if !learner.is_due() {
            return;
        }
        // One at a time, for the memory it takes: the others' turn comes with their next batch.
        let Some(_lesson) = self.lesson.try_lock() else { return };
        let page = self.page_units;
        let mut pages = vec![S::Unit::default(); SAMPLES * page];
        let mut read = 0;
        learner.samples().retain(|vpn| {
            let at = &mut pages[read * page..][..page];
            let found = self.find_in_pool(space, *vpn, at, ctx);
            found.inspect(|found| self.release(Some(found.block))).inspect(|_| read += 1).is_some()
        });
        if read >= ENOUGH {
            learner.learned(self.store.learn(&mut ctx.codec, &pages[..read * page]));
        }
    }
}
