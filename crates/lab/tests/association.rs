//! What comes along with a fault, by itself: on a trace in which what is used together is known.

use std::path::Path;
use std::time::Duration;

use clew_core::{AccessKind, AppId, Ns, PageId, SpaceId, Vpn};
use clew_lab::association::{self, Association, Way};
use clew_lab::{Input, association as study};
use clew_trace::{ContentsKind, Draft, Header, Provenance, Record, Source, Writer};

const RETURNS: u64 = 12;
/// Pages of the app, and those that each return uses, far apart, in the same order each time.
const PAGES: u64 = 8192;
const USED: u64 = 200;

/// A recording with windows of an app that always does the same.
fn record(path: &Path) -> Input {
    let mut provenance = Provenance::new(Source::Recorded, "a test");
    provenance.notes.insert("windows".to_string(), "3600s".to_string());
    let header = Header { page_bytes: 4096, contents: ContentsKind::None, provenance };
    let mut writer =
        Writer::new(Draft::new(path, false).expect("a draft"), &header).expect("a writer");
    let (app, space, mut now) = (AppId(0), SpaceId(0), 0);
    let page = |vpn| PageId::new(space, Vpn(0x1000 + vpn));
    writer.app(app, "always the same").expect("a name");
    let mut put = |now: u64, record| writer.record(Ns(now), record).expect("a record");
    put(now, Record::Launch { app });
    put(now, Record::SpaceStart { space, app, file: false });
    for vpn in 0..PAGES {
        now += 1_000;
        put(now, Record::Access { page: page(vpn), kind: AccessKind::Fresh, write: true });
    }
    for _ in 0..RETURNS {
        put(now, Record::Background { app });
        now += 1_000_000_000;
        put(now, Record::Window { app });
        now += 4_000_000_000;
        put(now, Record::Relaunch { app });
        for n in 0..USED {
            // Of each block of sixteen at most one.
            let vpn = n * 97 % USED * 32;
            now += 100_000;
            put(now, Record::Access { page: page(vpn), kind: AccessKind::Fault, write: false });
        }
        put(now, Record::ResponseComplete { app, response_ns: USED * 100_000 });
    }
    put(now, Record::Exit { app });
    let (draft, _) = writer.finish().expect("the end");
    draft.commit().expect("a file");
    Input::open(path).expect("what was written")
}

fn way<'a>(found: &'a Association, name: &str) -> &'a Way {
    found.ways.iter().find(|way| way.name == name).unwrap_or_else(|| panic!("no way {name}"))
}

/// A clock that stands still.
fn stopped() -> Duration {
    Duration::ZERO
}

#[test]
fn each_way_saves_what_it_can_know() {
    let directory = tempfile::tempdir().expect("a directory");
    let input = record(&directory.path().join("same.trace"));
    let study = |jobs| {
        study(&input, 256 << 20, jobs, stopped, &|_, _, _| {}).expect("a study of a sound trace")
    };
    let found = study(1);
    assert_eq!((found.windows, found.returns), (true, RETURNS));
    assert_eq!(found.ways.len(), association::count());
    let nothing = way(&found, "nothing");
    assert_eq!(nothing.faults, RETURNS * USED, "every first use after all has left is a fault");
    assert_eq!((nothing.faults_left, nothing.loaded_for_used), (Some(1.0), Some(1.0)));
    assert_eq!((nothing.along_pages, nothing.metadata_bytes), (0, 0));

    // Whatever happens always in the same order is known after the first time.
    let successors = way(&found, "successors-16");
    let least = USED + (RETURNS - 1) * USED.div_ceil(17);
    assert_eq!(successors.faults, least);
    assert!(successors.loaded_for_used.expect("pages came") < 1.01, "{successors:?}");
    assert!(successors.metadata_bytes > USED * 8, "{successors:?}");

    // What lies around is never used here.
    let block = way(&found, "64K");
    assert_eq!((block.faults_left, block.along_used), (Some(1.0), 0));
    assert_eq!(block.loaded_for_used, Some(16.0));
    assert_eq!(way(&found, "64K-if-it-pays").along_used, 0);
    assert_eq!(way(&found, "runs").faults_left, Some(1.0));

    let groups = way(&found, "groups-large");
    assert!(groups.along_used > 0 && groups.faults < nothing.faults, "{groups:?}");
    assert!(groups.counted["associated_groups"] >= 0.0);

    // The same at every run, however many at once.
    assert_eq!(study(3), found);
}
