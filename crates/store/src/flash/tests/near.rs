//! What a read brings along.

use super::*;

/// Objects on the device, all of them written.
fn written(objects: usize) -> (Played, Vec<u32>) {
    let mut draw = Seeded::of(5, &[1]);
    let mut played = Played::reading_ahead(plan(30));
    let put = |_| played.put(Played::object_of(&mut draw, 500, 3000)).unwrap();
    let handles: Vec<u32> = (0..objects).map(put).collect();
    assert!(played.flash.flush());
    (played, handles)
}

fn here(played: &Played, handle: u32) -> Option<Vec<u8>> {
    played.flash.read_here(handle, played.owner.place(handle).unwrap())
}

#[test]
fn neighbours_come_with_one_read_and_are_there_at_once() {
    let (played, handles) = written(30);
    assert_eq!(here(&played, handles[0]), None);
    assert!(played.is_as_put(handles[0]));
    // 32 KiB hold at least ten of at most 3,000 bytes.
    for handle in &handles[..10] {
        let expected = played.owner.objects.lock()[handle].1.clone();
        assert_eq!(here(&played, *handle), Some(expected), "object {handle}");
    }
    let facts = played.flash.facts();
    assert_eq!((facts.reads, facts.window_reads), (1, 10));
    played.check();
    let facts = played.flash.facts();
    assert!(facts.reads <= 4, "30 objects of at most 90 KB, in windows: {facts:?}");
}

#[test]
fn who_waits_has_the_object_first_and_neighbours_behind_it() {
    let (played, handles) = written(30);
    let expected = |handle: u32| Ok(played.owner.objects.lock()[&handle].1.clone());
    *played.plan.held_reads.lock() = Some(Vec::new());
    let first = played.ask(handles[0]);
    let held = played.plan.held();
    let ([(_, object, true), (_, window, true)], 4096) = (&held[..], held[0].1) else {
        panic!("the object, then the window: {held:?}");
    };
    assert!(object < window, "{held:?}");
    // Who asks for a neighbour waits for the window, and nothing more is read.
    let second = played.ask(handles[5]);
    assert_eq!(played.plan.held(), held);
    played.plan.read_next();
    assert_eq!(first.try_recv(), Ok(expected(handles[0])));
    assert!(second.try_recv().is_err());
    played.plan.read_next();
    assert_eq!(second.try_recv(), Ok(expected(handles[5])));
    assert_eq!(here(&played, handles[7]), expected(handles[7]).ok());
    let facts = played.flash.facts();
    assert_eq!((facts.reads, facts.window_reads, facts.retries), (1, 2, 0));
    assert_eq!(facts.read_bytes, (object + window) as u64);
    played.check_counts();
}

#[test]
fn who_waits_for_a_window_that_does_not_come_has_the_object_alone() {
    for is_gone in [false, true] {
        let (played, handles) = written(30);
        *played.plan.held_reads.lock() = Some(Vec::new());
        let (first, second) = (played.ask(handles[0]), played.ask(handles[5]));
        played.plan.read_next();
        if is_gone {
            // Whoever was to answer has ended without.
            let gone = played.plan.held_reads.lock().as_mut().and_then(Vec::pop);
            drop(gone);
        } else {
            played.plan.lying_reads.store(1, Relaxed);
            played.plan.read_next();
        }
        assert!(first.try_recv().is_ok_and(|read| read.is_ok()) && second.try_recv().is_err());
        assert_eq!(played.plan.held().len(), 1, "the second object, alone");
        played.plan.read_next();
        let expected = played.owner.objects.lock()[&handles[5]].1.clone();
        assert_eq!(second.try_recv(), Ok(Ok(expected)));
        *played.plan.held_reads.lock() = None;
        played.check();
    }
}

#[test]
fn what_is_in_a_buffer_is_here() {
    let mut played = Played::reading_ahead(plan(30));
    let handle = played.put(vec![7; 900]).unwrap();
    assert_eq!(here(&played, handle), Some(vec![7; 900]));
    let facts = played.flash.facts();
    assert_eq!((facts.memory_reads, facts.window_reads, facts.reads), (1, 0, 0));
}

#[test]
fn what_was_read_wrongly_is_not_kept() {
    let (played, handles) = written(30);
    for faults in [&played.plan.lying_reads, &played.plan.short_reads, &played.plan.failing_reads] {
        faults.store(1, Relaxed);
        assert!(played.is_as_put(handles[0]), "read again, and right");
        assert_eq!(here(&played, handles[0]), None, "the second try reads no neighbours");
        assert_eq!(here(&played, handles[1]), None);
    }
    assert_eq!(played.flash.facts().read_errors, 0);
    played.check();
}

#[test]
fn a_damaged_neighbour_is_asked_for_again_and_harms_nobody_else() {
    let (played, handles) = written(30);
    let place = played.owner.place(handles[2]).unwrap();
    let slot = played.flash.core.log.ledger().shape.at(place.slot) as usize;
    let byte = slot + place.offset as usize;
    played.plan.bytes.lock()[byte] ^= 1;
    assert!(played.is_as_put(handles[0]));
    assert_eq!(here(&played, handles[2]), None);
    assert_eq!(played.read(handles[2]), Err(ReadFlashError::Damaged));
    // What is damaged in memory alone is read anew.
    played.plan.bytes.lock()[byte] ^= 1;
    assert!(played.is_as_put(handles[2]) && played.is_as_put(handles[3]));
}

#[test]
fn a_slot_that_was_written_anew_gives_what_is_new() {
    let (mut played, handles) = written(30);
    played.check();
    let slots: Vec<u32> = handles.iter().map(|h| played.owner.place(*h).unwrap().slot).collect();
    for handle in handles {
        played.free(handle);
    }
    let mut draw = Seeded::of(6, &[1]);
    let mut again = Vec::new();
    while !again.iter().any(|handle| played.owner.place(*handle).unwrap().slot == slots[0]) {
        match played.put(Played::object_of(&mut draw, 500, 3000)) {
            Ok(handle) => again.push(handle),
            Err(AppendError::NoSlot) => played.free(again.remove(0)),
            Err(_) => assert!(played.flash.flush()),
        }
    }
    assert!(played.flash.flush());
    played.check();
}
