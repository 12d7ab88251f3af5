//! What an agent says, and what is so.

use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;

use clew_agent::protocol::{CALL_AT, Call, Header, Kind, SLOTS, SlotState, Taken, call_word};

use super::*;
use crate::agents::agent::header_bytes;
use crate::agents::closer::Foreign;
use crate::agents::seqpacket;
use crate::faults::uffd::FEATURES;
use crate::skip::skip;

const PAGE: u64 = 4096;

/// Fresh pages of our own, registered.
fn pages(uffd: &Uffd, count: usize) -> u64 {
    let bytes = count * PAGE as usize;
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a fresh mapping; the advice concerns it only.
    let base = unsafe {
        let base = libc::mmap(std::ptr::null_mut(), bytes, prot, flags, -1, 0);
        assert_ne!(base, libc::MAP_FAILED);
        libc::madvise(base, bytes, libc::MADV_NOHUGEPAGE);
        base as u64
    };
    uffd.register(base, bytes as u64).expect("registered");
    base
}

/// What the kernel says, 0 if nothing.
fn move_page(uffd: &Uffd, dst: u64, src: u64) -> i32 {
    const UFFDIO_MOVE: u64 = 0xc028_aa05;
    let mut arg = [dst, src, PAGE, 0, 0];
    // SAFETY: the argument is as large as the kernel's; both pages are this test's own.
    let done = unsafe { libc::ioctl(uffd.as_raw_fd(), UFFDIO_MOVE, &raw mut arg) };
    if done == 0 { 0 } else { io::Error::last_os_error().raw_os_error().unwrap_or(0) }
}

fn give_up(start: u64, pages: u64) {
    let (start, bytes) = (start as *mut libc::c_void, (pages * PAGE) as usize);
    // SAFETY: memory of this test's own, of which nobody has a reference.
    assert_eq!(unsafe { libc::madvise(start, bytes, libc::MADV_DONTNEED) }, 0);
}

/// Memory of this process with an agent that the test plays at the other end of the socket, and
/// where its staging area is.
fn with_agent(uffd: Uffd) -> (ProgramMemory, OwnedFd, u64) {
    let mut ends = [0; 2];
    // SAFETY: the array takes both descriptors, which nobody else owns.
    let [ours, agents] = unsafe {
        let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
        assert_eq!(libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()), 0);
        ends.map(|fd| OwnedFd::from_raw_fd(fd))
    };
    let staging = pages(&uffd, SLOTS);
    let mem = File::open("/proc/self/mem").expect("mem");
    let pagemap = File::open("/proc/self/pagemap").expect("pagemap");
    let buffer = crate::agents::agent::new_buffer().expect("a buffer");
    let agent = Agent::new(ours.into(), buffer, staging, 0, Some(mem), 1).expect("an agent");
    (ProgramMemory::new(uffd, PAGE, Some(agent), Some(pagemap), -1, 0), agents, staging)
}

/// Carries out one order as an agent does, with `take` for what becomes of the slots of so many runs;
/// false when the socket is closed.
fn obey(socket: &OwnedFd, staging: u64, take: impl FnOnce(u32) -> Vec<SlotState>) -> bool {
    let mut order = [0u8; 256];
    let (n, _) = seqpacket::receive::<Foreign>(socket, &mut order).expect("an order");
    if n == 0 {
        return false;
    }
    let word = |i: usize| u32::from_ne_bytes(order[i * 4..][..4].try_into().expect("a word"));
    let (kind, slots) = match Kind::from_u32(word(1)) {
        Some(Kind::Take) => (Kind::Taken, take(word(2))),
        Some(Kind::Release) => {
            give_up(staging, u64::from(word(2)));
            (Kind::Done, Vec::new())
        }
        other => panic!("an order nobody gave: {other:?}"),
    };
    let header = Header::new(kind, 0, word(3));
    let bytes = if kind == Kind::Taken { size_of::<Taken>() } else { size_of::<Header>() };
    let mut answer = vec![0u8; bytes];
    let words = [header.magic, header.kind, header.value, header.detail];
    for (to, word) in answer.chunks_exact_mut(4).zip(words) {
        to.copy_from_slice(&word.to_ne_bytes());
    }
    for (to, state) in answer.iter_mut().skip(size_of::<Header>()).zip(&slots) {
        *to = *state as u8;
    }
    seqpacket::send(socket, [&answer], &[]).expect("sent");
    if slots.contains(&SlotState::Taken) {
        let copied = header_bytes(Kind::Copied, 0, word(3));
        seqpacket::send(socket, [&copied], &[]).expect("sent");
    }
    true
}

