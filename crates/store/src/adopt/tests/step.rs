//! Work done by a child process instruction by instruction. Its segments are ours too: what is in
//! them when it stands still is what a successor would find if it were killed there.

use std::time::{Duration, Instant};

use crate::skip::skip;

/// A child that stands still before its first instruction, or behind the last step.
pub struct Child {
    pid: libc::pid_t,
    runs: bool,
    /// The CPUs that the parent had.
    cpus: Option<libc::cpu_set_t>,
}

/// Binds this thread to the CPU that it is on: going to and fro on one CPU takes half the time.
fn stay_here() -> Option<libc::cpu_set_t> {
    // SAFETY: plain data, filled by the kernel before it is read; calls for this thread only.
    unsafe {
        let size = size_of::<libc::cpu_set_t>();
        let (mut all, mut one) = std::mem::zeroed::<(libc::cpu_set_t, libc::cpu_set_t)>();
        let cpu = usize::try_from(libc::sched_getcpu()).ok()?;
        if libc::sched_getaffinity(0, size, &mut all) != 0 {
            return None;
        }
        libc::CPU_SET(cpu, &mut one);
        (libc::sched_setaffinity(0, size, &one) == 0).then_some(all)
    }
}

/// A child that runs `work` by itself.
///
/// The child of a test that has threads may find a lock taken for ever. Then it does nothing until
/// it is killed, which is no mistake.
pub fn fork(work: impl FnOnce()) -> Child {
    fork_then(|| {}, work)
}

fn fork_then(first: impl FnOnce(), work: impl FnOnce()) -> Child {
    // SAFETY: the child runs `work` and ends without running anything else of ours.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "{}", std::io::Error::last_os_error());
    if pid == 0 {
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            first();
            work();
        }));
        // SAFETY: ends this process and nothing else.
        unsafe { libc::_exit(i32::from(done.is_err())) };
    }
    Child { pid, runs: true, cpus: None }
}

/// A child that does `work` step by step; `None`, and said so, where that is not allowed.
pub fn traced(test: &str, work: impl FnOnce()) -> Option<Child> {
    let wait_for_parent = || {
        // SAFETY: takes no pointers that are used; stops until the parent goes on.
        unsafe {
            if libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) != 0 {
                libc::_exit(77);
            }
            libc::raise(libc::SIGSTOP);
        }
    };
    let cpus = stay_here();
    let mut child = fork_then(wait_for_parent, work);
    child.cpus = cpus;
    let status = child.wait();
    if libc::WIFEXITED(status) {
        assert_eq!(libc::WEXITSTATUS(status), 77);
        skip(test, "the system allows no ptrace");
        return None;
    }
    Some(child)
}

impl Child {
    fn wait(&mut self) -> i32 {
        let mut status = 0;
        loop {
            // SAFETY: a child of ours, and a place for its status.
            let pid = unsafe { libc::waitpid(self.pid, &mut status, libc::__WALL) };
            if pid == self.pid {
                break;
            }
            let error = std::io::Error::last_os_error();
            assert_eq!(error.kind(), std::io::ErrorKind::Interrupted, "{error}");
        }
        self.runs = libc::WIFSTOPPED(status);
        status
    }

    /// Whether it has something to say within a time in which an instruction is over, on the busiest machine.
    fn answers(&self) -> bool {
        const LONG: Duration = Duration::from_secs(30);
        let asked = Instant::now();
        loop {
            // SAFETY: all zeros are valid, and the call writes there only.
            let said = unsafe {
                let mut said: libc::siginfo_t = std::mem::zeroed();
                let how =
                    libc::WEXITED | libc::WSTOPPED | libc::WNOHANG | libc::WNOWAIT | libc::__WALL;
                libc::waitid(libc::P_PID, self.pid as libc::id_t, &mut said, how) == 0
                    && said.si_pid() != 0
            };
            if said || asked.elapsed() > LONG {
                return said;
            }
            std::thread::yield_now();
        }
    }

    /// One instruction more; false if that was its end, or if it waits for ever: for a lock that a thread of ours had when
    /// it was forked.
    pub fn step(&mut self) -> bool {
        // SAFETY: a stopped child of ours; no pointers.
        let stepped = unsafe { libc::ptrace(libc::PTRACE_SINGLESTEP, self.pid, 0, 0) };
        assert_eq!(stepped, 0, "{}", std::io::Error::last_os_error());
        if !self.answers() {
            return false;
        }
        let status = self.wait();
        if !self.runs {
            assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "{status:#x}");
        }
        self.runs
    }

    /// Kills it, wherever it is, and waits until it is gone.
    pub fn kill(self) {
        drop(self);
    }

    fn end(&mut self) {
        while self.runs {
            // SAFETY: a child of ours that was not reaped.
            unsafe { libc::kill(self.pid, libc::SIGKILL) };
            self.wait();
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.end();
        if let Some(cpus) = &self.cpus {
            // SAFETY: what the kernel said before, for this thread.
            unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), cpus) };
        }
    }
}
