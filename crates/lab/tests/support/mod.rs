//! Small traces with everything in them that a trace can have, from a seed.

use std::path::Path;

use clew_core::{AccessKind, AppId, Ns, PageId, PageRun, SpaceId, Vpn};
use clew_trace::{
    ContentStats, ContentsKind, Draft, Header, Provenance, Record, Source, Trace, Writer,
};

/// xorshift64*: the same numbers everywhere.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    pub fn chance(&mut self, per_cent: u64) -> bool {
        self.below(100) < per_cent
    }
}

/// A page that compresses as heaps do: pointers, small numbers, words, now and then noise.
pub fn page(version: u64, page_bytes: usize) -> Vec<u8> {
    let mut random = Random::new(version + 1);
    let mut bytes = vec![0u8; page_bytes];
    match random.below(20) {
        0 => {}
        1 => bytes.fill(0x5a),
        kind => {
            let base = 0x7f00_0000_0000 + (random.next() & 0xff_ffff);
            for word in bytes.chunks_exact_mut(8) {
                let value = match kind {
                    2..=8 => base + random.below(4096) * 16,
                    9..=14 => random.below(200),
                    15..=18 => u64::from_le_bytes(*b"{\"key\": ") ^ (random.below(4) << 40),
                    _ => random.next(),
                };
                word.copy_from_slice(&value.to_le_bytes());
            }
        }
    }
    bytes
}

/// What to make.
#[derive(Clone, Copy)]
pub struct Plan {
    pub seed: u64,
    pub apps: u32,
    pub pages: u64,
    pub rounds: u32,
    pub contents: ContentsKind,
    pub page_bytes: u32,
    /// Programs free, move and end too.
    pub wild: bool,
}

impl Plan {
    pub fn small(seed: u64) -> Plan {
        let contents = ContentsKind::Bytes;
        Plan { seed, apps: 4, pages: 2500, rounds: 6, contents, page_bytes: 4096, wild: true }
    }
}

struct Maker<'a> {
    plan: Plan,
    random: Random,
    writer: Writer<Draft>,
    now: u64,
    version: u64,
    path: &'a Path,
}

const BASE: u64 = 0x5000;

impl Maker<'_> {
    fn put(&mut self, record: Record) {
        self.writer.record(Ns(self.now), record).expect("a record");
    }

    fn touch(&mut self, app: u32, vpn: u64, fresh: bool, write: bool) {
        let kind = if fresh { AccessKind::Fresh } else { AccessKind::Seen };
        let page = PageId::new(SpaceId(app), Vpn(BASE + vpn));
        self.put(Record::Access { page, kind, write });
        if write {
            self.version += 1;
            let bytes = page_of(self.version, self.plan.page_bytes as usize);
            let content = match self.plan.contents {
                ContentsKind::Bytes => self.writer.bytes(&bytes).expect("contents"),
                ContentsKind::Stats => {
                    let size = 600 + (self.version * 37 % 2000) as u16;
                    let stats = ContentStats {
                        same_filled: self.version.is_multiple_of(17),
                        entropy: 100,
                        lz4_256: size + 700,
                        lz4_1k: size + 300,
                        lz4_page: size,
                        zstd_page: size - 200,
                    };
                    self.writer.stats(u128::from(self.version), &stats).expect("statistics")
                }
                ContentsKind::None => return,
            };
            self.put(Record::Contents { page, content });
        }
        self.now += 700;
    }

    fn launch(&mut self, app: u32) {
        let name = format!("app {app}");
        self.writer.app(AppId(app), &name).expect("a name");
        self.put(Record::Launch { app: AppId(app) });
        self.put(Record::SpaceStart { space: SpaceId(app), app: AppId(app), file: false });
        for vpn in 0..self.plan.pages {
            self.touch(app, vpn, true, true);
        }
        self.respond(app);
    }

    fn respond(&mut self, app: u32) {
        let response_ns = 20_000_000;
        self.now += response_ns;
        self.put(Record::ResponseComplete { app: AppId(app), response_ns });
    }

    fn relaunch(&mut self, app: u32) {
        self.put(Record::Relaunch { app: AppId(app) });
        // The same fifth each time, and a little more.
        for vpn in 0..self.plan.pages / 5 {
            let write = self.random.chance(10);
            self.touch(app, vpn * 2, false, write);
        }
        for _ in 0..self.plan.pages / 20 {
            let vpn = self.random.below(self.plan.pages);
            self.touch(app, vpn, false, false);
        }
        self.respond(app);
        for _ in 0..self.plan.pages / 10 {
            let (vpn, write) = (self.random.below(self.plan.pages), self.random.chance(30));
            self.touch(app, vpn, false, write);
        }
    }

    fn mischief(&mut self, app: u32) {
        let space = SpaceId(app);
        let from = self.random.below(self.plan.pages - 70);
        let run = |vpn: u64, count| PageRun { first: PageId::new(space, Vpn(BASE + vpn)), count };
        match self.random.below(4) {
            0 => {
                self.put(Record::Freed { run: run(from, 40) });
                (0..20).for_each(|vpn| self.touch(app, from + vpn, true, true));
            }
            1 => {
                let to = PageId::new(space, Vpn(BASE + self.plan.pages + 100));
                self.put(Record::Moved { from: run(from, 64), to });
                self.put(Record::Moved {
                    from: PageRun { first: to, count: 64 },
                    to: run(from, 1).first,
                });
            }
            2 => {
                self.put(Record::Exit { app: AppId(app) });
                self.launch(app);
            }
            _ => {
                // Found, not touched; told about late.
                let late = self.plan.pages + 1000;
                self.put(Record::Resident { run: run(late, 30) });
                self.now += 50_000_000;
                if self.plan.contents == ContentsKind::Bytes {
                    for vpn in late..late + 30 {
                        self.version += 1;
                        let bytes = page_of(self.version, self.plan.page_bytes as usize);
                        let content = self.writer.bytes(&bytes).expect("contents");
                        let page = run(vpn, 1).first;
                        self.put(Record::Contents { page, content });
                        self.put(Record::Candidate { page });
                    }
                }
            }
        }
    }

    fn make(mut self) -> Trace {
        for app in 1..=self.plan.apps {
            self.launch(app);
            self.now += 1_000_000_000;
        }
        for _ in 0..self.plan.rounds {
            for app in 1..=self.plan.apps {
                self.relaunch(app);
                if self.plan.wild {
                    self.mischief(app);
                }
                self.now += 2_000_000_000;
            }
        }
        let (draft, _) = self.writer.finish().expect("the end");
        draft.commit().expect("a file");
        Trace::open(self.path).expect("what was written")
    }
}

fn page_of(version: u64, page_bytes: usize) -> Vec<u8> {
    page(version, page_bytes)
}

/// Writes a trace to `path` and opens it.
pub fn trace(path: &Path, plan: Plan) -> Trace {
    let mut provenance = Provenance::new(Source::Generated, "a test");
    provenance.seed = Some(plan.seed);
    let header = Header { page_bytes: plan.page_bytes, contents: plan.contents, provenance };
    let draft = Draft::new(path, false).expect("a draft");
    let writer = Writer::new(draft, &header).expect("a writer");
    let random = Random::new(plan.seed);
    Maker { plan, random, writer, now: 0, version: 0, path }.make()
}
