//! TypeScript's language server over a project that imports a handful of libraries: at each visit its
//! user edits a line and opens another file of theirs, waits for what is wrong in it, and asks what
//! stands there.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use clew_core::Seeded;
use serde_json::{Value, json};

use super::{Answers, Kind, Load, Program, cache, framed, source};
use crate::error::{BenchError, file_error};
use crate::wire::Wire;

/// What the project imports. One of them brings hundreds of files.
const MAIN: &str = "import * as three from 'three';\nimport * as rxjs from 'rxjs';\n\
    import * as typeorm from 'typeorm';\nimport * as zod from 'zod';\nimport * as http from 'http';\n\
    export const all = [three, rxjs, typeorm, zod, http];\n";
/// Packages whose files are opened.
const OPENED: [&str; 4] = ["@types/three", "rxjs/dist/types", "typeorm", "@types/node"];
/// Questions of each kind at a visit.
const ASKED: usize = 3;

/// The editor's side of the server.
pub struct Tsserver {
    seed: u64,
    root: Option<PathBuf>,
    files: Vec<PathBuf>,
    open: Option<PathBuf>,
    main: PathBuf,
    next: Vec<Value>,
    number: u64,
}

impl Tsserver {
    pub fn new(load: Load) -> Tsserver {
        Tsserver {
            seed: Seeded::of(load.seed, &[50]).draw(),
            root: None,
            files: Vec::new(),
            open: None,
            main: PathBuf::new(),
            next: Vec::new(),
            number: 0,
        }
    }

    /// Sends a request and returns its number.
    fn ask(&mut self, wire: &mut Wire, request: &Value) -> Result<u64, BenchError> {
        self.number += 1;
        let mut message = request.clone();
        message["seq"] = self.number.into();
        message["type"] = "request".into();
        wire.send(format!("{message}\n").as_bytes())?;
        Ok(self.number)
    }

    /// The answer's body; what it says by itself meanwhile is nobody's question.
    fn answer(&self, wire: &mut Wire, number: u64) -> Result<Value, BenchError> {
        loop {
            let message = framed::receive(wire)?;
            if message["type"] == "response" && message["request_seq"] == number {
                let said = json!([message["success"], message["message"], message["body"]]);
                return Ok(said);
            }
        }
    }
}

/// Whether a request is answered.
fn is_answered(request: &Value) -> bool {
    !["open", "close", "change"].iter().any(|command| request["command"] == *command)
}

fn request(command: &str, arguments: Value) -> Value {
    json!({"command": command, "arguments": arguments})
}

impl Program for Tsserver {
    fn kind(&self) -> Kind {
        Kind::Tsserver
    }

    fn command(&self, _scratch: &Path) -> Result<Vec<OsString>, BenchError> {
        let script = cache::place("tsserver", "tsserver/node_modules/typescript/lib/tsserver.js")?;
        let options = ["--disableAutomaticTypingAcquisition", "--suppressDiagnosticEvents"];
        // Else its heap may be as large as the limit of its group allows: another one in each arm.
        let heap = OsString::from("--max-old-space-size=2048");
        let mut command = vec![Kind::Tsserver.executable()?.into_os_string(), heap, script.into()];
        command.extend(options.map(OsString::from));
        Ok(command)
    }

    /// The project lies beside the libraries, so that its path is the same for every arm.
    fn fill(
        &mut self,
        wire: &mut Wire,
        pace: &dyn Fn() -> Result<(), BenchError>,
    ) -> Result<(), BenchError> {
        pace()?;
        let root = cache::place("tsserver", "tsserver")?;
        for package in OPENED {
            let directory = root.join("node_modules").join(package);
            self.files.extend(source::files(&directory, ".d.ts", (2_000, 60_000))?);
        }
        self.main = root.join("main.ts");
        let options = json!({"strict": true, "target": "es2022", "module": "nodenext"});
        let project = json!({"compilerOptions": options, "files": ["main.ts"]}).to_string();
        for (name, text) in [("main.ts", MAIN), ("tsconfig.json", project.as_str())] {
            let path = root.join(name);
            fs::write(&path, text).map_err(file_error("write", &path))?;
        }
        self.root = Some(root);
        let opened = [
            request("open", json!({"file": self.main})),
            request("semanticDiagnosticsSync", json!({"file": self.main})),
        ];
        for one in &opened {
            let number = self.ask(wire, one)?;
            if is_answered(one) {
                let said = self.answer(wire, number)?;
                if said[0] != true {
                    return Err(wire.nonsense(&format!("no answer about its project: {said}")));
                }
            }
            pace()?;
        }
        Ok(())
    }

    fn prepare(&mut self, visit: u32) -> Result<(), BenchError> {
        let mut seeded = Seeded::of(self.seed, &[51, u64::from(visit)]);
        let mut all = Vec::new();
        if let Some(before) = self.open.take() {
            all.push(request("close", json!({"file": before})));
        }
        // A line more at the end of one's own file.
        let line = MAIN.lines().count() + 1;
        all.push(request(
            "change",
            json!({"file": self.main, "line": line, "offset": 1, "endLine": line, "endOffset": 1,
                "insertString": format!("export const visit{visit} = {};\n", seeded.below(1000))}),
        ));
        all.push(request("semanticDiagnosticsSync", json!({"file": self.main})));
        let file = self.files[seeded.below(self.files.len() as u64) as usize].clone();
        let text = source::text(&file)?;
        all.push(request("open", json!({"file": file})));
        all.push(request("semanticDiagnosticsSync", json!({"file": file})));
        all.push(request("navtree", json!({"file": file})));
        for command in ["quickinfo", "definition", "completionInfo"] {
            for place in source::names(&text, &mut seeded, ASKED) {
                let (line, offset) = (place.line + 1, place.column + 1);
                let there = json!({"file": file, "line": line, "offset": offset});
                all.push(request(command, there));
            }
        }
        self.open = Some(file);
        self.next = all;
        Ok(())
    }

    fn visit(&mut self, wire: &mut Wire) -> Result<Answers, BenchError> {
        let mut answers = Answers::default();
        for one in std::mem::take(&mut self.next) {
            let number = self.ask(wire, &one)?;
            if is_answered(&one) {
                answers.see(self.answer(wire, number)?.to_string().as_bytes());
            }
        }
        Ok(answers)
    }

    fn goodbye(&mut self, wire: &mut Wire) {
        // Whoever does not hear it is ended otherwise.
        let _ = self.ask(wire, &request("exit", json!({})));
    }
}
