//! A notebook: the real ipykernel with tables of pandas, spoken to as notebooks do (Jupyter's messages,
//! 5.3, over ZeroMQ). At each visit its user runs two other cells; in front, it goes over all of its
//! data again.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use clew_core::Seeded;
use serde_json::{Value, json};

use super::{Answers, Kind, Link, Load, Program, zmtp};
use crate::error::{BenchError, file_error};
use crate::wire::Wire;

/// What the first cell defines.
const SETUP: &str = include_str!("jupyter.py");
/// What a row takes: five columns of eight bytes and the text of a note.
const ROW_BYTES: u64 = 110;
const TABLES: u64 = 4;
const CELLS: usize = 2;
/// What one may want to know of a table; `T` and `N` are replaced by a table and a number.
const ASKED: [&str; 10] = [
    "T.groupby('place')['price'].agg(['mean', 'max', 'std'])",
    "T[T.price > N].groupby('count').size()",
    "T.sort_values('price').tail(N)[['who', 'price']]",
    "T.groupby('who')['price'].sum().nlargest(N)",
    "T.set_index('when')['price'].resample('7D').sum()",
    "T['note'].str.contains('N').sum()",
    "T.pivot_table(index='place', columns='count', values='price', aggfunc='median')",
    "T['price'].rolling(N + 2).mean().describe()",
    "T.head(N * 500).merge(T.tail(N * 500), on='who').shape[0]",
    "T['price'].quantile([0.1, 0.5, 0.9, N / 1000])",
];
/// A pass over everything.
const PASS: &str = "sum(float((t['price'] * t['count'] + N).sum()) + int(t['who'].max()) + \
    int(t['note'].str.len().sum()) for t in tables)";

/// The notebook's side of a kernel.
pub struct Jupyter {
    seed: u64,
    rows: u64,
    is_front: bool,
    next: Vec<String>,
    number: u64,
}

impl Jupyter {
    pub fn new(load: Load) -> Jupyter {
        Jupyter {
            seed: Seeded::of(load.seed, &[60]).draw() >> 33,
            rows: (load.data_bytes / ROW_BYTES / TABLES).max(1_000),
            is_front: load.is_front,
            next: Vec::new(),
            number: 0,
        }
    }

    fn send(&mut self, wire: &mut Wire, kind: &str, content: &Value) -> Result<String, BenchError> {
        self.number += 1;
        let id = format!("request-{}", self.number);
        let header = json!({"msg_id": id, "session": "clew", "username": "clew", "date": "",
            "msg_type": kind, "version": "5.3"});
        // Nobody else reaches the socket: messages are not signed.
        let parts = ["<IDS|MSG>", "", &header.to_string(), "{}", "{}", &content.to_string()];
        zmtp::send(wire, &parts.map(|part| part.as_bytes().to_vec()))?;
        Ok(id)
    }

    /// Runs a cell; what `answer` is after it, as the kernel writes it.
    fn run(&mut self, wire: &mut Wire, code: &str, answer: &str) -> Result<String, BenchError> {
        let content = json!({"code": code, "silent": false, "store_history": false,
            "allow_stdin": false, "stop_on_error": true, "user_expressions": {"answer": answer}});
        let id = self.send(wire, "execute_request", &content)?;
        loop {
            let content = reply(&zmtp::receive(wire)?, &id);
            let Some(content) = content else { continue };
            let said = &content["user_expressions"]["answer"];
            if content["status"] != "ok" || said["status"] != "ok" {
                let text = if content["status"] == "ok" { said } else { &content };
                let reason = format!("{}: {}", text["ename"], text["evalue"]);
                return Err(BenchError::Refused { program: "jupyter", reason });
            }
            return Ok(said["data"]["text/plain"].as_str().unwrap_or_default().to_string());
        }
    }
}

/// The content of a message that answers request `id`.
fn reply(frames: &[Vec<u8>], id: &str) -> Option<Value> {
    let begin = frames.iter().position(|frame| frame == b"<IDS|MSG>")?;
    let part = |number: usize| serde_json::from_slice::<Value>(frames.get(begin + number)?).ok();
    let is_reply = part(2)?["msg_type"] == "execute_reply" && part(3)?["msg_id"] == id;
    is_reply.then(|| part(5)).flatten()
}