fn own_uffd(test: &str) -> Option<Uffd> {
    let Ok(uffd) = Uffd::open_own() else {
        skip(test, "no userfaultfd");
        return None;
    };
    uffd.api(FEATURES & !crate::faults::uffd::feature::EVENT_REMOVE).expect("the features");
    Some(uffd)
}

#[test]
fn a_page_that_was_moved_and_is_called_busy_is_taken() {
    let Some(uffd) = own_uffd("a_page_that_was_moved_and_is_called_busy_is_taken") else {
        return;
    };
    let (memory, agents, staging) = with_agent(uffd);
    let program = pages(&memory.uffd, 4);
    for i in 0..4u8 {
        let put = memory.uffd.copy(program + u64::from(i) * PAGE, &[i + 1; PAGE as usize]);
        assert_eq!(put.errno, 0);
    }
    // The first is shared, say; of the second the kernel says nothing; the third is as it says,
    // and the place of the fourth is taken, though the page has not moved.
    assert_eq!(move_page(&memory.uffd, staging + PAGE, program + PAGE), 0);
    assert_eq!(move_page(&memory.uffd, staging + 2 * PAGE, program + 2 * PAGE), 0);
    assert_eq!(memory.uffd.copy(staging + 3 * PAGE, &[9; PAGE as usize]).errno, 0);
    let said = [SlotState::Busy, SlotState::Busy, SlotState::Taken, SlotState::Busy];
    let mut took = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| obey(&agents, staging, |_| said.to_vec()));
        let vpns = [0, 1, 2, 3].map(|i| Vpn::of_addr(program + i * PAGE, PAGE));
        memory.take_out(&vpns, &mut took);
        memory.finish_taking(&[], &mut took);
    });
    assert_eq!(took, [Took::Busy, Took::Taken, Took::Taken, Took::Busy]);
    let mut page = vec![0; PAGE as usize];
    assert!(memory.copy_taken(1, &mut page));
    assert!(page.iter().all(|byte| *byte == 2), "the page as the program left it");
}

#[test]
fn what_a_dead_agent_had_moved_is_taken() {
    let Some(uffd) = own_uffd("what_a_dead_agent_had_moved_is_taken") else {
        return;
    };
    let (memory, agents, staging) = with_agent(uffd);
    let program = pages(&memory.uffd, 3);
    for i in 0..3u8 {
        let put = memory.uffd.copy(program + u64::from(i) * PAGE, &[i + 1; PAGE as usize]);
        assert_eq!(put.errno, 0);
    }
    let mut took = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            seqpacket::receive::<Foreign>(&agents, &mut [0; 256]).expect("an order");
            assert_eq!(move_page(&memory.uffd, staging + PAGE, program + PAGE), 0);
            seqpacket::hang_up(&agents);
        });
        memory.take_out(&[0, 1, 2].map(|i| Vpn::of_addr(program + i * PAGE, PAGE)), &mut took);
        memory.finish_taking(&[], &mut took);
    });
    assert_eq!(took, [Took::Stayed, Took::Taken, Took::Stayed]);
    let mut page = vec![0; PAGE as usize];
    assert!(memory.copy_taken(1, &mut page));
    assert!(page.iter().all(|byte| *byte == 2), "the page as the program left it");
}

