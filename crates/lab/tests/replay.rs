//! Traces through the real engine and the weightless one.

mod support;

use std::fs;
use std::path::{Path, PathBuf};

use clew_core::{AppId, ByteSize, Ns, PageId, PageRun, SpaceId, Vpn, Whole};
use clew_lab::belady::belady;
use clew_lab::{
    Clock, Costs, Donor, Donors, Input, LabError, LinkCost, Pages, Settings, compare, replay,
};
use clew_policy::Scheme;
use clew_policy::placement::adaptive_path;
use clew_policy::placement::flash_last::FlashLast;
use clew_policy::schemes::OnFull;
use clew_report::{Arm, Replay};
use clew_trace::{
    ContentsKind, Draft, Header, Note, Provenance, Record, Source, TraceError, Writer,
};
use support::{Plan, trace};

const BUDGET: u64 = 24 << 20;
const FLASH: u64 = 128 << 20;

struct Traces {
    directory: tempfile::TempDir,
}

impl Traces {
    fn new() -> Traces {
        Traces { directory: tempfile::tempdir().expect("a directory") }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("t.clew")
    }

    fn input(&self, plan: Plan) -> Input {
        trace(&self.path(), plan);
        Input::open(&self.path()).expect("a good trace")
    }
}

fn settings(scheme: &str, pages: Pages) -> Settings {
    let scheme = Scheme::preset(scheme).expect("a preset");
    // Who does not use flash does not see it.
    Settings { pages, flash_bytes: Some(FLASH), ..Settings::new(scheme, BUDGET) }
}

/// All that need no donor.
fn schemes_of_one_machine() -> Vec<Scheme> {
    let mut schemes = clew_policy::schemes::all();
    schemes.retain(|scheme| !scheme.needs_donors());
    schemes
}

fn run(input: &Input, settings: &Settings) -> Arm {
    replay(&input.trace, &input.lookahead, settings, &mut |_, _| {}).expect("a replay")
}

/// What only a replay counts.
fn counts(arm: &Arm) -> &Replay {
    arm.replay.as_ref().expect("it was replayed")
}

fn everything_is_accounted_for(arm: &Arm) {
    let (one, peak) = (counts(arm), arm.peak.expect("a replay knows"));
    // A write that was not seen found its page stored, or parked: then it was a hit.
    assert_eq!(one.accesses, one.hits + one.fresh + arm.faults - one.unseen_writes, "{arm:?}");
    assert!(one.prefetch.used + one.prefetch.unused <= one.prefetch.pages, "{arm:?}");
    assert!(arm.total_bytes_peak >= peak.resident_bytes && peak.resident_bytes > 0, "{arm:?}");
}

#[test]
fn every_scheme_brings_back_what_it_took() {
    let traces = Traces::new();
    for seed in 1..=2 {
        let input = traces.input(Plan::small(seed));
        for scheme in schemes_of_one_machine() {
            let outcome = run(&input, &settings(&scheme.name, Pages::Real));
            everything_is_accounted_for(&outcome);
            let swaps = !scheme.reclaim.about().idle;
            let (compresses, kills) = (swaps && !scheme.needs_flash(), scheme.name == "nosw");
            assert_eq!(outcome.faults > 1000, swaps, "{outcome:?}");
            assert!(outcome.ratio.is_some() == swaps, "{outcome:?}");
            assert!(!compresses || outcome.ratio > Some(1.5), "{outcome:?}");
            assert_eq!(outcome.swapping_cpu_ms > Some(0.0), swaps, "{outcome:?}");
            // Kept within the budget, but for what a round of reclaim takes and where nobody may be
            // taken out.
            assert!(!swaps || outcome.total_bytes_peak < BUDGET + (5 << 20), "{outcome:?}");
            assert!(outcome.relaunch_ms.p50 >= counts(&outcome).own_ms.p50, "{outcome:?}");
            assert_eq!(outcome.relaunch_ms.p50 > counts(&outcome).own_ms.p50, swaps, "{outcome:?}");
            let Replay { kills: ended, cold_launches, .. } = *counts(&outcome);
            assert_eq!(ended > 0, kills, "{outcome:?}");
            assert_eq!(outcome.relaunch_ms.n as u64 + cold_launches, 24, "{outcome:?}");
            // With a pool that has no limit of its own, only who wants to writes to flash.
            let writes = ["flash-swap", "seal", "elasticzram"].contains(&scheme.name.as_str());
            // What is not admitted is written there too, if anything is not.
            if !scheme.admission.about().rejects {
                assert_eq!(outcome.disk_bytes_written > 0, writes, "{outcome:?}");
                assert_eq!(counts(&outcome).flash_read_bytes > 0, writes, "{outcome:?}");
            }
        }
    }
}

