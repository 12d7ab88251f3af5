//! A link to a Redis server that is no friend: every answer has an end in time and in bytes.
//!
//! The commands and how they are written and read are the `redis` crate's. Its own connection has a limit for each read of
//! the socket only, so that a server that says a byte at a time holds who asks for as long as it likes.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use redis::{ConnectionAddr, ConnectionInfo, ConnectionLike, Parser, RedisResult, Value};

use crate::lookup::Lookup;
use crate::secure::Until;

/// Bytes a second that are waited for: who has more to say has longer.
const SLOWEST: u64 = 2 << 20;
/// Bytes of an answer that has no page in it, and of what is around one that has.
const SMALL: u64 = 256 << 10;
/// Bytes of an answer that lists what others do at the server, too.
const LIST: u64 = 8 << 20;
/// Values of an answer, and of one that is a list: a value of three bytes takes some sixty when it is read.
const VALUES: u32 = 1 << 10;
const LISTED: u32 = 1 << 16;

/// One link.
pub(super) struct Link {
    stream: TcpStream,
    parser: Parser,
    db: i64,
    patience: Duration,
    /// Bytes that the next answers may have, and those among them that are pages.
    most: u64,
    pages: u64,
    /// Values that these may have, beside one each.
    values: u32,
    /// Where in an answer what was read ends: the parser may have the beginning of the next.
    is_in: In,
    is_open: bool,
}

impl Link {
    /// To the server of `info`, a question of whose is answered within `patience` and the time that its bytes take.
    ///
    /// # Errors
    /// It cannot be reached, or lets nobody in.
    pub(super) fn new(
        info: &ConnectionInfo,
        lookup: &mut Lookup,
        patience: Duration,
    ) -> RedisResult<Link> {
        let stream = lookup.connect(patience)?;
        stream.set_nodelay(true)?;
        let settings = info.redis_settings();
        let mut link = Link {
            stream,
            parser: Parser::new(),
            db: settings.db(),
            patience,
            most: SMALL,
            pages: 0,
            values: VALUES,
            is_in: In::default(),
            is_open: true,
        };
        if let Some(password) = settings.password() {
            let name = settings.username().filter(|name| !name.is_empty());
            redis::cmd("AUTH").arg(name).arg(password).exec(&mut link)?;
        }
        if link.db != 0 {
            redis::cmd("SELECT").arg(link.db).exec(&mut link)?;
        }
        Ok(link)
    }

    /// The next answers have so many bytes of pages.
    pub(super) fn with_pages(&mut self, bytes: u64) -> &mut Link {
        (self.most, self.pages) = (SMALL.saturating_add(bytes), bytes);
        self
    }

    /// The next answer is a list.
    pub(super) fn with_list(&mut self) -> &mut Link {
        (self.most, self.values) = (LIST, LISTED);
        self
    }

    fn ask(&mut self, question: &[u8], answers: usize) -> RedisResult<Vec<Value>> {
        let most = std::mem::replace(&mut self.most, SMALL);
        let pages = std::mem::take(&mut self.pages);
        let values = std::mem::replace(&mut self.values, VALUES).saturating_add(answers as u32);
        let moved = (question.len() as u64).saturating_add(pages);
        let takes = Duration::from_millis(moved.saturating_mul(1000) / SLOWEST);
        let mut until = Until::from_now(&self.stream, self.patience + takes);
        until.write_all(question)?;
        let mut from = Counted { from: until.take(most), values, is_in: &mut self.is_in };
        (0..answers).map(|_| self.parser.parse_value(&mut from)).collect()
    }

    /// What was read of an answer that did not come whole would be the beginning of the next.
    fn ask_while_open(&mut self, question: &[u8], answers: usize) -> RedisResult<Vec<Value>> {
        if !self.is_open {
            return Err(io::Error::from(ErrorKind::NotConnected).into());
        }
        let answered = self.ask(question, answers);
        self.is_open = answered.is_ok();
        answered
    }
}

/// What is read of answers, of no more than so many values.
struct Counted<'a, R> {
    from: R,
    values: u32,
    is_in: &'a mut In,
}

/// What comes next of an answer.
enum In {
    /// A line that begins a value, as far as it has come and says what that is.
    Line(Vec<u8>),
    /// So many bytes of one.
    Bytes(u64),
}

impl Default for In {
    fn default() -> In {
        In::Line(Vec::new())
    }
}

impl In {
    /// Bytes of a line that says how long a value is, at most.
    const LINE: usize = 24;

