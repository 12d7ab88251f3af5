//! The environment that a process was started with. It says itself where that is, and how long (PR_SET_MM), and may
//! change it.

use std::fs::File;
use std::io::{self, Read};

use clew_agent::protocol::ENV_SOCKET;

/// What is read of it, bytes: more than the kernel passes on by default.
const MOST: u64 = 8 << 20;

/// The socket that agents of process `pid` go to; none if its environment names none.
///
/// # Errors
/// It has ended, or that may not be read.
pub fn agents_socket(pid: u32) -> io::Result<Option<Vec<u8>>> {
    of(pid, ENV_SOCKET)
}

/// What this variable is in the environment of process `pid`, as it was when its program began; none if it is not there.
///
/// # Errors
/// It has ended, or that may not be read.
pub fn of(pid: u32, name: &str) -> io::Result<Option<Vec<u8>>> {
    let all = read(File::open(format!("/proc/{pid}/environ"))?)?;
    Ok(variable(&all, name).map(<[u8]>::to_vec))
}

fn read(from: impl Read) -> io::Result<Vec<u8>> {
    let mut all = Vec::new();
    from.take(MOST).read_to_end(&mut all)?;
    Ok(all)
}

fn variable<'a>(all: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let mut variables = all.split(|byte| *byte == 0);
    variables.find_map(|one| one.strip_prefix(name.as_bytes())?.strip_prefix(b"="))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_of_an_environment_is_read_than_programs_have() {
        let read = |bytes| read(io::repeat(7).take(bytes)).expect("it is there").len() as u64;
        assert_eq!(read(1000), 1000);
        assert_eq!(read(3 * MOST), MOST);
    }

    #[test]
    fn a_variable_is_found_by_all_of_its_name() {
        let all = b"A=1\0CLEW_AGENT_SOCKETS=/no\0XCLEW_AGENT_SOCKET=/no\0CLEW_AGENT_SOCKET=/a=b\0";
        assert_eq!(variable(all, ENV_SOCKET), Some(&b"/a=b"[..]));
        assert_eq!(variable(b"CLEW_AGENT_SOCKET\0", ENV_SOCKET), None);
        assert_eq!(variable(b"", ENV_SOCKET), None);
    }
}
