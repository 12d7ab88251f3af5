//! Programs that are to be left alone: whose executable is named in a list of their user's. It is read
//! before anything else is done, so what is on it never has an agent.
//!
//! Who cannot be told to be no exception is one. So is, where there is a list, who begins under a filter of system calls
//! (seccomp): starting an agent takes calls for which it might be killed, and in a whole session nobody has asked for an agent.

use crate::sys::{close, errno, nr, syscall4};

/// Environment variable that names the list: a file with the name of an executable a line; lines that begin
/// with `#` say nothing.
pub const ENV_EXCEPT: &str = "CLEW_EXCEPT";
/// Most bytes of a list; of a longer one everybody is an exception.
pub const MAX_LIST: usize = 8 << 10;
/// Most bytes of what the kernel calls a process (`comm`), its end included.
const COMM: usize = 16;

/// Whether the list at `path` names this process: by its executable's file, or by the name that it was
/// started by, of which the kernel keeps 15 bytes. A list that is not there names nobody.
///
/// # Safety
/// `path` is followed by a zero.
pub(crate) unsafe fn is_excepted(path: &[u8]) -> bool {
    const AT_FDCWD: usize = -100isize as usize;
    // Nothing that lies in its place makes the program wait.
    const O_CLOEXEC_NONBLOCK: usize = 0o2004000;
    const PR_GET_NAME: usize = 16;
    let (mut list, mut file, mut comm) = ([0; MAX_LIST], [0; 4096], [0; COMM]);
    if is_filtered() {
        return true;
    }
    // SAFETY: the path ends with a zero, as the caller says; buffers are as long as stated.
    let (list, file) = unsafe {
        let name = path.as_ptr() as usize;
        let fd = syscall4(nr::OPENAT, AT_FDCWD, name, O_CLOEXEC_NONBLOCK, 0);
        if fd < 0 {
            return fd != -errno::ENOENT && fd != -errno::ENOTDIR;
        }
        let read = read_all(fd as i32, &mut list);
        close(fd as i32);
        let (exe, to) = (c"/proc/self/exe".as_ptr() as usize, file.as_mut_ptr() as usize);
        let len = syscall4(nr::READLINKAT, AT_FDCWD, exe, to, file.len());
        syscall4(nr::PRCTL, PR_GET_NAME, comm.as_mut_ptr() as usize, 0, 0);
        (read, file.get(..len.max(0) as usize).unwrap_or(&[]))
    };
    let comm = &comm[..comm.iter().position(|byte| *byte == 0).unwrap_or(COMM)];
    list.is_none_or(|list| names(list, file, comm))
}

/// Whether a filter of system calls is there already. It is asked by calls that the dynamic loader has just made itself.
fn is_filtered() -> bool {
    const AT_FDCWD: usize = -100isize as usize;
    const O_CLOEXEC: usize = 0o2000000;
    let mut status = [0; 8 << 10];
    // SAFETY: a constant string, and a buffer that is as long as stated.
    let fd = unsafe {
        let path = c"/proc/self/status".as_ptr() as usize;
        syscall4(nr::OPENAT, AT_FDCWD, path, O_CLOEXEC, 0)
    };
    // Without /proc, or a descriptor, there is no agent either.
    if fd < 0 {
        return true;
    }
    let read = read_all(fd as i32, &mut status);
    close(fd as i32);
    read.is_none_or(says_filtered)
}

fn says_filtered(status: &[u8]) -> bool {
    let name = b"Seccomp:\t";
    let line = status.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(name));
    // A kernel that has no filters says nothing.
    line.is_some_and(|mode| mode != b"0")
}

/// Whether a list names an executable by its path, or by the name that the kernel has cut to 15 bytes.
fn names(list: &[u8], file: &[u8], comm: &[u8]) -> bool {
    let file = file.rsplit(|byte| *byte == b'/').next().unwrap_or(file);
    let file = file.strip_suffix(b" (deleted)").unwrap_or(file);
    let mut lines = list.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    lines.any(|line| {
        let cut = line.get(..COMM - 1).unwrap_or(line);
        !line.is_empty() && line[0] != b'#' && (line == file || cut == comm)
    })
}

/// All of a file; `None` if it cannot be read, or has no end within the buffer.
fn read_all(fd: i32, to: &mut [u8]) -> Option<&[u8]> {
    let mut len = 0;
    while let Some(room) = to.get_mut(len..).filter(|room| !room.is_empty()) {
        // SAFETY: a buffer that is as long as stated.
        match unsafe { syscall4(nr::READ, fd as usize, room.as_mut_ptr() as usize, room.len(), 0) }
        {
            0 => return to.get(..len),
            some @ 1.. => len += some as usize,
            failed if failed == -errno::EINTR => {}
            _ => return None,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn a_filter_is_seen_in_what_the_kernel_says() {
        assert!(says_filtered(b"Name:\tx\nNoNewPrivs:\t1\nSeccomp:\t2\nSeccomp_filters:\t1\n"));
        assert!(!says_filtered(b"Name:\tx\nSeccomp:\t0\nSeccomp_filters:\t0\n"));
        assert!(!says_filtered(b"Name:\tSeccomp:\t2\n"));
        assert!(!is_filtered());
    }

    #[test]
    fn a_list_names_executables_by_file_and_by_the_name_they_were_started_by() {
        let names = |list: &str, file: &str, comm: &str| {
            names(list.as_bytes(), file.as_bytes(), comm.as_bytes())
        };
        assert!(names("sway\nsteam\n", "/usr/bin/steam", "x"));
        assert!(names("sway\nsteam", "/usr/bin/steam (deleted)", "x"));
        // A script is its interpreter by its file.
        assert!(names("meld", "/usr/bin/python3.12", "meld"));
        assert!(names("  a-very-long-name-of-a-program  ", "/x", "a-very-long-nam"));
        for list in ["", "\n\n", "#steam", "stea", "steamx", "/usr/bin/steam", "st eam"] {
            assert!(!names(list, "/usr/bin/steam", "steam"), "{list:?}");
        }
        assert!(!names("\n", "", ""), "nobody's name is empty");
    }

    #[test]
    fn who_cannot_be_told_to_be_no_exception_is_one() {
        let dir = tempfile();
        let is_excepted = |path: &std::path::Path| {
            let path = CString::new(path.as_os_str().as_bytes()).expect("no zero");
            // SAFETY: a C string.
            unsafe { is_excepted(path.to_bytes()) }
        };
        let list = dir.join("list");
        assert!(!is_excepted(&list), "there is none");
        std::fs::write(&list, "nobody\n").expect("written");
        assert!(!is_excepted(&list));
        let own = std::env::current_exe().expect("this program");
        let name = own.file_name().expect("a name").as_bytes();
        std::fs::write(&list, [b"nobody\n", name].concat()).expect("written");
        assert!(is_excepted(&list));
        std::fs::write(&list, vec![b'\n'; MAX_LIST]).expect("written");
        assert!(is_excepted(&list), "nobody knows what else it says");
        assert!(is_excepted(&dir), "a directory cannot be read");
        std::fs::remove_dir_all(&dir).expect("it is ours");
    }

    fn tempfile() -> std::path::PathBuf {
        let dir = std::env::temp_dir().join(format!("clew-except-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a directory");
        dir
    }
}