    /// Goes past `bytes`; how many values end or begin in them.
    fn pass(&mut self, mut bytes: &[u8]) -> u32 {
        let mut values = 0;
        while !bytes.is_empty() {
            match self {
                In::Bytes(left) => {
                    let passed = (*left).min(bytes.len() as u64);
                    bytes = &bytes[passed as usize..];
                    *left -= passed;
                    if *left == 0 {
                        *self = In::default();
                    }
                }
                In::Line(line) => {
                    let end = bytes.iter().position(|byte| *byte == b'\n');
                    let (of_line, rest) = bytes.split_at(end.map_or(bytes.len(), |end| end + 1));
                    let room = In::LINE.saturating_sub(line.len()).min(of_line.len());
                    line.extend_from_slice(&of_line[..room]);
                    bytes = rest;
                    if end.is_some() {
                        values += 1;
                        // The bytes of a string, and what ends them.
                        let bytes = string_bytes(line).map_or(0, |bytes| bytes.saturating_add(2));
                        *self = if bytes > 0 { In::Bytes(bytes) } else { In::default() };
                    }
                }
            }
        }
        values
    }
}

/// How long a string is that this line begins, if it begins one of so many bytes.
fn string_bytes(line: &[u8]) -> Option<u64> {
    let number = line.strip_prefix(b"$").or(line.strip_prefix(b"=")).or(line.strip_prefix(b"!"))?;
    std::str::from_utf8(number.trim_ascii()).ok()?.parse().ok()
}

impl<R: io::Read> io::Read for Counted<'_, R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let read = self.from.read(to)?;
        let values = self.is_in.pass(&to[..read]);
        self.values = self.values.checked_sub(values).ok_or_else(|| {
            io::Error::new(ErrorKind::InvalidData, "more values than were asked for")
        })?;
        Ok(read)
    }
}

/// Where the server is of which this is the address.
///
/// # Errors
/// It is none of a server that a link can be made to.
pub(super) fn lookup(addr: &ConnectionAddr) -> Result<Lookup, &'static str> {
    match addr {
        ConnectionAddr::Tcp(host, port) if host.contains(':') => {
            Ok(Lookup::new(&format!("[{host}]:{port}")))
        }
        ConnectionAddr::Tcp(host, port) => Ok(Lookup::new(&format!("{host}:{port}"))),
        _ => Err("what is understood is redis://HOST:PORT"),
    }
}

impl ConnectionLike for Link {
    fn req_packed_command(&mut self, cmd: &[u8]) -> RedisResult<Value> {
        let mut answers = self.ask_while_open(cmd, 1)?;
        answers.pop().ok_or_else(|| io::Error::from(ErrorKind::UnexpectedEof).into())
    }

    fn req_packed_commands(
        &mut self,
        cmd: &[u8],
        offset: usize,
        count: usize,
    ) -> RedisResult<Vec<Value>> {
        Ok(self.ask_while_open(cmd, offset + count)?.split_off(offset))
    }

    fn get_db(&self) -> i64 {
        self.db
    }

    fn check_connection(&mut self) -> bool {
        redis::cmd("PING").exec(self).is_ok()
    }

    fn is_open(&self) -> bool {
        self.is_open
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(answer: &[u8], values: u32) -> RedisResult<Value> {
        let from = Counted { from: answer, values, is_in: &mut In::default() };
        // As few bytes at a time as it likes.
        Parser::new().parse_value(io::BufReader::with_capacity(3, from))
    }

    /// Of 8 MB a server can make some millions of values, of 60 bytes each.
    #[test]
    fn an_answer_has_so_many_values_and_no_more() {
        let text = b"line\r\nline\n\n$3\r\n";
        let page = [format!("${}\r\n", text.len()).as_bytes(), text, b"\r\n"].concat();
        assert_eq!(parse(&page, 1).unwrap(), Value::BulkString(text.to_vec()));
        let list = [b"*4\r\n:7\r\n$-1\r\n+OK\r\n", &page[..]].concat();
        let Value::Array(four) = parse(&list, 5).unwrap() else { panic!("no list") };
        assert_eq!(four.len(), 4);
        for (answer, values) in [
            (list.clone(), 4),
            ([&b"*1000\r\n"[..], &b"_\r\n".repeat(1000)].concat(), 1000),
            (b"*1\r\n".repeat(50), 40),
            (b"$0\r\n\r\n".repeat(50), 0),
        ] {
            let error = parse(&answer, values).expect_err("it is too much");
            assert!(error.to_string().contains("more values"), "{error}");
        }
    }

    /// It says the beginning of an answer before it is asked, in which what comes then looks like a long string.
    #[test]
    fn what_was_said_too_early_is_no_way_around_that() {
        let (mut parser, mut is_in) = (Parser::new(), In::default());
        let mut ask = |answer: &[u8]| {
            parser.parse_value(&mut Counted { from: answer, values: 10, is_in: &mut is_in })
        };
        assert_eq!(ask(b"+OK\r\n*101\r\n$10\r\n").unwrap(), Value::Okay);
        let rest = [&b"$8000000\r\n\r\n"[..], &b"_\r\n".repeat(100)].concat();
        let error = ask(&rest).expect_err("it is too much");
        assert!(error.to_string().contains("more values"), "{error}");
    }
}