#[test]
fn what_is_not_registered_is_not_asked_for() {
    let Some(uffd) = own_uffd("what_is_not_registered_is_not_asked_for") else { return };
    let (memory, agents, staging) = with_agent(uffd);
    let program = pages(&memory.uffd, 3);
    for i in 0..3u8 {
        let put = memory.uffd.copy(program + u64::from(i) * PAGE, &[i + 1; PAGE as usize]);
        assert_eq!(put.errno, 0);
    }
    memory.uffd.unregister(program + PAGE, PAGE).expect("unregistered");
    for i in [0, 2] {
        assert_eq!(move_page(&memory.uffd, staging + i * PAGE, program + i * PAGE), 0);
    }
    let (mut took, asked) = (Vec::new(), std::sync::atomic::AtomicU32::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            obey(&agents, staging, |runs| {
                asked.store(runs, Ordering::Relaxed);
                vec![SlotState::Taken, SlotState::Unused, SlotState::Taken]
            })
        });
        let vpns = [0, 1, 2].map(|i| Vpn::of_addr(program + i * PAGE, PAGE));
        memory.take_out(&vpns, &mut took);
        memory.finish_taking(&[], &mut took);
    });
    assert_eq!(asked.load(Ordering::Relaxed), 2, "runs");
    assert_eq!((took[0], took[2]), (Took::Taken, Took::Taken));
    assert_ne!(took[1], Took::Taken);
}

/// Answers that nobody asked for, without end: whoever reads them must come to an end.
#[test]
fn who_waits_for_an_agent_that_floods_it_waits_no_longer() {
    let Some(uffd) = own_uffd("who_waits_for_an_agent_that_floods_it_waits_no_longer") else {
        return;
    };
    let (memory, agents, _) = with_agent(uffd);
    let program = pages(&memory.uffd, 1);
    let mut took = Vec::new();
    let is_over = AtomicBool::new(false);
    let until = Instant::now() + Duration::from_secs(60);
    let flooded = std::thread::scope(|scope| {
        let flood = scope.spawn(|| {
            let unasked = crate::agents::agent::header_bytes(Kind::Taken, 0, 7);
            while !is_over.load(Ordering::Acquire) && Instant::now() < until {
                let _ = seqpacket::send(&agents, [&unasked], &[]);
            }
            is_over.load(Ordering::Acquire)
        });
        memory.take_out(&[Vpn::of_addr(program, PAGE)], &mut took);
        memory.finish_taking(&[], &mut took);
        is_over.store(true, Ordering::Release);
        // Whoever sends may wait for room.
        memory.hang_up();
        flood.join().expect("the flood ends")
    });
    assert!(flooded, "it was waited for as long as it sent");
    assert_eq!(took, [Took::Stayed]);
    assert!(!memory.has_agent(), "it gets no more orders");
}

/// Does `what` with the agent, or hangs up after a minute: whoever waits for it waits no longer then.
fn does_not_wait(memory: &ProgramMemory, what: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        let (done, is_done) = std::sync::mpsc::channel();
        scope.spawn(move || {
            what();
            let _ = done.send(());
        });
        if is_done.recv_timeout(Duration::from_secs(60)).is_err() {
            memory.hang_up();
            panic!("an agent that reads nothing is waited for");
        }
    });
}

/// It can know the numbers of its orders without reading any.
#[test]
fn an_agent_that_answers_what_it_has_not_read_gets_no_more_orders() {
    const NAME: &str = "an_agent_that_answers_what_it_has_not_read_gets_no_more_orders";
    let Some(uffd) = own_uffd(NAME) else { return };
    let (memory, agents, _) = with_agent(uffd);
    let page = Vpn::of_addr(pages(&memory.uffd, 1), PAGE);
    let is_over = AtomicBool::new(false);
    let (mut orders, mut took) = (0, Vec::new());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut number = 1 << 24;
            while !is_over.load(Ordering::Acquire) {
                let head = crate::agents::agent::header_bytes(Kind::Taken, 0, number);
                let slots = [SlotState::Skipped as u8; SLOTS];
                match seqpacket::send(&agents, [&head, &slots], &[]) {
                    Ok(()) => number += 1,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        std::thread::yield_now();
                    }
                    // Hung up on.
                    Err(_) => break,
                }
            }
        });
        does_not_wait(&memory, || {
            while memory.has_agent() && orders < 100_000 {
                memory.take_out(&[page], &mut took);
                memory.finish_taking(&[], &mut took);
                orders += 1;
            }
        });
        is_over.store(true, Ordering::Release);
    });
    assert!(!memory.has_agent(), "after {orders} orders");
    assert!(orders > 1, "the first was answered");
    assert_eq!(took, [Took::Stayed]);
}