/// What apps have at donors comes back byte for byte, and when all donors are lost `mobileswap` has ended who had
/// something there, where the others crash (MobileSwap IV-C).
#[test]
fn donors_give_back_what_they_took_and_may_be_lost() {
    let traces = Traces::new();
    let input = traces.input(Plan::small(1));
    let link = LinkCost { round_trip_ns: 3e5, byte_ns: 8.7, chunk_ns: 1e4, chunk_bytes: 64 << 10 };
    for scheme in ["mobileswap", "remoteswap", "cloudswap"] {
        let with = |lost_at| {
            let donor = Donor { bytes: FLASH / 2, lost_at };
            let donors = Donors { each: vec![donor; 2], link };
            Settings { donors: Some(donors), ..settings(scheme, Pages::Real) }
        };
        let whole = run(&input, &with(None));
        let (one, is_app_aware) = (counts(&whole).clone(), scheme == "mobileswap");
        assert!(one.link_written_bytes > 1 << 20 && one.link_read_bytes > 1 << 20, "{whole:?}");
        assert_eq!(one.crashes, 0, "{whole:?}");
        let lost = run(&input, &with(Some(Ns(input.trace.totals().last.0 / 2))));
        let one = counts(&lost).clone();
        // The app in front may still wait for some of its pages.
        assert_eq!(one.crashes <= 1, is_app_aware, "{lost:?}");
        assert!(one.kills > 0 || !is_app_aware, "{lost:?}");
    }
}

/// zswap's pool is full: whole frames leave it for flash, and come back from there, every byte of them.
#[test]
fn zswap_evicts_the_oldest_frames() {
    let traces = Traces::new();
    let with_bytes = Plan { wild: false, ..Plan::small(2) };
    for (contents, pages) in [
        (ContentsKind::Bytes, Pages::Real),
        (ContentsKind::None, Pages::Weightless { ratio: Some(3.0) }),
    ] {
        let input = traces.input(Plan { contents, ..with_bytes });
        let mut settings = settings("zswap", pages);
        settings.scheme.mem_limit_bytes = Some(ByteSize(2 << 20));
        settings.flash_bytes = None;
        let without = run(&input, &settings);
        settings.flash_bytes = Some(256 << 20);
        let outcome = run(&input, &settings);
        everything_is_accounted_for(&outcome);
        let of = |outcome: &Arm, name: &str| counts(outcome).policies[name];
        assert_eq!(of(&without, "z3fold_lru_evicted_frames"), 0.0, "there is nowhere to go");
        let frames = of(&outcome, "z3fold_lru_evicted_frames");
        let zpages = of(&outcome, "z3fold_lru_evicted_pages");
        assert!(frames > 100.0 && zpages > 1.2 * frames && zpages <= 3.0 * frames, "{outcome:?}");
        assert!(outcome.disk_bytes_written > 0 && counts(&outcome).flash_read_bytes > 0);
        assert!(counts(&outcome).swapped_out_pages > 2 * counts(&without).swapped_out_pages);
        // They are within the limit.
        let known = of(&outcome, "z3fold_lru_known_frames") * 4096.0;
        assert!(known <= f64::from(2 << 20), "{known}");
    }
}

