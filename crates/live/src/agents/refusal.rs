//! Why a program is not managed.

use std::io;

use crate::programs::alone::Alone;

/// Why a program cannot be managed.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    #[error("its agent does not answer: {0}")]
    NoAnswer(#[source] io::Error),
    #[error("its agent says: {step} failed with errno {errno}")]
    Refused { step: &'static str, errno: u32 },
    #[error("its agent sent nonsense")]
    Nonsense,
    #[error("it is of user {uid}, whom this daemon does not serve")]
    Foreign { uid: u32 },
    #[error("{0}")]
    LeftAlone(Alone),
    #[error("its memory is that of process {pid}, which is managed already")]
    Shared { pid: u32 },
    #[error("there are too many programs: raise the daemon's limit of descriptors, 'ulimit -n'")]
    TooMany,
    #[error("its user has too many programs that are managed or wait to be")]
    TooManyOfUser,
    #[error("its user has sent too many descriptors that cannot be closed")]
    Unclosed,
    #[error("userfaultfd: {0}")]
    Userfaultfd(#[source] io::Error),
    #[error("{what}: {source}")]
    Proc { what: &'static str, source: io::Error },
    #[error(
        "its user may not read its memory: it has, or had, other rights, or hides it (PR_SET_DUMPABLE)"
    )]
    NotItsUsers,
    #[error("it cannot be served any more")]
    GivenUp,
    #[error("its process runs another program by now")]
    Left,
    #[error("who connected for it has ended")]
    Gone,
    #[error("nobody can tell whether its agent shares its memory (kcmp: {0})")]
    Unknown(#[source] io::Error),
}