/// A successor empties staging areas before it serves anybody, and whoever ends tells agents so.
#[test]
fn an_agent_that_reads_nothing_holds_up_neither_a_takeover_nor_an_end() {
    const NAME: &str = "an_agent_that_reads_nothing_holds_up_neither_a_takeover_nor_an_end";
    let Some(uffd) = own_uffd(NAME) else { return };
    let (memory, agents, _) = with_agent(uffd);
    does_not_wait(&memory, || {
        for _ in 0..100_000 {
            memory.empty_staging();
            if !memory.has_agent() {
                break;
            }
        }
        memory.detach();
    });
    assert!(!memory.has_agent(), "its queue is full, and it gets more orders");
    // It has not been told to end: so it finds that nobody is there.
    seqpacket::set_timeout(&agents, Some(Duration::from_secs(60))).expect("set");
    while seqpacket::receive::<Foreign>(&agents, &mut [0; 64]).expect("orders, and the end").0 > 0 {
    }
}

/// An agent that died with its program leaves nothing to be found damaged.
#[test]
fn a_buffer_counts_until_its_memory_is_given_back() {
    let Some(uffd) = own_uffd("a_buffer_counts_until_its_memory_is_given_back") else { return };
    let (memory, agents, staging) = with_agent(uffd);
    assert_eq!(memory.buffer_bytes(), 0);
    let [_, buffer] = memory.agent.get().expect("an agent").descriptors();
    let to_hole = |bytes: u64| {
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        // SAFETY: takes numbers only.
        assert_eq!(unsafe { libc::fallocate(buffer, mode, 0, bytes as i64) }, 0);
    };
    // SAFETY: takes numbers only.
    assert_eq!(unsafe { libc::fallocate(buffer, 0, 0, 64 * PAGE as i64) }, 0);
    assert_eq!(memory.buffer_bytes(), 64 * PAGE);
    memory.empty_idle_buffer(Duration::ZERO);
    assert_eq!(memory.buffer_bytes(), 64 * PAGE, "it was told to, and has not");
    assert!(obey(&agents, staging, |_| Vec::new()));
    assert_eq!(memory.buffer_bytes(), 64 * PAGE, "it says that it has, and has not");
    to_hole(16 * PAGE);
    assert_eq!(memory.buffer_bytes(), 48 * PAGE);
    to_hole(SLOTS as u64 * PAGE);
    assert_eq!(memory.buffer_bytes(), 0);
}

#[test]
fn what_was_on_its_way_out_of_memory_that_is_gone_is_not_lost() {
    let Some(own) = own_uffd("what_was_on_its_way_out_of_memory_that_is_gone_is_not_lost") else {
        return;
    };
    drop(own);
    let mut ends = [0; 2];
    // SAFETY: the array takes both descriptors, which nobody else owns. The child makes system calls
    // and ends.
    let (ours, child) = unsafe {
        let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
        assert_eq!(libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()), 0);
        let [ours, childs] = ends.map(|fd| OwnedFd::from_raw_fd(fd));
        let child = libc::fork();
        assert!(child >= 0);
        if child == 0 {
            let opened = Uffd::open_own().and_then(|uffd| uffd.api(FEATURES).map(|()| uffd));
            let sent = opened.and_then(|u| seqpacket::send(&childs, [b"u"], &[u.as_raw_fd()]));
            libc::_exit(i32::from(sent.is_err()));
        }
        (ours, child)
    };
    let mut status = 0;
    // SAFETY: our own child, and a place for its status.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0, "the child has sent its userfaultfd");
    let (_, mut fds) = seqpacket::receive::<Foreign>(&ours, &mut [0; 8]).expect("a message");
    let gone = Uffd::new(fds.pop().expect("a descriptor").into_known());
    assert!(!gone.is_alive());

    // Its agent hangs up in the middle of an order.
    let Some(uffd) = own_uffd("") else { return };
    let (memory, agents, _) = with_agent(uffd);
    let ProgramMemory { mut agent, .. } = memory;
    let memory = ProgramMemory::new(gone, PAGE, agent.take(), None, -1, 0);
    let mut took = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            seqpacket::receive::<Foreign>(&agents, &mut [0; 256]).expect("an order");
            seqpacket::hang_up(&agents);
        });
        memory.take_out(&[Vpn(1 << 20), Vpn(1 << 20 | 1)], &mut took);
        memory.finish_taking(&[], &mut took);
    });
    assert_eq!(took, [Took::Stayed, Took::Stayed]);
    assert!(!memory.has_ended(), "nobody has looked yet");
    assert!(memory.look_whether_ended() && memory.has_ended());
    assert!(!memory.look_whether_ended(), "that is known by now");
}

