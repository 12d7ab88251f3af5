//! Archer, figure 6: pages 1 and 2 are stored one by one, pages 3 to 6 as one block of two objects
//! behind one handle; a fault on one of these brings all four back, three of them parked.

use clew_core::{AccessKind, CodecKind, Event, PageId, Vpn};
use clew_engine::{Fault, MoverContext};
use clew_store::State;

use crate::races_out::done;
use crate::world::{World, group};

#[test]
fn a_block_of_four_pages_is_two_objects_behind_one_handle() {
    let world = World::roomy(false);
    let program = world.start();
    let mut ctx = MoverContext::default();
    for vpn in 1..=6 {
        // Page 3 is noise, and so larger than what is left of a frame; the others compress well.
        let kind = if vpn == 3 { 2 } else { 3 };
        while world.next_version() % 9 + 1 != kind {}
        assert!(world.write(&program, vpn, &mut ctx));
    }
    let narrow = |vpn| group(&program, &[vpn], CodecKind::Lz4, 4096);
    world.mover.swap_out(&program.space, &[narrow(1), narrow(2)], &mut ctx);
    let before = world.store.facts();
    assert_eq!((before.blocks, before.objects), (2, 2));

    let mut wide = group(&program, &[3, 4, 5, 6], CodecKind::Lz4, 4 * 4096);
    wide.park_siblings = true;
    world.mover.swap_out(&program.space, &[wide], &mut ctx);
    let facts = world.store.facts();
    assert_eq!((facts.blocks, facts.pages), (3, 6));
    assert_eq!(facts.objects - before.objects, 2);
    let handles = [1, 2, 3, 4, 5, 6].map(|vpn| program.entry(vpn).handle().expect("it is stored"));
    assert!(handles[0] != handles[1] && !handles[..2].contains(&handles[2]), "{handles:?}");
    assert_eq!(handles[3..], [handles[2]; 3]);
    // Which piece of the block is whose.
    assert_eq!([3, 4, 5, 6].map(|vpn| program.entry(vpn).index()), [0, 1, 2, 3]);

    assert!(!program.kernel.touch(5));
    assert_eq!(program.kernel.read_faults(), [5]);
    let mut events = Vec::new();
    let guard = program.space.table.lock.read();
    let fault = world.mover.fault(&program.space, Vpn(5), &mut ctx, &mut events);
    drop(guard);
    assert!(matches!(fault, Fault::Restored), "{fault:?}");
    let came = |event: &Event| match event {
        Event::PageIn { page, demand, .. } => Some((page.vpn().0, *demand)),
        _ => None,
    };
    let came: Vec<(u64, bool)> = events.iter().filter_map(came).collect();
    assert_eq!(came, [(5, true), (3, false), (4, false), (6, false)]);
    let (stored, parked) = (State::Stored, State::Parked);
    let states = [1, 2, 3, 4, 5, 6].map(|vpn| program.entry(vpn).state());
    assert_eq!(states, [stored, stored, parked, parked, State::Resident, parked]);

    // The next one takes no codec.
    assert!(!program.kernel.touch(6));
    assert_eq!(program.kernel.read_faults(), [6]);
    events.clear();
    let guard = program.space.table.lock.read();
    world.mover.fault(&program.space, Vpn(6), &mut ctx, &mut events);
    drop(guard);
    let page = PageId::new(program.space.id(), Vpn(6));
    let used = matches!(events[..], [
        Event::Access { page: seen, kind: AccessKind::Seen, .. },
        Event::PrefetchUsed { page: used },
    ] if seen == page && used == page);
    assert!(used, "{events:?}");
    done(&world);
}
