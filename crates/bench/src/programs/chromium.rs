//! A browser: Chromium with tabs that have an editor each (Monaco, with TypeScript's own compiler in a
//! worker), driven over its DevTools protocol as tests of web pages do. At each visit its user goes to a
//! tab, types a line in one text, reads through another, and the page is drawn.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use clew_core::Seeded;
use serde_json::{Value, json};

use super::{Answers, Kind, Load, Program, cache, source};
use crate::error::{BenchError, file_error};
use crate::wire::Wire;

/// An editor; `VS` is where its scripts are.
const PAGE: &str = include_str!("chromium.html");
/// What a tab takes, about.
const TAB_BYTES: u64 = 80 << 20;
/// Texts that are open in a tab.
const TEXTS: u64 = 6;
/// Requests come in by descriptor 3, answers go out by 4. Its own sandbox takes no root, nor preloaded objects.
const STARTED: &str = "exec \"$@\" 3<&0 4>&1 >/dev/null";
const OPTIONS: [&str; 11] = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--allow-file-access-from-files",
    "--window-size=1600,1000",
    "--remote-debugging-pipe",
];

/// A tab: the target, and the session in which it is spoken to.
struct Tab {
    target: String,
    session: String,
}

/// The user's side of a browser.
pub struct Chromium {
    seed: u64,
    tabs_wanted: u64,
    page: std::cell::OnceCell<PathBuf>,
    tabs: Vec<Tab>,
    next: (usize, Vec<String>),
    number: u64,
}

impl Chromium {
    pub fn new(load: Load) -> Chromium {
        Chromium {
            seed: Seeded::of(load.seed, &[110]).draw(),
            tabs_wanted: (load.data_bytes / TAB_BYTES).max(1),
            page: std::cell::OnceCell::new(),
            tabs: Vec::new(),
            next: (0, Vec::new()),
            number: 0,
        }
    }

    /// Asks the browser, or a tab of it, and waits for the answer; what it says by itself meanwhile is
    /// nobody's question.
    fn call(
        &mut self,
        wire: &mut Wire,
        session: Option<&str>,
        method: &str,
        given: &Value,
    ) -> Result<Value, BenchError> {
        self.number += 1;
        let mut message = json!({"id": self.number, "method": method, "params": given});
        if let Some(session) = session {
            message["sessionId"] = session.into();
        }
        wire.send(format!("{message}\0").as_bytes())?;
        let mut said = Vec::new();
        loop {
            wire.until(0, &mut said)?;
            let answer: Value = serde_json::from_slice(&said)
                .map_err(|_| wire.nonsense("a message that is no JSON"))?;
            if answer["id"] == self.number {
                return Ok(answer);
            }
        }
    }

    /// What a script in that tab says in the end.
    fn run(&mut self, wire: &mut Wire, tab: usize, script: &str) -> Result<Value, BenchError> {
        let given = json!({"expression": script, "awaitPromise": true, "returnByValue": true});
        let session = self.tabs[tab].session.clone();
        let answer = self.call(wire, Some(&session), "Runtime.evaluate", &given)?;
        let said = &answer["result"]["result"]["value"];
        let has_failed = said.is_null() || !answer["result"]["exceptionDetails"].is_null();
        if has_failed {
            return Err(BenchError::Refused { program: "chromium", reason: answer.to_string() });
        }
        Ok(said.clone())
    }

    /// Goes to that tab: what is behind is not drawn.
    fn show(&mut self, wire: &mut Wire, tab: usize) -> Result<(), BenchError> {
        let target = json!({"targetId": self.tabs[tab].target});
        self.call(wire, None, "Target.activateTarget", &target).map(|_| ())
    }