/// Where a page was put again, or has been given up, there is no mark any more.
#[test]
fn what_was_taken_out_has_its_mark_until_it_is_put_or_given_up() {
    let test = "what_was_taken_out_has_its_mark_until_it_is_put_or_given_up";
    let Some(uffd) = own_uffd(test) else { return };
    let (memory, _agents, _) = with_agent(uffd);
    let program = pages(&memory.uffd, 16);
    let at = |page: u64| program + page * PAGE;
    assert_eq!(memory.uffd.copy(at(0), &[1; PAGE as usize]).errno, 0);
    let marked = |range| {
        let mut found = Vec::new();
        memory.for_marked(range, |marked| found.push(marked)).expect("looked at");
        found
    };
    assert_eq!(marked(at(0)..at(16)), [], "what is there, and what never was");
    memory.uffd.mark(at(1), 12 * PAGE).expect("marked");
    let one = |range: Range<u64>| vec![range; 1];
    assert_eq!(marked(at(0)..at(16)), one(at(1)..at(13)));
    assert_eq!(marked(at(3)..at(5)), one(at(3)..at(5)));
    assert_eq!(memory.put(Vpn::of_addr(at(4), PAGE), &[2; PAGE as usize]).pages, 1);
    assert_eq!(memory.put_zero(Vpn::of_addr(at(6), PAGE), 2).pages, 2);
    give_up(at(9), 3);
    memory.unmark(at(12) + 7);
    assert_eq!(marked(at(0)..at(16)), [at(1)..at(4), at(5)..at(6), at(8)..at(9)]);
}

/// A thread writes to a page of zeros for the first time while the page is being moved. Linux 6.18
/// says EEXIST in some of a hundred thousand tries.
#[test]
fn a_first_write_in_the_middle_of_a_move_is_not_lost() {
    const TRIES: u64 = 50_000;
    let Some(uffd) = own_uffd("a_first_write_in_the_middle_of_a_move_is_not_lost") else {
        return;
    };
    let (memory, agents, staging) = with_agent(uffd);
    let program = pages(&memory.uffd, 1);
    let (begun, written) = (AtomicU64::new(0), AtomicU64::new(0));
    let unsaid = AtomicU64::new(0);
    let mut lost = None;
    // A different moment each time.
    let spin = |n: u64| (0..n * 37 % 401).for_each(|_| std::hint::spin_loop());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 1..=TRIES {
                while begun.load(Ordering::Acquire) < n {
                    std::hint::spin_loop();
                }
                spin(n);
                // SAFETY: the page is mapped; others read it only once this is said to be done.
                unsafe { (program as *mut u64).write_volatile(n) };
                written.store(n, Ordering::Release);
            }
        });
        scope.spawn(|| {
            let take = |_| {
                begun.fetch_add(1, Ordering::Release);
                spin(begun.load(Ordering::Relaxed) * 101);
                vec![match move_page(&memory.uffd, staging, program) {
                    0 => {
                        let mut copy = [0; PAGE as usize];
                        // Zeros are no page there.
                        memory.staged(0, &mut copy);
                        assert!(memory.agent().expect("it lives").fill(0, &copy));
                        SlotState::Taken
                    }
                    libc::EEXIST | libc::EBUSY => {
                        unsaid.fetch_add(1, Ordering::Relaxed);
                        SlotState::Busy
                    }
                    libc::ENOENT => SlotState::Hole,
                    _ => SlotState::Skipped,
                }]
            };
            while obey(&agents, staging, take) {}
        });
        let (mut page, mut took) = (vec![0; PAGE as usize], Vec::new());
        for n in 1..=TRIES {
            assert_eq!(memory.uffd.zero(program, PAGE).errno, 0);
            memory.take_out(&[Vpn::of_addr(program, PAGE)], &mut took);
            memory.finish_taking(&[], &mut took);
            if took[0] == Took::Taken {
                assert!(memory.copy_taken(0, &mut page));
                assert_eq!(memory.uffd.copy(program, &page).errno, 0);
            } else {
                // What the fault of a resident page is answered with.
                memory.uffd.zero(program, PAGE);
            }
            while written.load(Ordering::Acquire) < n {
                std::thread::yield_now();
            }
            // SAFETY: the page is mapped, and nobody writes to it now.
            let found = unsafe { (program as *const u64).read_volatile() };
            if found != n {
                lost = Some((n, found, took[0]));
                begun.store(TRIES, Ordering::Release);
                break;
            }
            memory.release_taken();
            give_up(program, 1);
        }
        memory.hang_up();
    });
    assert_eq!(lost, None, "try, what was found instead, and what the agent said");
    println!("pages moved and called busy: {unsaid:?} of {TRIES}");
}

