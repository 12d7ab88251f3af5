//! What a program's environment needs in a session: the object that is preloaded, where its agent finds the
//! daemon, and who has none. There is no `CLEW_APP`: of which app a program is, its unit tells the daemon.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use clew_agent::except::ENV_EXCEPT;
use clew_agent::protocol::ENV_SOCKET;

use crate::error::SessionError;

/// The loader's own variable.
pub const ENV_PRELOAD: &str = "LD_PRELOAD";

/// All that a session's environment has of Clew.
pub const NAMES: [&str; 3] = [ENV_PRELOAD, ENV_SOCKET, ENV_EXCEPT];

/// What programs of a session are told.
#[derive(Clone, Debug)]
pub struct Environment {
    /// The agent's object.
    pub object: PathBuf,
    /// Where the daemon hears agents.
    pub agents: PathBuf,
    /// The list of exceptions.
    pub exceptions: PathBuf,
}

impl Environment {
    /// As a file of environment.d(5): what was to be preloaded already still is.
    ///
    /// # Errors
    /// Where a path has a character that means something there.
    pub fn for_systemd(&self) -> Result<String, SessionError> {
        let what = "a file of environment.d";
        let object = plain(&self.object, what)?;
        Ok(format!(
            "{ENV_PRELOAD}={object}${{{ENV_PRELOAD}:+:${ENV_PRELOAD}}}\n{ENV_SOCKET}={}\n{ENV_EXCEPT}={}\n",
            plain(&self.agents, what)?,
            plain(&self.exceptions, what)?,
        ))
    }

    /// As lines for a shell, to be evaluated once or again.
    ///
    /// # Errors
    /// As [`Environment::for_systemd`].
    pub fn for_shell(&self) -> Result<String, SessionError> {
        let what = "a shell's line";
        let object = plain(&self.object, what)?;
        Ok(format!(
            "case \":${{{ENV_PRELOAD}:-}}:\" in *:'{object}':*) ;; *) \
             {ENV_PRELOAD}='{object}'\"${{{ENV_PRELOAD}:+:${ENV_PRELOAD}}}\" ;; esac\n\
             {ENV_SOCKET}='{}'\n{ENV_EXCEPT}='{}'\nexport {}\n",
            plain(&self.agents, what)?,
            plain(&self.exceptions, what)?,
            NAMES.join(" "),
        ))
    }

    /// What is left of a value of `LD_PRELOAD` without the object; `None` if the object is not in it.
    pub fn without_object<'a>(&self, preload: &'a str) -> Option<Vec<&'a str>> {
        let entries = || preload.split([':', ' ', '\t', '\n']).filter(|entry| !entry.is_empty());
        let is_object = |entry: &&str| Path::new(entry) == self.object;
        entries()
            .any(|entry| is_object(&entry))
            .then(|| entries().filter(|e| !is_object(e)).collect())
    }
}

/// A path that stands for itself wherever it is written.
pub(crate) fn plain<'a>(path: &'a Path, what: &'static str) -> Result<&'a str, SessionError> {
    let is_plain =
        |byte: &u8| byte.is_ascii_alphanumeric() || b"/._-+@,=~".contains(byte) || *byte >= 0x80;
    let text = path.to_str().filter(|_| path.is_absolute());
    let text = text.filter(|_| path.as_os_str().as_bytes().iter().all(is_plain));
    text.ok_or_else(|| SessionError::Name { path: path.to_path_buf(), what })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(home: &str) -> Environment {
        let at = |name: &str| Path::new(home).join(name);
        Environment { object: at("o.so"), agents: at("clew.agents"), exceptions: at("exceptions") }
    }

    #[test]
    fn what_was_preloaded_stays_and_nothing_is_twice() {
        let text = environment("/home/é").for_shell().expect("plain");
        let sh = |before: &str| {
            let script = format!("{text}{text}echo \"$LD_PRELOAD\"; env | grep ^CLEW | sort");
            let mut shell = std::process::Command::new("sh");
            shell.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
            shell.env("LD_PRELOAD", before).args(["-euc", &script]);
            let output = shell.output().expect("sh runs");
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            String::from_utf8(output.stdout).expect("UTF-8")
        };
        let rest = "CLEW_AGENT_SOCKET=/home/é/clew.agents\nCLEW_EXCEPT=/home/é/exceptions\n";
        assert_eq!(sh(""), format!("/home/é/o.so\n{rest}"));
        assert_eq!(sh("/home/é/o.so"), format!("/home/é/o.so\n{rest}"));
        let both = sh("/none.so");
        assert_eq!(both, format!("/home/é/o.so:/none.so\n{rest}"));
    }

    #[test]
    fn no_path_means_anything_but_itself() {
        for home in ["/a b", "/a$b", "/a'b", "/a\"b", "/a\\b", "/a%b", "/a\nb", "/a#b", "a", "/a;b"]
        {
            let environment = environment(home);
            for written in [environment.for_systemd(), environment.for_shell()] {
                assert!(matches!(written, Err(SessionError::Name { .. })), "{home}: {written:?}");
            }
        }
    }

    #[test]
    fn the_object_is_taken_out_of_what_is_preloaded() {
        let environment = environment("/h");
        assert_eq!(
            environment.without_object("/x.so:/h/o.so  /y.so"),
            Some(vec!["/x.so", "/y.so"])
        );
        assert_eq!(environment.without_object("/h/o.so"), Some(vec![]));
        assert_eq!(environment.without_object("/x.so:/h/o.so2"), None);
    }
}
