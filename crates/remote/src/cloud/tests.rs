//! A borrower of a Redis server whose links are cut while the server is slow to read what they had sent.
//!
//! The server is the tests' own: as much of Redis as is asked for, each link read by a thread of its own, and one that is
//! killed carries out nothing more. A real one: `donors::*` of the command's tests.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::channel;

use clew_store::flash::device::{Blocks, HEAD_BYTES};

use super::*;
use crate::link::tests::until;
use crate::proxy::{Act, Proxy};

#[derive(Default)]
struct Has {
    keys: BTreeMap<String, Vec<u8>>,
    /// Who is connected, and how they call themselves.
    clients: BTreeMap<u64, (TcpStream, String)>,
    made: u64,
    /// Nobody may end somebody else's link.
    kills_nobody: bool,
    /// It says a great deal wherever it says something of its own.
    is_wordy: bool,
    /// What it says when it is asked for a page: a byte of it at a time, and never all.
    slowly: Option<&'static [u8]>,
    /// So often it was asked which keys there are; it names one more each time, and says that there are others.
    endless: Option<u64>,
}

/// As much of a Redis server as is needed here.
struct Server {
    address: SocketAddr,
    has: Arc<Mutex<Has>>,
}

impl Server {
    fn new() -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, has) = (listener.local_addr().unwrap(), Arc::new(Mutex::new(Has::default())));
        let serves = Arc::clone(&has);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let has = Arc::clone(&serves);
                std::thread::spawn(move || has_served(&has, &stream));
            }
        });
        Server { address, has }
    }

    fn clients(&self) -> usize {
        self.has.lock().clients.len()
    }
}

/// Until the link ends, or is ended.
fn has_served(has: &Mutex<Has>, stream: &TcpStream) {
    let number = {
        let mut has = has.lock();
        has.made += 1;
        let number = has.made;
        has.clients.insert(number, (stream.try_clone().unwrap(), String::new()));
        number
    };
    let (mut from, mut to) = (BufReader::new(stream), stream);
    while let Some(words) = command(&mut from) {
        let mut has = has.lock();
        if !has.clients.contains_key(&number) {
            return;
        }
        let slowly = has.slowly.filter(|_| words[0] == b"GETRANGE");
        if let Some(begin) = slowly {
            drop(has);
            let mut says = begin.iter().chain(std::iter::repeat(&b'1'));
            while says.next().is_some_and(|byte| to.write_all(&[*byte]).is_ok()) {
                std::thread::sleep(Duration::from_millis(20));
            }
            return;
        }
        let answer = has.answer(number, &words);
        if to.write_all(&answer).is_err() {
            break;
        }
    }
    has.lock().clients.remove(&number);
}

fn line(from: &mut impl BufRead, sign: char) -> Option<usize> {
    let mut line = String::new();
    from.read_line(&mut line).ok()?;
    line.trim_end().strip_prefix(sign)?.parse().ok()
}

fn command(from: &mut impl BufRead) -> Option<Vec<Vec<u8>>> {
    let words = line(from, '*')?;
    let word = |_| {
        let mut word = vec![0; line(from, '$')? + 2];
        from.read_exact(&mut word).ok()?;
        word.truncate(word.len() - 2);
        Some(word)
    };
    (0..words).map(word).collect()
}