/// Writes the call word as an agent does that has come so far with its order.
fn comes_to(memory: &ProgramMemory, order: u32, state: Call) {
    let [_, buffer] = memory.agent.get().expect("an agent").descriptors();
    let buffer = File::options().write(true).open(format!("/proc/self/fd/{buffer}"));
    let word = call_word(order, state).to_ne_bytes();
    buffer.and_then(|buffer| buffer.write_all_at(&word, CALL_AT as u64)).expect("written");
}

/// Takes one page out, while `fault` is what a fault thread does once the order is sent, which is told
/// its number; the agent takes nothing then.
fn one_page_out(
    (memory, agents, staging): (&ProgramMemory, &OwnedFd, u64),
    page: Vpn,
    yields: bool,
    fault: impl FnOnce(u32) + Send,
) -> Vec<Took> {
    let mut took = Vec::new();
    memory.hold_events(yields);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            assert!(seqpacket::is_readable(agents, Duration::from_secs(60)), "an order");
            let Hold::Sent { order, .. } = Hold::of(memory.hold.load(Ordering::SeqCst)) else {
                panic!("an order that nobody sent");
            };
            fault(order);
            obey(agents, staging, |_| vec![SlotState::Skipped]);
        });
        memory.take_out(&[page], &mut took);
    });
    memory.release_events();
    memory.finish_taking(&[], &mut took);
    assert!(memory.claim_events(), "it is over");
    took
}

#[test]
fn a_fault_calls_off_what_has_not_begun() {
    let Some(uffd) = own_uffd("a_fault_calls_off_what_has_not_begun") else { return };
    let (memory, agents, staging) = with_agent(uffd);
    let page = Vpn::of_addr(pages(&memory.uffd, 1), PAGE);
    let all = (&memory, &agents, staging);

    // Not even sent: its agent never hears of it.
    let mut took = Vec::new();
    memory.hold_events(true);
    assert!(memory.claim_events());
    memory.take_out(&[page], &mut took);
    memory.release_events();
    assert_eq!(took, [Took::CalledOff]);
    assert!(!seqpacket::is_readable(&agents, Duration::ZERO));

    let sent = |order| {
        assert!(memory.claim_events(), "sent, and not begun");
        assert!(memory.claim_events(), "it stays called off");
        assert!(
            memory.agent().is_some_and(|agent| !agent.calls_off(order)),
            "the agent's word says so"
        );
    };
    assert_eq!(one_page_out(all, page, true, sent), [Took::CalledOff]);
    let begun = |order| {
        comes_to(&memory, order, Call::Begun);
        assert!(!memory.claim_events(), "it has begun");
        comes_to(&memory, order, Call::Moved);
        assert!(memory.claim_events(), "what is moved is moved");
    };
    assert_eq!(one_page_out(all, page, true, begun), [Took::Stayed]);
    let firm = |order| {
        assert!(!memory.claim_events(), "firmly");
        comes_to(&memory, order - 1, Call::Moved);
        assert!(!memory.claim_events(), "that was another order");
        comes_to(&memory, order, Call::Moved);
        assert!(memory.claim_events());
    };
    assert_eq!(one_page_out(all, page, false, firm), [Took::Stayed]);
}