/// The schemes of ElasticZRAM 4.1, where the pool is small: what does not fit goes to flash, decompressed,
/// and every page comes back as it was.
#[test]
fn where_the_pool_is_small_the_rest_is_on_flash() {
    let traces = Traces::new();
    let input = traces.input(Plan::small(11));
    let of = |name: &str, used_pct| {
        let mut settings = settings(name, Pages::Real);
        settings.scheme.mem_limit_bytes = Some(ByteSize(2 << 20));
        settings.flash_used_pct = used_pct;
        let outcome = run(&input, &settings);
        everything_is_accounted_for(&outcome);
        outcome
    };
    let metric = |arm: &Arm, name: &str| counts(arm).policies[name];
    let alone = of("zram", 0);
    assert_eq!(alone.disk_bytes_written, 0, "{alone:?}");
    assert!(alone.total_bytes_peak > BUDGET, "{alone:?}");
    for name in ["flash-swap", "zram-flash", "seal", "elasticzram"] {
        let outcome = of(name, 0);
        assert!(outcome.total_bytes_peak < BUDGET + (5 << 20), "{outcome:?}");
        assert!(outcome.disk_bytes_written > 10 << 20, "{outcome:?}");
        assert!(counts(&outcome).flash_read_bytes > 5 << 20, "{outcome:?}");
        // As pages: a fault reads about one (and its tag), however dense it was.
        let each = counts(&outcome).flash_read_bytes as f64 / outcome.faults as f64;
        assert!(each > 2000.0 && each < 4600.0, "{each}: {outcome:?}");
        assert_eq!(outcome.relaunch_ms.n, 24, "{outcome:?}");
    }
    let oldest = of("zram-flash", 0);
    assert!(metric(&oldest, "oldest_first_pages") > 3000.0, "{oldest:?}");
    // As they are stored they take less, and less is read.
    let mut settings = settings("zram-flash", Pages::Real);
    settings.scheme.mem_limit_bytes = Some(ByteSize(2 << 20));
    settings.scheme.placement = std::sync::Arc::new(FlashLast { compressed: true });
    let dense = run(&input, &settings);
    assert!(dense.disk_bytes_written * 3 < oldest.disk_bytes_written * 2, "{dense:?}");
}

/// ElasticZRAM 3.3: three periods of the device, three sets of paths.
#[test]
fn elastic_zram_uses_flash_less_the_fuller_its_device_is() {
    let traces = Traces::new();
    let input = traces.input(Plan::small(12));
    for pages in [Pages::Real, Pages::Weightless { ratio: None }] {
        let of = |used_pct| {
            let mut settings = settings("elasticzram", pages);
            settings.scheme.mem_limit_bytes = Some(ByteSize(3 << 20));
            settings.flash_used_pct = used_pct;
            run(&input, &settings)
        };
        let metric = |arm: &Arm, name: &str| counts(arm).policies[name];
        let [stable, degraded, ended] = [39, 40, 85].map(of);
        assert!(metric(&stable, "elastic_zram_path3_pages") > 0.0, "{stable:?}");
        assert!(metric(&stable, "elastic_zram_path2_pool_pages") > 1000.0, "{stable:?}");
        assert_eq!(metric(&degraded, "elastic_zram_path3_pages"), 0.0, "{degraded:?}");
        assert!(metric(&degraded, "elastic_zram_path2_flash_pages") > 1000.0, "{degraded:?}");
        assert!(metric(&ended, "elastic_zram_pool_only_pages") > 1000.0, "{ended:?}");
        assert_eq!(
            (ended.disk_bytes_written, counts(&ended).flash_read_bytes),
            (0, 0),
            "{ended:?}"
        );
        assert!(stable.disk_bytes_written > degraded.disk_bytes_written, "{stable:?} {degraded:?}");
        let moved = |name| metric(&stable, name) + metric(&degraded, name);
        assert!(moved("elastic_zram_grown") > 0.0 && moved("elastic_zram_shrunk") > 0.0);
    }
}

/// What was written ends the device's life, as a sample says that comes once a day, or as the scheme says.
#[test]
fn a_device_that_has_been_written_to_enough_is_spared() {
    let traces = Traces::new();
    let input = traces.input(Plan::small(13));
    let of = |life: Option<ByteSize>, sample_s: u32| {
        let mut settings = settings("elasticzram", Pages::Weightless { ratio: None });
        settings.scheme.placement = std::sync::Arc::new(adaptive_path::Params {
            life,
            sample_s: Whole::of(sample_s),
            ..adaptive_path::Params::default()
        });
        run(&input, &settings).disk_bytes_written
    };
    let life = ByteSize(8 << 20);
    let (never, daily, at_once) = (of(None, 1), of(Some(life), 86_400), of(Some(life), 1));
    assert_eq!(never, daily, "the trace is shorter than a day");
    assert!(at_once >= life.0 && at_once < never / 2, "{at_once} of {never}");
}