    fn open_tab(&mut self, wire: &mut Wire) -> Result<usize, BenchError> {
        let text = |answer: &Value, name: &str| match answer["result"][name].as_str() {
            Some(text) => Ok(text.to_string()),
            None => {
                let reason = answer.to_string();
                Err(BenchError::Refused { program: "chromium", reason })
            }
        };
        let page = self.page.get().cloned().unwrap_or_default();
        let page = json!({"url": format!("file://{}", page.display())});
        let target = text(&self.call(wire, None, "Target.createTarget", &page)?, "targetId")?;
        let given = json!({"targetId": target, "flatten": true});
        let answer = self.call(wire, None, "Target.attachToTarget", &given)?;
        self.tabs.push(Tab { target, session: text(&answer, "sessionId")? });
        let tab = self.tabs.len() - 1;
        self.show(wire, tab)?;
        // Its scripts may not have begun.
        let begun = "document.readyState == 'complete' && typeof ready == 'object'";
        while self.run(wire, tab, begun)? != true {
            std::thread::sleep(std::time::Duration::from_millis(20));
            crate::interrupt::check()?;
        }
        self.run(wire, tab, "ready")?;
        Ok(tab)
    }
}

impl Program for Chromium {
    fn kind(&self) -> Kind {
        Kind::Chromium
    }

    fn command(&self, scratch: &Path) -> Result<Vec<OsString>, BenchError> {
        let scripts = cache::place("chromium", "chromium/node_modules/monaco-editor/min/vs")?;
        let page = scratch.join("editor.html");
        let text = PAGE.replace("VS", &format!("file://{}", scripts.display()));
        fs::write(&page, text).map_err(file_error("write", &page))?;
        let _ = self.page.set(page);
        let profile = format!("--user-data-dir={}", scratch.join("profile").display());
        let mut command: Vec<OsString> =
            ["/bin/sh", "-c", STARTED, "sh"].map(OsString::from).into();
        command.push(Kind::Chromium.executable()?.into());
        command.extend(OPTIONS.map(OsString::from));
        command.push(profile.into());
        Ok(command)
    }

    /// Nothing of a user's, and no desktop's bus.
    fn environment(&self, scratch: &Path) -> Vec<(&'static str, OsString)> {
        vec![
            ("HOME", scratch.into()),
            ("TMPDIR", scratch.into()),
            ("DBUS_SESSION_BUS_ADDRESS", "unix:path=/nonexistent".into()),
        ]
    }

    fn fill(
        &mut self,
        wire: &mut Wire,
        pace: &dyn Fn() -> Result<(), BenchError>,
    ) -> Result<(), BenchError> {
        let libraries = cache::place("chromium", "tsserver/node_modules")?;
        let files = source::files(&libraries, ".d.ts", (20_000, 100_000))?;
        if files.is_empty() {
            return Err(BenchError::NotFetched { program: "chromium", path: libraries });
        }
        let mut seeded = Seeded::of(self.seed, &[111]);
        for _ in 0..self.tabs_wanted {
            pace()?;
            let tab = self.open_tab(wire)?;
            for number in 0..TEXTS {
                let text = source::text(&files[seeded.below(files.len() as u64) as usize])?;
                self.run(wire, tab, &format!("open('{number}.ts', {})", Value::from(text)))?;
            }
        }
        Ok(())
    }

    fn prepare(&mut self, visit: u32) -> Result<(), BenchError> {
        let mut seeded = Seeded::of(self.seed, &[112, u64::from(visit)]);
        let tab = seeded.below(self.tabs_wanted) as usize;
        let (typed, read) = (seeded.below(TEXTS), seeded.below(TEXTS));
        let line = format!("const at{visit} = new Map<string, number>([]); at{visit}.");
        let scripts = [format!("type('{typed}.ts', '{line}')"), format!("read('{read}.ts')")];
        self.next = (tab, scripts.into());
        Ok(())
    }

    fn visit(&mut self, wire: &mut Wire) -> Result<Answers, BenchError> {
        let mut answers = Answers::default();
        let (tab, scripts) = std::mem::take(&mut self.next);
        self.show(wire, tab)?;
        for script in scripts {
            answers.see(self.run(wire, tab, &script)?.to_string().as_bytes());
        }
        let session = self.tabs[tab].session.clone();
        let drawn = self.call(wire, Some(&session), "Page.captureScreenshot", &json!({}))?;
        match drawn["result"]["data"].as_str() {
            Some(_) => Ok(answers),
            None => Err(wire.nonsense("no picture of the page")),
        }
    }

    fn goodbye(&mut self, wire: &mut Wire) {
        // Whoever does not hear it is ended otherwise.
        let _ = self.call(wire, None, "Browser.close", &json!({}));
    }
}
