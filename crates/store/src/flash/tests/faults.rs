//! What a device does wrong, and what becomes of it.

use super::*;
use crate::flash::cipher::TAG_BYTES;
use crate::flash::reading::TRIES;

/// A tier with objects on the device, and some in memory.
fn filled(plan: Arc<Plan>) -> Played {
    let mut draw = Seeded::of(7, &[1]);
    let mut played = Played::begin(plan);
    for _ in 0..40 {
        if played.put(Played::object_of(&mut draw, 2000, 6000)).is_err() {
            break;
        }
    }
    played.flash.flush();
    played
}

fn first(played: &Played) -> u32 {
    *played.owner.objects.lock().keys().min().unwrap()
}

#[test]
fn after_an_error_on_writing_nothing_is_taken_and_everything_is_readable() {
    for error in [libc::EIO, libc::ENOSPC, libc::ENODEV] {
        let mut played = filled(plan(30));
        *played.plan.fail_writes.lock() = Some((1, error));
        let mut draw = Seeded::of(8, &[1]);
        let refused = loop {
            match played.put(Played::object(&mut draw, 6000)) {
                Ok(_) => {}
                Err(AppendError::NoBuffer) => drop(played.flash.flush()),
                Err(error) => break error,
            }
        };
        let AppendError::Latched { why } = refused else { panic!("{refused}") };
        let said = io::Error::from_raw_os_error(error).to_string();
        assert!(why.contains(&said), "{why}");
        assert!(!played.flash.flush());
        assert_eq!(played.flash.facts().latched, Some(why));
        played.check();
        // Whoever takes over has it all, and tries to write again what only memory has.
        let mut played = played.die();
        played.check();
        played.flash.flush();
        played.check();
        *played.plan.fail_writes.lock() = None;
        let any = first(&played);
        played.free(any);
        let played = played.die();
        assert!(played.flash.flush());
        played.check();
    }
}

#[test]
fn a_write_that_stops_half_way_goes_on() {
    for most in [4096, 4096 * 3, 5000, 1000] {
        let plan = plan(30);
        plan.short_writes.store(most, Relaxed);
        let played = filled(plan);
        // Below a block there is no end to it.
        assert_eq!(played.flash.facts().latched.is_none(), most >= 4096);
        played.check();
    }
}

#[test]
fn a_read_that_fails_is_tried_again_and_then_an_error() {
    let played = filled(plan(30));
    let handle = first(&played);
    for fault in 0..3 {
        let faults = || match fault {
            0 => &played.plan.failing_reads,
            1 => &played.plan.short_reads,
            _ => &played.plan.lying_reads,
        };
        for times in 1..TRIES {
            faults().store(u64::from(times), Relaxed);
            assert!(played.is_as_put(handle), "after {times} of kind {fault}");
        }
        faults().store(u64::from(TRIES), Relaxed);
        let read = played.read(handle);
        match fault {
            2 => assert_eq!(read, Err(ReadFlashError::Damaged)),
            _ => assert!(matches!(read, Err(ReadFlashError::Device { .. })), "{read:?}"),
        }
        assert_eq!(faults().load(Relaxed), 0);
        played.check();
    }
    assert_eq!(played.flash.facts().read_errors, 3);
    assert_eq!(played.flash.facts().latched, None, "reading latches nothing");
}

#[test]
fn what_was_changed_exchanged_or_is_older_is_an_error_for_its_object_alone() {
    let mut played = filled(plan(30));
    let old = played.plan.bytes.lock().clone();
    let mut handles: Vec<u32> = played.owner.objects.lock().keys().copied().collect();
    handles.sort_unstable();
    let slot_at = |place: Place| played.flash.core.log.ledger().shape.at(place.slot) as usize;
    let at = |place: Place| slot_at(place) + place.offset as usize;
    let (one, other) = (handles[3], handles[7]);
    let (a, b) = (played.owner.place(one).unwrap(), played.owner.place(other).unwrap());
    // Any one bit, of the object or its tag.
    for byte in [0, a.len as usize - 1, a.len as usize, a.len as usize + TAG_BYTES - 1] {
        played.plan.bytes.lock()[at(a) + byte] ^= 0x20;
        assert_eq!(played.read(one), Err(ReadFlashError::Damaged), "byte {byte}");
        for handle in &handles {
            assert!(*handle == one || played.is_as_put(*handle));
        }
        played.plan.bytes.lock()[at(a) + byte] ^= 0x20;
    }
    // One where another was, as far as it goes.
    let len = a.len.min(b.len) as usize + TAG_BYTES;
    played.plan.bytes.lock().copy_within(at(a)..at(a) + len, at(b));
    assert_eq!(played.read(other), Err(ReadFlashError::Damaged));
    assert!(played.is_as_put(one));
    // Zeros.
    let fill = at(a)..at(a) + a.len as usize + TAG_BYTES;
    played.plan.bytes.lock()[fill].fill(0);
    assert_eq!(played.read(one), Err(ReadFlashError::Damaged));
    // What lay there before: the same objects, in the same slots, written anew.
    for handle in handles {
        played.free(handle);
    }
    let mut draw = Seeded::of(9, &[1]);
    let mut again = Vec::new();
    for _ in 0..120 {
        match played.put(Played::object(&mut draw, 6000)) {
            Ok(handle) => again.push(handle),
            Err(_) => drop(played.flash.flush()),
        }
    }
    assert!(played.flash.flush());
    played.check();
    *played.plan.bytes.lock() = old;
    for handle in again {
        assert_eq!(played.read(handle), Err(ReadFlashError::Damaged));
    }
}

