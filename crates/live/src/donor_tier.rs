//! Donors of a daemon: the machines that it is told of, one log at each, and what a successor needs of them.
//!
//! What that is (descriptors, addresses, sessions) lies in a segment of its own, as JSON, as there can be more of it than a
//! record has room for. Whoever takes over makes the links anew, with the same sessions: a donor knows by them what is
//! whose, and an older link has nothing any more.

use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::Builder;

use clew_core::DonorId;
use clew_remote::Standing;
use clew_remote::borrowed::{Borrowed, Lender, Single};
use clew_remote::cloud::{Cloud, CloudError};
use clew_remote::copies::pieces::Pieces;
use clew_remote::copies::record::Record;
use clew_remote::copies::{Copies, Second, second_of};
use clew_remote::cores::Cores;
use clew_remote::keys::{KeyError, Keys, PublicKey};
use clew_remote::link::{Link, Peer};
use clew_remote::patience::Patience;
use clew_remote::secure::Session;
use clew_store::flash::device::{Device, HEAD_BYTES};
use clew_store::flash::file::{DeviceError, FileDevice, Open};
use clew_store::flash::{
    AdoptFlashError, Flash, FlashConfig, FlashError, FlashLeft, LogId, Place, ReadsAhead,
};
use clew_store::{Segment, SegmentError};
use rustix::rand::{GetRandomFlags, getrandom};
use serde::{Deserialize, Serialize};

use crate::config::{Copied, DonorsConfig};
use crate::control::trusted_path::{self, PathError};

/// Segments in memory for each donor, when chunks are 64 KiB: what is on its way, and what is filled.
const BUFFERS_BYTES: u64 = 2 << 20;
/// What a page takes that is sent by itself: with its tag, in blocks of 4 KiB.
pub const PAGE_CHUNK: u32 = 8 << 10;
/// How long a daemon that ends waits for its donors.
const GOODBYE: std::time::Duration = std::time::Duration::from_secs(1);
/// Bytes of the segment.
const RECORD_BYTES: usize = 64 << 10;

