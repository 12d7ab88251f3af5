//! Spoiled traces, and bytes that were none: never a panic, never much memory, and an error that
//! says where. What passes is taken apart, cut, exported and written again.

#[path = "../../../tests/fuzz/mod.rs"]
mod fuzz;

use std::collections::BTreeSet;
use std::io::Cursor;

use clew_core::Ns;
use clew_trace::cut::Cut;
use clew_trace::{ContentId, Reader, Trace, TraceError, Writer, ariadne, export};
use fuzz::{Run, corpus, spoiled};
use twox_hash::XxHash3_64;

const WORDS: [&str; 12] = [
    "CLEWTRCE",
    "CLEWENDS",
    "\0\0\0\0",
    "\u{1}\0\0\0",
    "\u{2}\0\0\0",
    "\u{4}\0\0\0",
    "\u{7f}\u{7f}\u{7f}\u{7f}",
    "TEST^^^#10123,1,8#^^^\n",
    "\n",
    ",",
    "18446744073709551615",
    "{\"source\":\"generated\",\"tool\":\"\"}",
];

/// Makes the checksums right again, so that what they protect is looked at.
fn mend(bytes: &mut Vec<u8>) {
    let word = |bytes: &[u8], at: usize| {
        let part = bytes.get(at..at + 4)?;
        Some(u32::from_le_bytes([part[0], part[1], part[2], part[3]]) as usize)
    };
    let sum = |seed: u64, header: &[u8], rest: &[u8]| {
        let seed = XxHash3_64::oneshot_with_seed(seed, header);
        XxHash3_64::oneshot_with_seed(seed, rest).to_le_bytes()
    };
    let Some(provenance) = word(bytes, 16) else { return };
    let Some(rest) = bytes.get(32..32 + provenance) else { return };
    let right = sum(1, &bytes[..24], rest);
    bytes[24..32].copy_from_slice(&right);
    let mut at = 32 + provenance;
    while let Some(stored) = word(bytes, at + 4) {
        let Some(part) = bytes.get(at + 24..at + 24 + stored) else { return };
        let right = sum(at as u64, &bytes[at..at + 16], part);
        bytes[at + 16..at + 24].copy_from_slice(&right);
        if word(bytes, at) == Some(4) {
            let end = at + 24 + stored;
            bytes.truncate(end);
            bytes.extend((at as u64).to_le_bytes());
            bytes.extend(b"CLEWENDS");
            return;
        }
        at += 24 + stored;
    }
}

/// Reads in every way that there is.
fn try_all(bytes: &[u8], path: &std::path::Path) -> Result<u64, TraceError> {
    let counted = Reader::new(bytes)?.checking_contents().try_fold(0, |n, r| r.map(|_| n + 1));
    let skipped = Reader::records_only(Cursor::new(bytes))?.try_fold(0, |n, r| r.map(|_| n + 1));
    if let (Ok(one), Ok(two)) = (&counted, &skipped) {
        assert_eq!(one, two);
    }
    std::fs::write(path, bytes).expect("room");
    let trace = Trace::open(path)?;
    let mut contents = trace.contents()?;
    let mut ids = Ok(());
    for id in 0..contents.count().min(100) {
        ids = ids.and(contents.get(ContentId(id)).map(drop));
    }
    contents.get(ContentId(contents.count())).expect_err("no such contents");
    let count = counted?;
    ids?;
    assert_eq!(trace.totals().records(), count);
    let rows = export::csv(Reader::new(bytes)?, std::io::sink(), |_| {})?;
    assert_eq!(rows, count);
    let middle = Ns(trace.totals().first.0 / 2 + trace.totals().last.0 / 2);
    let apps: BTreeSet<_> = trace.totals().apps.keys().copied().take(1).collect();
    for cut in [Cut { from: middle, ..Cut::default() }, Cut { apps, ..Cut::default() }] {
        let mut writer = Writer::new(Vec::new(), &cut.header(trace.header()))?;
        cut.write(&trace, &mut writer, |_| {})?;
        let (bytes, totals) = writer.finish()?;
        let again = Reader::new(bytes.as_slice())?.try_fold(0, |n, r| r.map(|_| n + 1))?;
        assert_eq!(again, totals.records());
    }
    Ok(count)
}

#[test]
fn a_spoiled_trace_is_refused_or_makes_sense() {
    let mut run = Run::start("trace");
    let seeds = corpus("trace");
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("spoiled.trace");
    let (mut taken, mut named) = (0, 0);
    while run.goes_on() {
        let mut bytes = match run.random.below(20) {
            0 => (0..run.random.below(300)).map(|_| run.random.next() as u8).collect(),
            _ => spoiled(&mut run.random, &seeds, &WORDS),
        };
        if run.random.below(8) != 0 {
            mend(&mut bytes);
        }
        let shown = || format!("seed {}, case {}", run.seed, run.cases);
        match try_all(&bytes, &path) {
            Ok(_) => taken += 1,
            Err(error) => {
                let said = error.to_string();
                let place = said.contains("byte") || said.contains("record");
                let known = said.contains("not a trace") || said.contains("version");
                assert!(error.is_bad_input(), "{said}: {}", shown());
                assert!(place || known, "'{said}': {}", shown());
                named += usize::from(place);
            }
        }
    }
    println!("fuzz trace: {} cases, {taken} of them valid", run.cases);
    assert!(taken > 0 && named > 0, "{taken} taken, {named} refused with their place");
}

#[test]
fn a_spoiled_directory_of_ariadne_is_imported_as_far_as_it_goes() {
    let mut run = Run::start("ariadne");
    let seeds = corpus("ariadne");
    let directory = tempfile::tempdir().expect("a directory");
    let leaf = directory.path().join("app/round1/hot");
    std::fs::create_dir_all(&leaf).expect("a directory");
    let files = [
        "swapout_trace.txt",
        "ttid_swapin_trace.txt",
        "ttfd_swapin_trace.txt.meta",
        "lru_list.txt",
        "compression_trace.txt",
        "record.log",
    ];
    let mut pages = 0;
    while run.goes_on() {
        for name in files {
            let bytes = spoiled(&mut run.random, &seeds, &WORDS);
            std::fs::write(leaf.join(name), bytes).expect("room");
        }
        let header = ariadne::header("fuzz", directory.path());
        let mut writer = Writer::new(Vec::new(), &header).expect("a header");
        let report = ariadne::import(directory.path(), &mut writer, |_, _| {});
        let report = report.unwrap_or_else(|e| panic!("seed {}: {e}", run.seed));
        let (bytes, totals) = writer.finish().expect("an end");
        let read = Reader::new(bytes.as_slice()).expect("a header").checking_contents();
        let records: u64 = read.map(|record| record.map(|_| 1).expect("a record")).sum();
        assert_eq!(records, totals.records(), "seed {}", run.seed);
        pages += report[0].pages;
    }
    println!("fuzz ariadne: {} cases, {pages} pages", run.cases);
    assert!(pages > 0);
}