/// ElasticZRAM 4.2.2 and figure 8: what waits for flash waits longer when its device is full.
#[test]
fn a_full_device_makes_relaunches_slower_but_for_elastic_zram() {
    let traces = Traces::new();
    let input = traces.input(Plan::small(14));
    let of = |name: &str, used_pct| {
        let mut settings = settings(name, Pages::Real);
        settings.scheme.mem_limit_bytes = Some(ByteSize(3 << 20));
        settings.flash_used_pct = used_pct;
        run(&input, &settings)
    };
    for name in ["flash-swap", "zram-flash", "seal"] {
        let [new, old] = [of(name, 30), of(name, 90)];
        assert_eq!((new.faults, new.disk_bytes_written), (old.faults, old.disk_bytes_written));
        assert!(old.relaunch_ms.p50 > new.relaunch_ms.p50 * 1.1, "{name}: {new:?} {old:?}");
    }
}

/// Nothing leaves, so somebody has to.
#[test]
fn without_swap_apps_end() {
    let traces = Traces::new();
    let input = traces.input(Plan::small(9));
    let [kept, ended] = ["dram", "nosw"].map(|name| run(&input, &settings(name, Pages::Real)));
    assert_eq!((counts(&kept).kills, ended.faults), (0, 0));
    assert!(counts(&ended).kills > 3 && counts(&ended).cold_launches > 0, "{ended:?}");
    assert!(ended.total_bytes_peak < kept.total_bytes_peak, "{ended:?}");
}

#[test]
fn a_scheme_that_has_no_place_but_flash_says_so() {
    let traces = Traces::new();
    let input = traces.input(Plan { apps: 1, rounds: 1, ..Plan::small(1) });
    let settings = Settings { flash_bytes: None, ..settings("flash-swap", Pages::Real) };
    let error = replay(&input.trace, &input.lookahead, &settings, &mut |_, _| {});
    let error = error.expect_err("there is none");
    assert!(error.is_bad_input() && error.to_string().contains("--flash"), "{error}");
}

#[test]
fn pages_of_16_kib_too() {
    let traces = Traces::new();
    let input = traces.input(Plan { page_bytes: 16384, pages: 700, ..Plan::small(3) });
    let outcome = run(&input, &settings("zram", Pages::Real));
    everything_is_accounted_for(&outcome);
    assert!(outcome.faults > 300, "{outcome:?}");
}

#[test]
fn without_contents_and_with_statistics() {
    let traces = Traces::new();
    for (contents, pages) in [(ContentsKind::None, "table"), (ContentsKind::Stats, "statistics")] {
        let input = traces.input(Plan { contents, ..Plan::small(1) });
        for scheme in ["zram", "ariadne"] {
            let outcome = run(&input, &settings(scheme, Pages::Weightless { ratio: None }));
            everything_is_accounted_for(&outcome);
            assert!(outcome.faults > 1000 && counts(&outcome).pages == pages, "{outcome:?}");
        }
        let error =
            replay(&input.trace, &input.lookahead, &settings("zram", Pages::Real), &mut |_, _| {});
        assert!(matches!(error, Err(LabError::NoContents { .. })));
    }
}

#[test]
fn modelled_time_gives_the_same_bytes_twice() {
    let traces = Traces::new();
    let input = traces.input(Plan::small(4));
    let schemes = schemes_of_one_machine();
    let once = |jobs| {
        let settings = settings("zram", Pages::Real);
        let compared = compare(&input, &schemes, &settings, jobs, &|_, _, _| {}).expect("replays");
        (clew_report::json(&compared).expect("JSON"), clew_report::page(&compared))
    };
    assert_eq!(once(1), once(2));
}

/// What a small trace gave when this was written. To change it on purpose: CLEW_GOLDEN=write.
#[test]
fn golden_results() {
    let traces = Traces::new();
    let input = traces.input(Plan { apps: 3, pages: 2200, rounds: 4, ..Plan::small(7) });
    let schemes = schemes_of_one_machine();
    let settings = Settings { budget_bytes: 16 << 20, ..settings("zram", Pages::Real) };
    let compared = compare(&input, &schemes, &settings, 2, &|_, _, _| {}).expect("replays");
    is_golden("compare.json", &clew_report::json(&compared).expect("JSON"));
}

