//! A client of language servers (LSP 3.17), as far as an editor with a few open files needs it: files are
//! opened and closed, and questions are asked about places in them.

use std::path::{Path, PathBuf};

use clew_core::Seeded;
use serde_json::{Value, json};

use super::{Answers, framed, source};
use crate::error::BenchError;
use crate::wire::Wire;

/// Questions of each kind at a visit.
const ASKED: usize = 3;
/// Files that stay open, as tabs do.
const TABS: usize = 4;

/// How one learns what is wrong in a file that was just opened.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Diagnostics {
    /// The server says so by itself, once it is through.
    Published,
    /// It is asked; what it says by itself meanwhile may be half of it.
    Asked,
}

/// A file that will be opened, and where in it something will be asked.
struct Opened {
    uri: String,
    text: String,
    places: Vec<Value>,
}

/// The editor's side of a server.
pub struct Editor {
    language: &'static str,
    diagnostics: Diagnostics,
    /// Files that may be opened.
    files: Vec<PathBuf>,
    open: Vec<String>,
    next: Option<Opened>,
    number: u64,
}

impl Editor {
    /// For files of that language, which the server names so.
    pub fn new(language: &'static str, diagnostics: Diagnostics) -> Editor {
        let (files, open) = (Vec::new(), Vec::new());
        Editor { language, diagnostics, files, open, next: None, number: 0 }
    }

    /// Greets the server, which shall work in `root`; `files` are those that will be opened.
    pub fn begin(
        &mut self,
        wire: &mut Wire,
        root: &Path,
        files: Vec<PathBuf>,
    ) -> Result<(), BenchError> {
        if files.is_empty() {
            return Err(wire.nonsense("there is no file that it could open"));
        }
        self.files = files;
        let can = json!({"textDocument": {
            "publishDiagnostics": {}, "diagnostic": {}, "hover": {"contentFormat": ["plaintext"]},
            "documentSymbol": {"hierarchicalDocumentSymbolSupport": true}}});
        let folders = json!([{"uri": uri(root), "name": "work"}]);
        let asked = json!({"processId": null, "rootUri": uri(root), "workspaceFolders": folders,
            "capabilities": can});
        self.ask(wire, "initialize", asked)?;
        tell(wire, "initialized", json!({}))
    }

    /// Chooses another file, and places in it.
    pub fn prepare(&mut self, seeded: &mut Seeded) -> Result<(), BenchError> {
        // What is open is not opened once more; there are more files than tabs.
        let opened = loop {
            let path = &self.files[seeded.below(self.files.len() as u64) as usize];
            let uri = uri(path);
            if self.open.contains(&uri) && self.files.len() > TABS {
                continue;
            }
            let text = source::text(path)?;
            let place =
                |place: source::Place| json!({"line": place.line, "character": place.column});
            let places = source::names(&text, seeded, ASKED).into_iter().map(place).collect();
            break Opened { uri, text, places };
        };
        self.next = Some(opened);
        Ok(())
    }

    /// Opens that file, closes the oldest, waits for what is wrong, and asks what stands there.
    pub fn visit(&mut self, wire: &mut Wire) -> Result<Answers, BenchError> {
        let mut answers = Answers::default();
        let Some(Opened { uri, text, places }) = self.next.take() else { return Ok(answers) };
        if self.open.len() >= TABS {
            let oldest = self.open.remove(0);
            tell(wire, "textDocument/didClose", json!({"textDocument": {"uri": oldest}}))?;
        }
        let document = json!({"uri": uri, "languageId": self.language, "version": 1, "text": text});
        tell(wire, "textDocument/didOpen", json!({"textDocument": document}))?;
        let of_file = json!({"textDocument": {"uri": uri}});
        let wrong = match self.diagnostics {
            Diagnostics::Published => published(wire, &uri)?,
            Diagnostics::Asked => {
                self.ask(wire, "textDocument/diagnostic", of_file.clone())?["items"].take()
            }
        };
        answers.see(wrong.to_string().as_bytes());
        let symbols = self.ask(wire, "textDocument/documentSymbol", of_file.clone())?;
        answers.see(symbols.to_string().as_bytes());
        for question in ["hover", "definition", "documentHighlight"] {
            for place in &places {
                let mut there = of_file.clone();
                there["position"] = place.clone();
                let said = self.ask(wire, &format!("textDocument/{question}"), there)?;
                answers.see(said.to_string().as_bytes());
            }
        }
        self.open.push(uri);
        Ok(answers)
    }