fn socket(scratch: &Path) -> PathBuf {
    scratch.join("jupyter")
}

impl Program for Jupyter {
    fn kind(&self) -> Kind {
        Kind::Jupyter
    }

    fn command(&self, scratch: &Path) -> Result<Vec<OsString>, BenchError> {
        let connection = json!({"transport": "ipc", "ip": socket(scratch), "key": "",
            "signature_scheme": "hmac-sha256", "shell_port": 1, "iopub_port": 2, "stdin_port": 3,
            "control_port": 4, "hb_port": 5});
        let file = scratch.join("jupyter.json");
        fs::write(&file, connection.to_string()).map_err(file_error("write", &file))?;
        let mut command = vec![Kind::Jupyter.executable()?.into_os_string()];
        command.extend(["-m", "ipykernel_launcher", "-f"].map(OsString::from));
        command.push(file.into());
        command.push("--HistoryManager.enabled=False".into());
        Ok(command)
    }

    /// What a kernel keeps of its user lies beside it; as many threads in each arm.
    fn environment(&self, scratch: &Path) -> Vec<(&'static str, OsString)> {
        vec![
            ("IPYTHONDIR", scratch.join("ipython").into()),
            ("JUPYTER_CONFIG_DIR", scratch.join("jupyter-config").into()),
            ("PYTHONHASHSEED", "0".into()),
            ("OPENBLAS_NUM_THREADS", "1".into()),
        ]
    }

    fn link(&self, scratch: &Path) -> Link {
        let path = socket(scratch);
        Link::Socket(PathBuf::from(format!("{}-1", path.display())))
    }

    fn fill(
        &mut self,
        wire: &mut Wire,
        pace: &dyn Fn() -> Result<(), BenchError>,
    ) -> Result<(), BenchError> {
        zmtp::greet(wire)?;
        self.run(wire, SETUP, "1")?;
        self.run(wire, "tables = []", "1")?;
        for table in 0..TABLES {
            pace()?;
            let code = format!("tables.append(made({}, {}))", self.seed + table, self.rows);
            self.run(wire, &code, "len(tables)")?;
        }
        Ok(())
    }

    fn prepare(&mut self, visit: u32) -> Result<(), BenchError> {
        let mut seeded = Seeded::of(self.seed, &[61, u64::from(visit)]);
        let mut cell = || {
            let asked = ASKED[seeded.below(ASKED.len() as u64) as usize];
            let table = format!("tables[{}]", seeded.below(TABLES));
            // Numbers first: the name of a table has no capital N.
            asked.replace('N', &(seeded.below(60) + 5).to_string()).replace('T', &table)
        };
        self.next = match self.is_front {
            true => vec![PASS.replace('N', &(visit + 1).to_string())],
            false => (0..CELLS).map(|_| cell()).collect(),
        };
        Ok(())
    }

    fn visit(&mut self, wire: &mut Wire) -> Result<Answers, BenchError> {
        let mut answers = Answers::default();
        for cell in std::mem::take(&mut self.next) {
            let said = self.run(wire, &format!("result = {cell}"), "told(result)")?;
            answers.see(said.as_bytes());
        }
        Ok(answers)
    }

    fn goodbye(&mut self, wire: &mut Wire) {
        // Whoever does not hear it is ended otherwise.
        let _ = self.send(wire, "shutdown_request", &json!({"restart": false}));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_answer_to_the_question_counts() {
        let frames = |kind: &str, id: &str| -> Vec<Vec<u8>> {
            let header = json!({"msg_type": kind}).to_string();
            let parent = json!({"msg_id": id}).to_string();
            ["identity", "<IDS|MSG>", "", &header, &parent, "{}", "{\"status\": \"ok\"}"]
                .map(|part| part.as_bytes().to_vec())
                .to_vec()
        };
        assert_eq!(reply(&frames("execute_reply", "a"), "a"), Some(json!({"status": "ok"})));
        assert_eq!(reply(&frames("execute_reply", "b"), "a"), None);
        assert_eq!(reply(&frames("status", "a"), "a"), None);
        assert_eq!(reply(&frames("execute_reply", "a")[..4], "a"), None);
        assert_eq!(reply(&[], "a"), None);
    }
}
