//! What is asked of a lender and not answered: questions of programs that wait, and all others, each in their order; and
//! how a log asks them.

use std::collections::VecDeque;
use std::io;
use std::time::Instant;

use clew_store::flash::device::{Read, Write};

use crate::patience::Patience;

/// Who is told of a read.
pub type Came = Box<dyn FnOnce(io::Result<Vec<u8>>) + Send>;
/// Who is told of a write.
pub type Wrote = Box<dyn FnOnce(io::Result<()>) + Send>;

pub(crate) enum What {
    Write { bytes: Vec<u8>, told: Wrote },
    Read { len: u32, told: Came },
    Forget { len: u64 },
}

/// What is asked.
pub(crate) struct Asked {
    pub at: u64,
    pub what: What,
    since: Instant,
    pressing: bool,
}

impl Asked {
    pub fn now(at: u64, what: What, pressing: bool) -> Asked {
        Asked { at, what, since: Instant::now(), pressing }
    }

    pub fn is_read(&self) -> bool {
        matches!(self.what, What::Read { .. })
    }

    /// Bytes that are in memory for it.
    pub fn written_bytes(&self) -> u64 {
        match &self.what {
            What::Write { bytes, .. } => bytes.len() as u64,
            What::Read { .. } | What::Forget { .. } => 0,
        }
    }

    /// Whether nobody can wait for it any longer: a read for so long, a write as long as it takes, unless somebody else
    /// has a copy and the lender is lost.
    pub fn is_late(&self, patience: &Patience, is_lost: bool) -> bool {
        match self.what {
            What::Read { .. } => self.since.elapsed() > patience.donor,
            What::Write { .. } => is_lost && patience.gives_up_writes,
            What::Forget { .. } => false,
        }
    }

    /// Says that there is no answer.
    pub fn fail(self, kind: io::ErrorKind) {
        let error = io::Error::new(kind, "the donor does not answer");
        match self.what {
            What::Read { told, .. } => told(Err(error)),
            What::Write { told, .. } => told(Err(error)),
            What::Forget { .. } => {}
        }
    }
}

#[derive(Default)]
pub(crate) struct Queues {
    /// Of programs that wait.
    pub pressing: VecDeque<Asked>,
    pub others: VecDeque<Asked>,
    /// The worker is to end.
    pub ends: bool,
}

impl Queues {
    pub fn is_empty(&self) -> bool {
        self.pressing.is_empty() && self.others.is_empty()
    }

    pub fn push(&mut self, asked: Asked) {
        match asked.pressing {
            true => self.pressing.push_back(asked),
            false => self.others.push_back(asked),
        }
    }

    /// These, which were sent and not answered, come before everything else, in their order.
    pub fn push_again(&mut self, asked: impl DoubleEndedIterator<Item = Asked>) {
        for asked in asked.rev() {
            match asked.pressing {
                true => self.pressing.push_front(asked),
                false => self.others.push_front(asked),
            }
        }
    }

    /// Takes those out of which this is said.
    pub fn take_out(&mut self, is_over: impl Fn(&Asked) -> bool) -> Vec<Asked> {
        let mut over = Vec::new();
        for queue in [&mut self.pressing, &mut self.others] {
            if queue.iter().any(&is_over) {
                let (out, stay): (Vec<Asked>, Vec<Asked>) = queue.drain(..).partition(&is_over);
                over.extend(out);
                *queue = stay.into();
            }
        }
        over
    }
}

/// A log's write as a question; it is told later.
pub(crate) fn of_write(
    write: Write<'_>,
    put: impl FnOnce(u64, Vec<u8>, Wrote),
) -> Option<io::Result<usize>> {
    let bytes = match write.to_vec() {
        Ok(bytes) => bytes,
        Err(error) => return Some(Err(error)),
    };
    let (len, told) = (bytes.len(), write.told);
    put(write.at, bytes, Box::new(move |wrote| told(wrote.map(|()| len))));
    None
}

/// A log's read as a question.
pub(crate) fn of_read(read: Read) -> Asked {
    let Read { at, mut into, told, pressing, .. } = read;
    let len = into.bytes().len() as u32;
    let told: Came = Box::new(move |came| match came {
        Ok(bytes) => {
            let got = bytes.len().min(into.bytes().len());
            into.bytes_mut()[..got].copy_from_slice(&bytes[..got]);
            told(Ok(got), into);
        }
        Err(error) => told(Err(error), into),
    });
    Asked::now(at, What::Read { len, told }, pressing)
}