/// The same without contents, with sizes by each model, and where there is no room.
#[test]
fn golden_results_without_contents() {
    let traces = Traces::new();
    let mut outcomes = Vec::new();
    for contents in [ContentsKind::None, ContentsKind::Stats] {
        let plan = Plan { apps: 3, pages: 2200, rounds: 4, contents, ..Plan::small(7) };
        let input = traces.input(plan);
        // What some admit depends on what pages hold.
        let known = |scheme: &Scheme| !scheme.admission.about().rejects;
        for scheme in schemes_of_one_machine().into_iter().filter(known) {
            for (ratio, mem_limit_bytes) in
                [(None, None), (Some(2.0), None), (None, Some(ByteSize(2 << 20)))]
            {
                let mut settings = settings(&scheme.name, Pages::Weightless { ratio });
                settings.budget_bytes = 16 << 20;
                // Ariadne's are those of a machine without flash.
                if scheme.name.starts_with("ariadne") {
                    settings.flash_bytes = None;
                }
                settings.scheme.mem_limit_bytes = mem_limit_bytes;
                outcomes.push(run(&input, &settings));
            }
        }
    }
    is_golden("weightless.json", &clew_report::json(&outcomes).expect("JSON"));
}

fn is_golden(name: &str, found: &str) {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("CLEW_GOLDEN").is_some() {
        fs::write(&golden, found).expect("a file");
    }
    let wanted = fs::read_to_string(&golden).expect("the golden results");
    for (line, (found, wanted)) in found.lines().zip(wanted.lines()).enumerate() {
        assert_eq!(found, wanted, "line {} of {}", line + 1, golden.display());
    }
    assert_eq!(found.len(), wanted.len());
}

#[test]
fn measured_time_is_made_of_real_durations_and_decides_nothing() {
    let traces = Traces::new();
    let input = traces.input(Plan { apps: 3, rounds: 2, ..Plan::small(5) });
    let modelled = settings("ariadne", Pages::Real);
    let measured = Settings { clock: Clock::Measured(Costs::reference()), ..modelled.clone() };
    let (modelled, measured) = (run(&input, &modelled), run(&input, &measured));
    let of = [&modelled, &measured].map(counts);
    assert_eq!(of[0].decisions, of[1].decisions);
    assert_eq!((modelled.faults, modelled.ratio), (measured.faults, measured.ratio));
    assert!(of[1].compress_ms > 0.0 && of[1].decompress_ms > 0.0);
    assert_ne!(of[0].compress_ms, of[1].compress_ms);
    let weightless = Pages::Weightless { ratio: None };
    let settings =
        Settings { clock: Clock::Measured(Costs::reference()), ..settings("zram", weightless) };
    let error = replay(&input.trace, &input.lookahead, &settings, &mut |_, _| {});
    assert!(matches!(error, Err(LabError::Setting { .. })), "there is no work to measure");
}

#[test]
fn more_memory_means_fewer_faults() {
    let traces = Traces::new();
    let input = traces.input(Plan { wild: false, ..Plan::small(6) });
    let faults = |mib: u64| {
        let settings = Settings { budget_bytes: mib << 20, ..settings("zram", Pages::Real) };
        run(&input, &settings).faults
    };
    let curve = [20, 28, 36, 64].map(faults);
    assert!(curve.is_sorted_by(|a, b| a >= b), "{curve:?}");
    assert!(curve[0] > 2 * curve[2] && curve[3] == 0, "{curve:?}");
}

#[test]
fn no_scheme_beats_belady() {
    let traces = Traces::new();
    let input = traces.input(Plan { contents: ContentsKind::None, ..Plan::small(8) });
    for ratio in [2.0, 4.0] {
        let bound = belady(&input.trace, BUDGET, ratio).expect("a bound").pages;
        assert!(bound > 300, "{bound}");
        for scheme in ["zram", "ariadne", "ariadne-paper"] {
            let pages = Pages::Weightless { ratio: Some(ratio) };
            let outcome = run(&input, &settings(scheme, pages));
            let back = outcome.faults + counts(&outcome).prefetch.pages;
            assert!(back >= bound, "{scheme}: {back} < {bound}");
        }
    }
}