/// Why there are no donors.
#[derive(Debug, thiserror::Error)]
pub enum DonorTierError {
    /// The machine's keys cannot be had.
    #[error(transparent)]
    Keys(#[from] KeyError),
    /// Others decide what is there.
    #[error(transparent)]
    Path(#[from] PathError),
    /// Nobody has introduced this donor.
    #[error(
        "donor {0} is not known here: run 'clew donate --pair' there, and 'clew pair {0} CODE' here"
    )]
    Unknown(String),
    /// More than there can be.
    #[error("there are {0} donors, and 31 at most")]
    TooMany(usize),
    /// No address of a server.
    #[error(transparent)]
    Cloud(#[from] CloudError),
    /// The system refused.
    #[error("donor {at}: {source}")]
    System { at: String, source: std::io::Error },
    /// The log.
    #[error(transparent)]
    Log(#[from] FlashError),
    /// The file of second copies.
    #[error("second copies: {0}")]
    File(#[from] DeviceError),
    /// What a predecessor left.
    #[error(transparent)]
    Adopt(#[from] AdoptFlashError),
    /// What a predecessor has written down.
    #[error(transparent)]
    Segment(#[from] SegmentError),
    /// The same.
    #[error("what is written down of donors is damaged")]
    Damaged,
}

/// What a daemon has written down of a donor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Left {
    /// Which.
    pub number: usize,
    /// Where it is.
    at: String,
    session: [u8; 16],
    bytes: u64,
    chunk: u32,
    /// Ledger, buffers and key of its log.
    pub log: [RawFd; 3],
    /// Where its second copies are, if there are any.
    second: Option<SecondLeft>,
    /// What is known of who has what, if there are.
    #[serde(default)]
    pub copies: Option<RawFd>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum SecondLeft {
    /// At this donor, in a session of its own.
    Donor { at: String, session: [u8; 16] },
    /// In this file of so many bytes, from this one on.
    File { path: PathBuf, bytes: u64, offset: u64, fd: RawFd },
}

/// A donor that a daemon left. It has threads when it is adopted, and so it is only after the keeper.
pub struct DonorEstate {
    /// What was written down.
    pub left: Left,
    /// Its log.
    pub log: FlashLeft,
    /// The file of its second copies.
    pub second: Option<OwnedFd>,
    /// What is known of who has what of two copies.
    pub copies: Option<OwnedFd>,
    /// What lies there.
    pub named: Vec<(u32, Place)>,
}

impl Left {
    /// The descriptor of the file of its second copies, if there is one.
    pub fn second_file(&self) -> Option<RawFd> {
        match self.second {
            Some(SecondLeft::File { fd, .. }) => Some(fd),
            Some(SecondLeft::Donor { .. }) | None => None,
        }
    }
}

/// A donor, and the log there.
#[derive(Clone)]
pub struct DonorTier {
    /// Which.
    pub donor: DonorId,
    /// How it is called.
    pub at: String,
    lender: Arc<dyn Lender>,
    /// The log.
    pub log: Arc<Flash>,
    written_down: Left,
}

impl DonorTier {
    /// How it stands.
    pub fn standing(&self) -> Standing {
        self.lender.standing()
    }

    /// Nobody has anything there any more.
    pub fn forgive(&self) {
        self.lender.forgive();
    }
}

/// This daemon ends and nobody follows it: donors may use their memory otherwise at once. Waits a moment for them.
pub fn say_goodbye(tiers: &[DonorTier]) {
    std::thread::scope(|scope| {
        for tier in tiers {
            let say = || tier.lender.say_goodbye(GOODBYE);
            if Builder::new().spawn_scoped(scope, say).is_err() {
                say();
            }
        }
    });
}

/// The keys of a directory that nobody else can change.
///
/// # Errors
/// See [`DonorTierError`].
pub fn open_keys(directory: &Path) -> Result<Keys, DonorTierError> {
    trusted_path::make(directory, 0o700)?;
    Ok(Keys::open(directory)?)
}

/// What makes lenders.
struct Maker<'a> {
    config: &'a DonorsConfig,
    keys: Option<Keys>,
    cores: Cores,
    workers: usize,
    patience: Patience,
}

fn session() -> Result<[u8; 16], DonorTierError> {
    let mut session = [0; 16];
    match getrandom(&mut session, GetRandomFlags::empty()) {
        Ok(16) => Ok(session),
        Ok(_) => Err(DonorTierError::Damaged),
        Err(error) => {
            Err(DonorTierError::System { at: "a session".to_string(), source: error.into() })
        }
    }
}

impl Maker<'_> {
    fn new<'a>(config: &'a DonorsConfig) -> Maker<'a> {
        Maker {
            config,
            keys: None,
            cores: Cores::default(),
            workers: 0,
            patience: Patience {
                gives_up_writes: config.copies != Copied::Once,
                ..Patience::default()
            },
        }
    }

    fn key_of(&mut self, at: &str) -> Result<(Keys, PublicKey), DonorTierError> {
        if self.keys.is_none() {
            self.keys = Some(open_keys(&self.config.keys)?);
        }
        let keys = self.keys.clone().ok_or(DonorTierError::Damaged)?;
        let known = keys.known()?;
        let host = at.rsplit_once(':').map_or(at, |(host, _)| host);
        let by_name = |wanted: &str| known.iter().find(|(_, name)| name == wanted);
        let key = by_name(at).or_else(|| by_name(host)).map(|(key, _)| *key);
        let key = key.ok_or_else(|| DonorTierError::Unknown(at.to_string()))?;
        Ok((keys, key))
    }

    fn lender(
        &mut self,
        at: &str,
        session: [u8; 16],
        chunk: u32,
        bytes: u64,
        has: bool,
    ) -> Result<Arc<dyn Single>, DonorTierError> {
        let session = Session(session);
        if at.starts_with("redis://") {
            return Ok(Arc::new(Cloud::new(at, session, chunk.into(), bytes, self.patience)?));
        }
        let (keys, donor) = self.key_of(at)?;
        let peer = Peer { address: at.to_string(), identity: keys.identity, donor, session, has };
        let core = self.cores.of(self.workers);
        self.workers += 1;
        let link = Link::new(peer, self.patience, Some(core));
        let link = link.map_err(|source| DonorTierError::System { at: at.to_string(), source })?;
        Ok(Arc::new(Borrowed::new(link, bytes)))
    }

    fn with_second(
        &mut self,
        first: Arc<dyn Single>,
        left: &Left,
        file: Option<Arc<FileDevice>>,
        pieces: Pieces,
    ) -> Result<Arc<dyn Lender>, DonorTierError> {
        let (second, offset) = match &left.second {
            None => return Ok(first),
            Some(SecondLeft::Donor { at, session }) => {
                let has = pieces.has_any(1);
                (Second::Lender(self.lender(at, *session, left.chunk, left.bytes, has)?), 0)
            }
            Some(SecondLeft::File { offset, .. }) => {
                let file: Arc<dyn Device> = file.ok_or(DonorTierError::Damaged)?;
                (Second::File(file), *offset)
            }
        };
        let copies = Copies::new(first, second, offset, pieces);
        let copies =
            copies.map_err(|source| DonorTierError::System { at: left.at.clone(), source })?;
        Ok(Arc::new(copies))
    }
}

/// How the log at the donor of this number uses its link and memory.
///
/// # Errors
/// If there are not so many.
pub fn log_config(number: usize, chunk: u32) -> Result<FlashConfig, DonorTierError> {
    let donor = DonorId::new(number).ok_or(DonorTierError::TooMany(number + 1))?;
    // One page at a time is what is sent page by page.
    let buffers = if chunk <= PAGE_CHUNK { 2 } else { (BUFFERS_BYTES / u64::from(chunk)) as u32 };
    Ok(FlashConfig {
        log: LogId::at(donor),
        segment_bytes: chunk,
        buffers: buffers.clamp(2, 256),
        // Who waits for a page waits for its neighbours only where they are asked for, too.
        reads_ahead: ReadsAhead::IfUsed,
        writers: 1,
    })
}

/// Logs at the donors that a configuration names. They have threads. Nobody waits for a donor.
///
/// # Errors
/// See [`DonorTierError`].
pub fn open(config: &DonorsConfig, page_by_page: bool) -> Result<Vec<DonorTier>, DonorTierError> {
    if config.at.len() > DonorId::COUNT {
        return Err(DonorTierError::TooMany(config.at.len()));
    }
    let chunk = if page_by_page { PAGE_CHUNK } else { config.chunk.0 as u32 };
    let bytes = config.each.0 / u64::from(chunk) * u64::from(chunk) + HEAD_BYTES;
    let mut maker = Maker::new(config);
    let file = match &config.copies {
        Copied::Once | Copied::Twice => None,
        Copied::File(path) => Some(Arc::new(FileDevice::open(&Open {
            path: trusted_path::resolve(path)?,
            bytes: Some(HEAD_BYTES + bytes * config.at.len() as u64),
            least: 0,
            overwrite: false,
        })?)),
    };
    let mut tiers = Vec::new();
    for (number, at) in config.at.iter().enumerate() {
        let second = match &config.copies {
            Copied::Once => None,
            Copied::Twice => {
                let next = &config.at[second_of(number, config.at.len())];
                Some(SecondLeft::Donor { at: next.clone(), session: session()? })
            }
            Copied::File(path) => {
                let file = file.as_ref().ok_or(DonorTierError::Damaged)?;
                Some(SecondLeft::File {
                    path: path.clone(),
                    bytes: file.bytes(),
                    offset: HEAD_BYTES + number as u64 * bytes,
                    fd: file.fd().ok_or(DonorTierError::Damaged)?.as_raw_fd(),
                })
            }
        };
        let record = second.as_ref().map(|_| Record::new(bytes, chunk.into())).transpose()?;
        let copies = record.as_ref().map(|record| record.as_fd().as_raw_fd());
        let (at, session, log) = (at.clone(), session()?, [0; 3]);
        let left = Left { number, at, session, bytes, chunk, log, second, copies };
        let lender = maker.lender(&left.at, left.session, chunk, bytes, false)?;
        let pieces = record.map(Pieces::new).unwrap_or_default();
        let lender = maker.with_second(lender, &left, file.clone(), pieces)?;
        let device: Box<dyn Device> = Box::new(Arc::clone(&lender));
        let log = Arc::new(Flash::new(log_config(number, chunk)?, device)?);
        tiers.push(tier(left, lender, log)?);
    }
    Ok(tiers)
}

fn tier(left: Left, lender: Arc<dyn Lender>, log: Arc<Flash>) -> Result<DonorTier, DonorTierError> {
    let donor = DonorId::new(left.number).ok_or(DonorTierError::TooMany(left.number + 1))?;
    let written_down = Left { log: log.segments().map(|fd| fd.as_raw_fd()), ..left };
    Ok(DonorTier { donor, at: written_down.at.clone(), lender, log, written_down })
}

/// Takes over what a predecessor had. What lies at a donor that is not known any more is lost.
///
/// # Errors
/// See [`DonorTierError`].
pub fn adopt(
    config: &DonorsConfig,
    estate: Vec<DonorEstate>,
) -> Result<Vec<DonorTier>, DonorTierError> {
    let mut maker = Maker::new(config);
    let mut tiers = Vec::new();
    for DonorEstate { mut left, log, second, copies, named } in estate {
        let mut file = None;
        if let (Some(SecondLeft::File { bytes, fd, .. }), Some(second)) = (&mut left.second, second)
        {
            let device = FileDevice::adopt(second, *bytes)?;
            *fd = device.fd().ok_or(DonorTierError::Damaged)?.as_raw_fd();
            file = Some(Arc::new(device));
        }
        // One that wrote nothing down leaves none: the keeper, which has everything by now, would not have it.
        let record = copies.map(|fd| Record::adopt(fd, left.chunk.into())).transpose()?;
        left.copies = record.as_ref().map(|record| record.as_fd().as_raw_fd());
        let pieces = record.map(Pieces::adopt).unwrap_or_default();
        let has = pieces.has_any(0);
        let lender = maker.lender(&left.at, left.session, left.chunk, left.bytes, has)?;
        let lender = maker.with_second(lender, &left, file, pieces)?;
        let device: Box<dyn Device> = Box::new(Arc::clone(&lender));
        let adopted = Flash::adopt(log_config(left.number, left.chunk)?, log, device, &named);
        let (log, lost) = match adopted {
            Err(error) if error.is_lost() => {
                let (at, blocks) = (&left.at, named.len());
                tracing::error!(
                    at,
                    blocks,
                    "all that is at a donor is lost, programs get SIGBUS where they need it: {error}"
                );
                continue;
            }
            adopted => adopted?,
        };
        if !lost.is_empty() {
            let (at, blocks) = (&left.at, lost.len());
            tracing::error!(at, blocks, "blocks at a donor are lost: programs get SIGBUS there");
        }
        tiers.push(tier(left, lender, Arc::new(log))?);
    }
    Ok(tiers)
}

/// What a successor needs, in a segment that is kept as long as they are.
///
/// # Errors
/// See [`DonorTierError`].
pub fn write_down(tiers: &[DonorTier]) -> Result<Segment, DonorTierError> {
    let all: Vec<&Left> = tiers.iter().map(|tier| &tier.written_down).collect();
    let text = serde_json::to_vec(&all).map_err(|_| DonorTierError::Damaged)?;
    let segment = Segment::new("clew-donors", RECORD_BYTES)?;
    let mut bytes = (text.len() as u64).to_le_bytes().to_vec();
    bytes.extend_from_slice(&text);
    segment.write_at(0, &bytes)?;
    Ok(segment)
}

/// What a predecessor has written down.
///
/// # Errors
/// See [`DonorTierError`].
pub fn left(record: OwnedFd) -> Result<Vec<Left>, DonorTierError> {
    let segment = Segment::adopt("clew-donors", record)?;
    let mut len = [0; 8];
    segment.read_at(0, &mut len)?;
    let len = u64::from_le_bytes(len);
    if len > RECORD_BYTES as u64 - 8 {
        return Err(DonorTierError::Damaged);
    }
    let mut text = vec![0; len as usize];
    segment.read_at(8, &mut text)?;
    serde_json::from_slice(&text).map_err(|_| DonorTierError::Damaged)
}