fn bulk(bytes: &[u8]) -> Vec<u8> {
    [format!("${}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat()
}

impl Has {
    fn answer(&mut self, number: u64, words: &[Vec<u8>]) -> Vec<u8> {
        let text: Vec<String> =
            words.iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect();
        let text: Vec<&str> = text.iter().map(String::as_str).collect();
        let count = |count: usize| format!(":{count}\r\n").into_bytes();
        let ok = || b"+OK\r\n".to_vec();
        match text[..] {
            ["CLIENT", "KILL", ..] if self.is_wordy => {
                [b"-NOPERM ", &[1; 200_000][..], b"\r\n"].concat()
            }
            ["INFO", "memory"] if self.is_wordy => {
                let policy = [b"maxmemory:1\r\nmaxmemory_policy:", &[1; 200_000][..]].concat();
                bulk(&policy)
            }
            ["CLIENT", "KILL", ..] if self.kills_nobody => {
                b"-NOPERM this user has no permissions to run 'client|kill'\r\n".to_vec()
            }
            ["CLIENT", "KILL", "ID", id, "SKIPME", "yes"] if id == number.to_string() => count(0),
            ["CLIENT", "KILL", "ID", id, "SKIPME", "yes"] => {
                let ended = self.clients.remove(&id.parse().unwrap());
                if let Some((stream, _)) = &ended {
                    let _ = stream.shutdown(std::net::Shutdown::Both);
                }
                count(ended.iter().count())
            }
            ["CLIENT", "SETNAME", name] => {
                self.clients.get_mut(&number).unwrap().1 = name.to_string();
                ok()
            }
            ["CLIENT", "LIST"] => {
                let all = self.clients.iter();
                let all = all.map(|(id, (_, name))| format!("id={id} addr=a name={name} age=1\n"));
                bulk(all.collect::<String>().as_bytes())
            }
            ["CLIENT", "SETINFO", ..] => ok(),
            ["INFO", "memory"] => bulk(b"# Memory\r\nused_memory:1\r\nmaxmemory:0\r\n"),
            ["SCAN", _, "MATCH", all, ..] if self.endless.is_some() => {
                let times = self.endless.unwrap_or_default() + 1;
                self.endless = Some(times);
                let key = bulk(all.replace('*', &times.to_string()).as_bytes());
                [b"*2\r\n$1\r\n1\r\n*1\r\n", &key[..]].concat()
            }
            ["SCAN", ..] => {
                let keys: Vec<u8> = self.keys.keys().flat_map(|key| bulk(key.as_bytes())).collect();
                let head = format!("*2\r\n$1\r\n0\r\n*{}\r\n", self.keys.len());
                [head.as_bytes(), &keys].concat()
            }
            ["SET", key, ..] => {
                self.keys.insert(key.to_string(), words[2].clone());
                ok()
            }
            ["GETRANGE", key, from, to] => {
                let there = self.keys.get(key).map_or(&[][..], Vec::as_slice);
                let (from, to) = (from.parse::<usize>().unwrap(), to.parse::<usize>().unwrap());
                let end = there.len().min(to + 1);
                bulk(&there[from.min(end)..end])
            }
            ["UNLINK", ..] => {
                count(text[1..].iter().filter_map(|key| self.keys.remove(*key)).count())
            }
            ["EXPIRE", key, _] => count(self.keys.contains_key(key).into()),
            _ => format!("-ERR unknown command '{}'\r\n", text.join(" ")).into_bytes(),
        }
    }
}

/// A test fails that waits for so long.
const LONG: Duration = Duration::from_secs(60);
const SEGMENT: u64 = 64 << 10;
const AT: u64 = HEAD_BYTES + 3 * SEGMENT;

fn cloud(address: SocketAddr) -> Cloud {
    let patience = Patience {
        link: Duration::from_millis(300),
        donor: Duration::from_secs(30),
        ..Patience::default()
    };
    let (address, session) = (format!("redis://{address}"), Session([7; 16]));
    Cloud::new(&address, session, SEGMENT, 64 * SEGMENT, patience).unwrap()
}

fn connects(cloud: &Cloud, address: SocketAddr) -> Link {
    connect(&cloud.shared, &mut Lookup::new(&address.to_string())).unwrap()
}

fn write(cloud: &Cloud, bytes: &[u8]) -> io::Result<()> {
    let (tell, told) = channel();
    cloud.put(AT, bytes.to_vec(), Box::new(move |wrote| drop(tell.send(wrote))));
    told.recv().unwrap()
}

fn read(cloud: &Cloud, len: usize) -> io::Result<Vec<u8>> {
    let (tell, told) = channel();
    let came = move |came: io::Result<usize>, blocks: Blocks| {
        let _ = tell.send(came.map(|len| blocks.bytes()[..len].to_vec()));
    };
    let into = Blocks::zeroed(len);
    cloud.read(Read { at: AT, into, told: Box::new(came), pressing: true, tries: 0 });
    told.recv().unwrap()
}

/// What a cut link had sent is never carried out after what the next one sends, be that of the same daemon or of its
/// successor: here the old page is forgotten, and a new one is put in its place.
#[test]
fn what_a_former_link_had_sent_does_not_come_late() {
    for has_successor in [false, true] {
        let server = Server::new();
        let proxy = Proxy::new([127, 0, 0, 1].into(), server.address).unwrap();
        let mut borrows = cloud(proxy.address());
        write(&borrows, b"the old page").unwrap();
        proxy.act(Act::StopOlder);
        borrows.forget(AT, SEGMENT as usize);
        if has_successor {
            // It ends when what it has sent is not answered.
            until("it has sent that", || borrows.shared.queues.lock().is_empty());
            drop(borrows);
            borrows = cloud(proxy.address());
        }
        write(&borrows, b"the new page").unwrap();
        proxy.act(Act::Pass);
        until("the former link is over", || server.clients() == 1);
        assert_eq!(read(&borrows, 12).unwrap(), b"the new page", "{has_successor}");
    }
}

/// Where the former link cannot be ended, nothing that could be harmed by it is sent; what is there comes back.
#[test]
fn a_server_that_ends_no_link_takes_nothing() {
    let server = Server::new();
    let proxy = Proxy::new([127, 0, 0, 1].into(), server.address).unwrap();
    let borrows = cloud(proxy.address());
    write(&borrows, b"a page").unwrap();
    server.has.lock().kills_nobody = true;
    proxy.act(Act::Cut);
    proxy.act(Act::Pass);
    until("it is said", || borrows.standing().state == DonorState::Weak);
    let why = borrows.standing().why.unwrap();
    assert!(why.contains("CLIENT KILL"), "{why}");
    assert_eq!(write(&borrows, b"another").unwrap_err().kind(), ErrorKind::StorageFull);
    assert_eq!(read(&borrows, 6).unwrap(), b"a page");
    server.has.lock().kills_nobody = false;
    until("it is allowed", || borrows.standing().state == DonorState::Up);
    write(&borrows, b"another").unwrap();
    assert_eq!(read(&borrows, 7).unwrap(), b"another");
}

/// Who asks it is told that there is no answer, its keys that cannot be ours are not kept, and nobody waits for its end.
#[test]
fn a_server_whose_keys_have_no_end_holds_nobody() {
    let server = Server::new();
    server.has.lock().endless = Some(0);
    let patience = Patience {
        link: Duration::from_millis(300),
        donor: Duration::from_millis(100),
        ..Patience::default()
    };
    let (address, session) = (format!("redis://{}", server.address), Session([7; 16]));
    let borrows = Cloud::new(&address, session, SEGMENT, 64 * SEGMENT, patience).unwrap();
    nobody_waits_for(borrows, |borrows| assert_eq!(borrows.standing().state, DonorState::Lost));
}

/// Who reads there is told that there is no answer, and its end is not waited for. Between these it is looked at.
fn nobody_waits_for(borrows: Cloud, look: impl FnOnce(&Cloud)) {
    // Never dropped where the test fails, as that would wait, too.
    let borrows = std::mem::ManuallyDrop::new(borrows);
    let (tell, told) = channel();
    let came = move |came: io::Result<usize>, _| drop(tell.send(came));
    let into = Blocks::zeroed(12);
    borrows.read(Read { at: AT, into, told: Box::new(came), pressing: true, tries: 0 });
    let answer = told.recv_timeout(LONG).expect("nobody waits for ever");
    assert_eq!(answer.unwrap_err().kind(), ErrorKind::TimedOut);
    look(&borrows);
    let (tell, ended) = channel();
    std::thread::spawn(move || {
        drop(std::mem::ManuallyDrop::into_inner(borrows));
        let _ = tell.send(());
    });
    ended.recv_timeout(LONG).expect("its end is not waited for");
}

/// Nor does one that begins an answer and says a byte of it at a time, whatever it began with.
#[test]
fn a_server_that_says_a_byte_at_a_time_holds_nobody() {
    for begin in [&b"$1000000\r\n"[..], b"*1000000\r\n:", b":", b""] {
        let server = Server::new();
        server.has.lock().slowly = Some(begin);
        let patience = Patience {
            link: Duration::from_millis(300),
            donor: Duration::from_millis(900),
            ..Patience::default()
        };
        let (address, session) = (format!("redis://{}", server.address), Session([7; 16]));
        let borrows = Cloud::new(&address, session, SEGMENT, 64 * SEGMENT, patience).unwrap();
        until("it is there", || borrows.standing().state == DonorState::Up);
        nobody_waits_for(borrows, |_| {});
    }
}

/// Status and log have the beginning of what it says, in characters that are seen.
#[test]
fn a_server_of_many_words_is_told_of_in_few() {
    let server = Server::new();
    let borrows = cloud(server.address);
    let mut link = connects(&borrows, server.address);
    server.has.lock().is_wordy = true;
    let drops = look(&mut link).unwrap().1.unwrap();
    let kills = end_former(&borrows.shared, &mut link).unwrap().unwrap();
    for why in [drops, kills] {
        assert!(why.len() < 400 && why.contains("\\x01") && !why.contains('\x01'), "{why}");
    }
}

/// What it says beyond what was asked for is not taken.
#[test]
fn a_server_that_says_more_than_was_asked_for_fills_no_memory() {
    let server = Server::new();
    let borrows = cloud(server.address);
    let mut link = connects(&borrows, server.address);
    server.has.lock().keys.insert("large".into(), vec![1; 1 << 20]);
    let get = redis::cmd("GETRANGE").arg("large").arg(0).arg(1 << 20).clone();
    let whole: Vec<u8> = get.query(link.with_pages(1 << 20)).unwrap();
    assert_eq!(whole.len(), 1 << 20);
    let more = get.query::<Vec<u8>>(link.with_pages(4096));
    assert_eq!(more.unwrap_err().kind(), redis::ErrorKind::Io);
    // What is left of the answer is nobody's.
    assert!(!redis::ConnectionLike::check_connection(&mut link));
}

#[test]
fn keys_that_are_not_ours_are_not_kept() {
    let server = Server::new();
    let borrows = cloud(server.address);
    write(&borrows, b"a page").unwrap();
    let of_session = borrows.shared.prefix.clone();
    for at in [AT + 1, HEAD_BYTES + 64 * SEGMENT, u64::MAX] {
        server.has.lock().keys.insert(format!("{of_session}{at}"), b"nobody's".to_vec());
    }
    let mut link = connects(&borrows, server.address);
    assert_eq!(keys_there(&borrows.shared, &mut link).unwrap(), BTreeSet::from([AT]));
}
