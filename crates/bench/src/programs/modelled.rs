//! A program whose right answers are known beforehand, from a model of its data: synthetic requests.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::{Answers, Kind, Link, Program};
use crate::error::BenchError;
use crate::wire::Wire;

/// Requests that are sent together, and the answers that are right, in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Batch {
    pub request: Vec<u8>,
    pub expected: Vec<Vec<u8>>,
}

impl Batch {
    /// With the line upon which scripts write their answers out.
    pub(super) fn closed(mut self) -> Batch {
        self.request.extend_from_slice(b".\n");
        self
    }
}

/// What was written, so what each query must answer.
pub trait Model: Send {
    /// What it is.
    fn kind(&self) -> Kind;

    /// The file to execute.
    fn executable(&self) -> Result<PathBuf, BenchError> {
        self.kind().executable()
    }

    /// Its arguments; it may put files into `scratch`.
    fn arguments(&self, scratch: &Path) -> Result<Vec<OsString>, BenchError>;

    /// How one speaks with it.
    fn link(&self, _scratch: &Path) -> Link {
        Link::Stdio
    }

    /// Number of batches that fill it.
    fn fill_batches(&self) -> u32;

    /// One of them. Batches are sent in order.
    fn fill_batch(&self, index: u32) -> Batch;

    /// The batches of interaction number `visit`. Updates among them are remembered as done.
    fn interaction(&mut self, visit: u32) -> Vec<Batch>;

    /// Reads one answer.
    fn read_answer(&self, wire: &mut Wire, into: &mut Vec<u8>) -> Result<(), BenchError> {
        wire.line(into)
    }

    /// The request upon which it ends; the end of its input does the same where this is empty.
    fn goodbye(&self) -> &'static [u8] {
        b""
    }
}

/// A model as a program.
pub struct Modelled {
    model: Box<dyn Model>,
    next: Vec<Batch>,
}

impl Modelled {
    pub fn new(model: Box<dyn Model>) -> Modelled {
        Modelled { model, next: Vec::new() }
    }

    fn exchange(&self, wire: &mut Wire, batch: &Batch) -> Result<Answers, BenchError> {
        wire.send(&batch.request)?;
        let mut answer = Vec::new();
        let mut wrong = 0;
        for expected in &batch.expected {
            self.model.read_answer(wire, &mut answer)?;
            wrong += u64::from(answer != *expected);
        }
        Ok(Answers { count: batch.expected.len() as u64, wrong, digests: Vec::new() })
    }
}

impl Program for Modelled {
    fn kind(&self) -> Kind {
        self.model.kind()
    }

    fn command(&self, scratch: &Path) -> Result<Vec<OsString>, BenchError> {
        let mut command = vec![self.model.executable()?.into_os_string()];
        command.extend(self.model.arguments(scratch)?);
        Ok(command)
    }

    fn link(&self, scratch: &Path) -> Link {
        self.model.link(scratch)
    }

    fn fill(
        &mut self,
        wire: &mut Wire,
        pace: &dyn Fn() -> Result<(), BenchError>,
    ) -> Result<(), BenchError> {
        let mut all = Answers::default();
        for index in 0..self.model.fill_batches() {
            pace()?;
            let answers = self.exchange(wire, &self.model.fill_batch(index))?;
            all.count += answers.count;
            all.wrong += answers.wrong;
        }
        if all.wrong > 0 {
            let program = self.kind().to_string();
            return Err(BenchError::Fill { program, wrong: all.wrong, of: all.count });
        }
        Ok(())
    }

    fn prepare(&mut self, visit: u32) -> Result<(), BenchError> {
        self.next = self.model.interaction(visit);
        Ok(())
    }

    fn visit(&mut self, wire: &mut Wire) -> Result<Answers, BenchError> {
        let mut all = Answers::default();
        for batch in &self.next {
            let answers = self.exchange(wire, batch)?;
            all.count += answers.count;
            all.wrong += answers.wrong;
        }
        Ok(all)
    }

    fn goodbye(&mut self, wire: &mut Wire) {
        // Whoever does not hear it is ended otherwise.
        let _ = wire.send(self.model.goodbye());
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    use super::*;

    /// Expects that every visit is answered with its number, twice.
    struct Numbers;

    impl Model for Numbers {
        fn kind(&self) -> Kind {
            Kind::Redis
        }

        fn arguments(&self, _scratch: &Path) -> Result<Vec<OsString>, BenchError> {
            Ok(Vec::new())
        }

        fn fill_batches(&self) -> u32 {
            1
        }

        fn fill_batch(&self, index: u32) -> Batch {
            let expected = vec![format!("filled {index}").into_bytes()];
            Batch { request: b"fill\n".to_vec(), expected }
        }

        fn interaction(&mut self, visit: u32) -> Vec<Batch> {
            let expected = vec![visit.to_string().into_bytes(); 2];
            vec![Batch { request: b"ask\n".to_vec(), expected }]
        }
    }

    #[test]
    fn wrong_answers_are_noticed() {
        let (ours, mut theirs) = UnixStream::pair().expect("a socket pair");
        let mut wire = Wire::new("test", ours, Duration::from_secs(1)).expect("timeouts");
        theirs.write_all(b"filled 0\n7\n8\nfilled 1\n").expect("sent");
        let mut program = Modelled::new(Box::new(Numbers));
        program.fill(&mut wire, &|| Ok(())).expect("filled");
        program.prepare(7).expect("prepared");
        let answers = program.visit(&mut wire).expect("answers");
        assert_eq!((answers.count, answers.wrong), (2, 1));
        let error = program.fill(&mut wire, &|| Ok(())).expect_err("a wrong answer");
        assert!(matches!(error, BenchError::Fill { wrong: 1, of: 1, .. }), "{error}");
    }
}
