//! Reads by some threads that wait, for kernels that refuse io_uring.

use std::collections::VecDeque;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::{Condvar, Mutex};

use super::device::Read;

/// Reads at a time.
const THREADS: usize = 8;

#[derive(Debug, Default)]
struct Queue {
    reads: Mutex<(VecDeque<Read>, bool)>,
    come: Condvar,
}

/// The threads.
#[derive(Debug)]
pub(super) struct Threads {
    queue: Arc<Queue>,
    threads: Vec<JoinHandle<()>>,
}

impl Threads {
    pub fn new(file: Arc<File>) -> Threads {
        let queue = Arc::new(Queue::default());
        let begin = |_| {
            let (queue, file) = (Arc::clone(&queue), Arc::clone(&file));
            let named = std::thread::Builder::new().name("clew-flash-read".into());
            named.spawn(move || serve(&queue, &file)).ok()
        };
        let threads = (0..THREADS).filter_map(begin).collect();
        Threads { queue, threads }
    }

    pub fn read(&self, read: Read) {
        if self.threads.is_empty() {
            return (read.told)(Err(std::io::ErrorKind::OutOfMemory.into()), read.into);
        }
        self.queue.reads.lock().0.push_back(read);
        self.queue.come.notify_one();
    }
}

fn serve(queue: &Queue, file: &File) {
    loop {
        let mut waiting = queue.reads.lock();
        let Read { at, mut into, told, .. } = loop {
            if let Some(read) = waiting.0.pop_front() {
                break read;
            }
            if waiting.1 {
                return;
            }
            queue.come.wait(&mut waiting);
        };
        drop(waiting);
        let got = file.read_at(into.bytes_mut(), at);
        told(got, into);
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.queue.reads.lock().1 = true;
        self.queue.come.notify_all();
        let me = std::thread::current().id();
        for thread in self.threads.drain(..).filter(|thread| thread.thread().id() != me) {
            let _ = thread.join();
        }
    }
}
