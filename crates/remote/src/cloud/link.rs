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

/// One link.
pub(super) struct Link {
    stream: TcpStream,
    parser: Parser,
    db: i64,
    patience: Duration,
    /// Bytes that the next answers may have, and those among them that are pages.
    most: u64,
    pages: u64,
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
        self.most = LIST;
        self
    }

    fn ask(&mut self, question: &[u8], answers: usize) -> RedisResult<Vec<Value>> {
        let most = std::mem::replace(&mut self.most, SMALL);
        let pages = std::mem::take(&mut self.pages);
        let moved = (question.len() as u64).saturating_add(pages);
        let takes = Duration::from_millis(moved.saturating_mul(1000) / SLOWEST);
        let mut until = Until::from_now(&self.stream, self.patience + takes);
        until.write_all(question)?;
        let mut from = until.take(most);
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