    /// Asks it to end.
    pub fn goodbye(&mut self, wire: &mut Wire) {
        // Whoever does not hear it is ended otherwise.
        let _ = self.ask(wire, "shutdown", Value::Null);
        let _ = tell(wire, "exit", Value::Null);
    }

    /// The answer to a question.
    fn ask(&mut self, wire: &mut Wire, method: &str, params: Value) -> Result<Value, BenchError> {
        self.number += 1;
        let number = self.number;
        let mut message = json!({"jsonrpc": "2.0", "id": number, "method": method});
        if !params.is_null() {
            message["params"] = params;
        }
        framed::send(wire, &message)?;
        loop {
            let mut message = heard(wire)?;
            if message["id"] != number || !message["method"].is_null() {
                continue;
            }
            if !message["error"].is_null() {
                return Err(wire.nonsense(&format!("{method}: {}", message["error"]["message"])));
            }
            return Ok(message["result"].take());
        }
    }
}

/// A file as servers name it.
fn uri(path: &Path) -> String {
    format!("file://{}", path.display())
}

/// Says something that is not answered.
fn tell(wire: &mut Wire, method: &str, params: Value) -> Result<(), BenchError> {
    let mut message = json!({"jsonrpc": "2.0", "method": method});
    if !params.is_null() {
        message["params"] = params;
    }
    framed::send(wire, &message)
}

/// What is wrong in that file, once the server says so.
fn published(wire: &mut Wire, uri: &str) -> Result<Value, BenchError> {
    loop {
        let mut message = heard(wire)?;
        if message["method"] == "textDocument/publishDiagnostics" && message["params"]["uri"] == uri
        {
            return Ok(message["params"]["diagnostics"].take());
        }
    }
}

/// The next message; what the server asks us is answered: there are no settings.
fn heard(wire: &mut Wire) -> Result<Value, BenchError> {
    let message = framed::receive(wire)?;
    if !message["method"].is_null() && !message["id"].is_null() {
        let result = match message["params"]["items"].as_array() {
            Some(items) => vec![Value::Null; items.len()].into(),
            None => Value::Null,
        };
        framed::send(wire, &json!({"jsonrpc": "2.0", "id": message["id"], "result": result}))?;
    }
    Ok(message)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_the_server_asks_is_answered_and_only_the_answer_counts() {
        let (ours, theirs) = UnixStream::pair().expect("a socket pair");
        let patience = Duration::from_millis(500);
        let mut wire = Wire::new("test", ours, patience).expect("timeouts");
        let mut server = Wire::new("server", theirs, patience).expect("timeouts");
        let items = json!({"items": [{}, {}]});
        for message in [
            json!({"method": "window/logMessage", "params": {}}),
            json!({"id": 1, "method": "workspace/configuration", "params": items}),
            json!({"id": 7, "result": "another one's"}),
            json!({"id": 1, "result": "ours"}),
            json!({"id": 2, "error": {"code": 1, "message": "no such thing"}}),
        ] {
            framed::send(&mut server, &message).expect("sent");
        }
        let mut editor = Editor::new("c", Diagnostics::Published);
        assert_eq!(editor.ask(&mut wire, "hover", Value::Null).expect("an answer"), "ours");
        let error = editor.ask(&mut wire, "hover", Value::Null).expect_err("an error");
        assert!(error.to_string().contains("no such thing"), "{error}");
        assert_eq!(framed::receive(&mut server).expect("asked")["method"], "hover");
        let answer = framed::receive(&mut server).expect("answered");
        assert_eq!((&answer["id"], &answer["result"]), (&1.into(), &json!([null, null])));
    }
}