#[test]
fn apps_that_are_ended_come_back_cold() {
    let traces = Traces::new();
    let input = traces.input(Plan::small(9));
    let mut scheme = Scheme::preset("zram").expect("a preset");
    scheme.on_full = OnFull::Kill;
    scheme.mem_limit_bytes = Some(ByteSize(2 << 20));
    let settings = Settings { scheme, ..settings("zram", Pages::Real) };
    let outcome = run(&input, &settings);
    let Replay { kills, cold_launches, .. } = *counts(&outcome);
    assert!(kills > 3 && cold_launches > 0 && cold_launches <= kills, "{outcome:?}");
    assert_eq!(outcome.relaunch_ms.n as u64 + cold_launches, 24, "{outcome:?}");
    // With the default, nobody is ended, and memory runs over.
    let mut scheme = settings.scheme.clone();
    scheme.on_full = OnFull::Stop;
    let stopped = run(&input, &Settings { scheme, ..settings });
    assert_eq!((counts(&stopped).kills, counts(&stopped).cold_launches), (0, 0));
    assert!(stopped.total_bytes_peak > BUDGET, "{stopped:?}");
}

#[test]
fn files_that_are_no_traces_are_refused_with_a_place() {
    let traces = Traces::new();
    let path = traces.path();
    trace(&path, Plan { apps: 1, rounds: 1, ..Plan::small(1) });
    let whole = fs::read(&path).expect("a trace");
    let refused = |bytes: &[u8]| {
        fs::write(&path, bytes).expect("a file");
        match Input::open(&path) {
            Err(error) => {
                assert!(error.is_bad_input(), "{error}");
                error.to_string()
            }
            Ok(_) => panic!("it was taken"),
        }
    };
    let cut = refused(&whole[..whole.len() - 100]);
    assert!(cut.contains(&format!("byte {}", whole.len() - 100)), "{cut}");
    let mut other = whole.clone();
    other[8] = 99;
    assert!(refused(&other).contains("version 99"));
    let mut damaged = whole.clone();
    damaged[whole.len() / 2] ^= 1;
    fs::write(&path, &damaged).expect("a file");
    // Contents are read when they are needed.
    let found = Input::open(&path).and_then(|input| {
        let settings = settings("zram", Pages::Real);
        replay(
            &input.trace,
            &input.lookahead,
            &Settings { budget_bytes: 8 << 20, ..settings },
            &mut |_, _| {},
        )
    });
    match found {
        Err(LabError::Trace { source: TraceError::Checksum { offset, .. }, .. }) => {
            assert!(offset < whole.len() as u64 / 2 + 1);
        }
        other => panic!("{other:?}"),
    }
    assert!(refused(b"no trace").contains("CLEWTRCE"));
}

#[test]
fn records_that_no_program_makes_are_refused_by_number() {
    let traces = Traces::new();
    let write = |record: Record| {
        let provenance = Provenance::new(Source::Generated, "a test");
        let header = Header { page_bytes: 4096, contents: ContentsKind::None, provenance };
        let draft = Draft::new(&traces.path(), false).expect("a draft");
        let mut writer = Writer::new(draft, &header).expect("a writer");
        writer.app(AppId(1), "app").expect("a name");
        for space in [1, 2] {
            let (space, app) = (SpaceId(space), AppId(1));
            let start = Record::SpaceStart { space, app, file: false };
            writer.record(Ns(0), start).expect("a space");
        }
        writer.record(Ns(0), record).expect("a record");
        writer.finish().expect("the end").0.commit().expect("a file");
        let settings = settings("zram", Pages::Weightless { ratio: None });
        let played = Input::open(&traces.path())
            .and_then(|input| replay(&input.trace, &input.lookahead, &settings, &mut |_, _| {}));
        played.expect_err("it makes no sense")
    };
    let page = |space, vpn| PageId::new(SpaceId(space), Vpn(vpn));
    let run = |vpn, count| PageRun { first: page(1, vpn), count };
    let cases = [
        (Record::Moved { from: run(10, 10), to: page(1, 15) }, "moved"),
        (Record::Moved { from: run(10, 10), to: page(2, 50) }, "moved"),
        (Record::Resident { run: run(10, u32::MAX) }, "pages"),
        (Record::Note(Note::Unused { run: run(10, u32::MAX) }), "pages"),
    ];
    for (record, word) in cases {
        let error = write(record);
        let text = error.to_string();
        assert!(text.contains("record 2") && text.contains(word), "{text}");
        assert!(error.is_bad_input());
    }
}