#[test]
fn while_nothing_can_be_written_little_is_taken_and_all_of_it_is_read() {
    let mut played = Played::begin(plan(30));
    played.plan.hold(true);
    let mut draw = Seeded::of(3, &[1]);
    let mut taken = 0;
    while let Ok(handle) = played.put(Played::object(&mut draw, 6000)) {
        assert!(played.is_as_put(handle));
        taken += 1;
    }
    let memory = u64::from(CONFIG.buffers) * u64::from(CONFIG.segment_bytes);
    let facts = played.flash.facts();
    assert!(facts.live_bytes <= memory && facts.live_bytes * 10 > memory * 8, "{facts:?}");
    assert_eq!((facts.buffers_in_use, facts.reads), (u64::from(CONFIG.buffers), 0));
    played.check();
    played.plan.hold(false);
    assert!(played.flash.flush());
    played.check();
    assert!(taken > 20);
    assert_eq!(played.flash.facts().buffers_in_use, 0);
}

#[test]
fn cleaning_leaves_alone_what_it_cannot_read() {
    let mut played = filled(plan(30));
    let mut handles: Vec<u32> = played.owner.objects.lock().keys().copied().collect();
    handles.sort_unstable();
    for handle in handles.iter().step_by(2) {
        played.free(*handle);
    }
    played.plan.failing_reads.store(u64::from(TRIES), Relaxed);
    let Err(CleanError::Device { slot, .. }) = played.flash.clean(&played.owner) else { panic!() };
    played.check();
    // Another one is taken next. One damaged object stays, the others of its slot go.
    let damaged = handles
        .iter()
        .rev()
        .find(|handle| played.owner.place(**handle).is_some_and(|place| place.slot != slot));
    let damaged = *damaged.unwrap();
    let place = played.owner.place(damaged).unwrap();
    let at = played.flash.core.log.ledger().shape.at(place.slot) as usize + place.offset as usize;
    played.plan.bytes.lock()[at] ^= 1;
    let mut unreadable = 0;
    while let Ok(cleaned) = played.flash.clean(&played.owner) {
        unreadable += cleaned.unreadable;
        assert!(played.flash.flush());
        if unreadable > 0 {
            break;
        }
    }
    assert_eq!(unreadable, 1);
    assert_eq!(played.owner.place(damaged), Some(place));
    assert_eq!(played.read(damaged), Err(ReadFlashError::Damaged));
    for handle in handles.iter().filter(|handle| played.owner.place(**handle).is_some()) {
        assert!(*handle == damaged || played.is_as_put(*handle));
    }
    played.check_counts();
}

#[test]
fn what_is_freed_while_it_is_read_is_read() {
    let mut played = filled(plan(6));
    played.plan.is_slow.store(true, Relaxed);
    let handle = first(&played);
    let (place, expected) = played.owner.objects.lock()[&handle].clone();
    let (tell, told) = std::sync::mpsc::sync_channel(1);
    played.flash.read(handle, place, true, move |read| tell.send(read).unwrap());
    let all: Vec<u32> = played.owner.objects.lock().keys().copied().collect();
    for handle in all {
        played.free(handle);
    }
    // Slots are used again, but not that one.
    let mut draw = Seeded::of(4, &[1]);
    while played.put(Played::object(&mut draw, 6000)).is_ok() {}
    assert_eq!(told.recv().unwrap(), Ok(expected));
    played.flash.flush();
    played.check();
}
