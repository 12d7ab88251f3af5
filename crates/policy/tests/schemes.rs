//! Schemes read from TOML: what is taken, what is refused and what the refusal says.

use std::sync::Arc;

use clew_core::{ByteSize, CodecKind, Placement, Tier, Whole};
use clew_policy::admission::selective;
use clew_policy::eviction::{by_app, compressibility};
use clew_policy::packing::adaptive_comp::{self, ChunkSizes, Successive};
use clew_policy::packing::one_page::OnePage;
use clew_policy::packing::{adaptive_region, fixed_blocks};
use clew_policy::placement::flash_last::FlashLast;
use clew_policy::placement::pool::ToPool;
use clew_policy::placement::{adaptive_path, kernel_first};
use clew_policy::prefetch::pre_decomp::{self, Expire};
use clew_policy::prefetch::readahead::Readahead;
use clew_policy::prefetch::{asap, by_trigger, group, recorded_set};
use clew_policy::reclaim::ft_list;
use clew_policy::reclaim::hotness_org::{self, Front, HotAfter, Lists, Unseen};
use clew_policy::schemes::{self, About, Answer, OnFull, PoolKind, Registry};
use clew_policy::{Scheme, SchemeError};
use serde::{Deserialize, Serialize};

const ZRAM: &str = r#"
[scheme]
name = "zram"
reclaim = { kind = "lru" }
admission = { kind = "all" }
packing = { kind = "one-page", codec = "lz4", chunk = "4KiB" }
eviction = { kind = "none" }
placement = { kind = "pool" }
prefetch = { kind = "none" }
"#;

#[test]
fn the_preset_is_the_same_as_its_text() {
    assert_eq!(Scheme::from_toml(ZRAM).unwrap(), Scheme::preset("zram").unwrap());
}

#[test]
fn the_pool_is_chosen_by_the_scheme() {
    let text = ZRAM.replace("name = \"zram\"", "name = \"zram\"\npool = \"size-classes\"");
    let chosen = Scheme::from_toml(&text).expect("a scheme");
    assert_eq!(chosen.pool, PoolKind::SizeClasses);
    // Which is what it is where nothing is said, and is written down.
    assert_eq!(Ok(&chosen), Scheme::from_toml(ZRAM).as_ref());
    assert!(chosen.to_toml().contains("pool = \"size-classes\""), "{}", chosen.to_toml());
}

#[test]
fn every_preset_survives_being_written_and_read() {
    for scheme in schemes::all() {
        assert_eq!(Scheme::from_toml(&scheme.to_toml()).as_ref(), Ok(&scheme));
        assert_eq!(Scheme::preset(&scheme.name).as_ref(), Ok(&scheme));
    }
}

#[test]
fn every_parameter_survives_being_written_and_read() {
    let scheme = Scheme {
        name: "mine-1.0".to_string(),
        on_full: OnFull::Kill,
        disksize_pages: Some(786_432),
        mem_limit_bytes: Some(ByteSize(100 << 20)),
        retain: false,
        packing: Arc::new(OnePage { codec: CodecKind::Zstd, chunk: ByteSize(512) }),
        prefetch: Arc::new(Readahead { pages: Whole::of(8) }),
        ..Scheme::preset("zram").unwrap()
    };
    assert_eq!(Scheme::from_toml(&scheme.to_toml()), Ok(scheme));
}

#[test]
fn the_share_of_the_kernels_zram_is_read_and_survives_being_written() {
    let text = |placement: &str| ZRAM.replace("{ kind = \"pool\" }", placement);
    let read = |placement: &str| Scheme::from_toml(&text(placement));
    let scheme = read("{ kind = \"kernel-first\", share_pct = 30 }").expect("a scheme");
    let expected = kernel_first::Params { share_pct: Whole::of(30) };
    assert_eq!(scheme.placement.parameters(), Some(&expected));
    assert_eq!(scheme.kernel_share_pct(), 30);
    assert_eq!(Scheme::from_toml(&scheme.to_toml()), Ok(scheme));
    let whole = read("\"kernel-first\"").expect("a scheme");
    assert_eq!(whole.kernel_share_pct(), 100);
    let refused = read("{ kind = \"kernel-first\", share_pct = 0 }").expect_err("of nothing");
    assert!(refused.to_string().contains("share_pct"), "{refused}");
    assert_eq!(Scheme::preset("zram").expect("a preset").kernel_share_pct(), 0);
}

const ARIADNE: &str = r#"
[scheme]
name = "mine"
reclaim = { kind = "hotness-org", lists = "exclude-hot", initial_hot = "1MiB", unseen = "warm", hot_after = "second-use", front = "after-warm", others_kept_pct = 7 }
admission = "all"
packing = { kind = "adaptive-comp", sizes = "256B-4K-32K", codec = "zstd", hot_codec = "lz4", successive = "addresses", park_siblings = true }
eviction = "none"
placement = "pool"

[scheme.prefetch]
kind = "by-trigger"
relaunch = { kind = "recorded-set", relaunches = 2, batch_pages = 64, leave_out_one_in = 0 }
fault = { kind = "pre-decomp", buffer_pages = 128, expire = "keep" }
"#;

#[test]
fn every_parameter_of_ariadne_is_read_and_survives_being_written() {
    let scheme = Scheme::from_toml(ARIADNE).unwrap();
    let expected = Scheme {
        name: "mine".to_string(),
        reclaim: Arc::new(hotness_org::Params {
            lists: Lists::ExcludeHot,
            initial_hot: ByteSize(1 << 20),
            unseen: Unseen::Warm,
            hot_after: HotAfter::SecondUse,
            front: Front::AfterWarm,
            others_kept_pct: Whole::of(7),
        }),
        packing: Arc::new(adaptive_comp::Params {
            sizes: ChunkSizes { hot: 256, warm: 4096, cold: 32 << 10 },
            hot_codec: CodecKind::Lz4,
            warm_codec: CodecKind::Zstd,
            cold_codec: CodecKind::Zstd,
            successive: Successive::Addresses,
            park_siblings: true,
        }),
        prefetch: Arc::new(by_trigger::Params {
            relaunch: Arc::new(recorded_set::Params {
                relaunches: Whole::of(2),
                batch_pages: Whole::of(64),
                leave_out_one_in: Whole::of(0),
                pays_pct: Whole::of(0),
            }),
            fault: Arc::new(pre_decomp::Params {
                buffer_pages: Whole::of(128),
                expire: Expire::Keep,
            }),
        }),
        ..Scheme::preset("zram").unwrap()
    };
    assert_eq!(scheme, expected);
    assert_eq!(Scheme::from_toml(&scheme.to_toml()), Ok(scheme));
}

#[test]
fn left_out_parameters_are_the_paper_s() {
    let paper = Scheme::preset("ariadne-paper").unwrap();
    let text = ZRAM
        .replace("\"zram\"", "\"ariadne-paper\"\nretain = false")
        .replace("{ kind = \"lru\" }", "\"hotness-org\"")
        .replace(
            "{ kind = \"one-page\", codec = \"lz4\", chunk = \"4KiB\" }",
            "{ kind = \"adaptive-comp\", codec = \"lzo\" }",
        )
        .replace("eviction = { kind = \"none\" }", "eviction = \"cold-first\"")
        .replace("placement = { kind = \"pool\" }", "placement = \"flash-last\"")
        .replace("prefetch = { kind = \"none\" }", "prefetch = \"pre-decomp\"");
    assert_eq!(Scheme::from_toml(&text), Ok(paper));
}

/// Ariadne 4 and 5, written out by hand.
#[test]
fn ariadne_paper_is_what_the_paper_says() {
    let paper = Scheme::preset("ariadne-paper").unwrap();
    // Figure 1: what was brought back leaves the zpool.
    assert!(!paper.retain);
    let hotness_org = hotness_org::Params {
        lists: Lists::All,
        // The paper profiles it; before the first relaunch it is ours.
        initial_hot: ByteSize(32 << 20),
        // 4.2: "after relaunching an application, the system moves all old data in the hot list to
        // the warm list and adds the data from this relaunch to the hot list".
        unseen: Unseen::Warm,
        hot_after: HotAfter::FirstUse,
        front: Front::InClass,
        others_kept_pct: Whole::of(0),
    };
    assert_eq!(paper.reclaim.parameters(), Some(&hotness_org));
    let adaptive_comp = adaptive_comp::Params {
        sizes: ChunkSizes { hot: 1 << 10, warm: 2 << 10, cold: 16 << 10 },
        // Figure 12: "We evaluate LZO [71] compression algorithm".
        hot_codec: CodecKind::Lzo,
        warm_codec: CodecKind::Lzo,
        cold_codec: CodecKind::Lzo,
        successive: Successive::Victims,
        park_siblings: false,
    };
    assert_eq!(paper.packing.parameters(), Some(&adaptive_comp));
    // 4.2: "ensures cold data is swapped out first"; figure 4: compressed, to flash.
    let row = paper.row();
    assert!(row.eviction.starts_with("cold first"), "{}", row.eviction);
    assert_eq!(row.placement, "pool, then flash where there is one");
    // 4.4: "Otherwise, the data will be compressed again".
    let pre_decomp = pre_decomp::Params { buffer_pages: Whole::of(64), expire: Expire::Recompress };
    assert_eq!(paper.prefetch.parameters(), Some(&pre_decomp));
    assert_eq!(paper.missing(), [""; 0]);
    // What is not the paper's has another name.
    let ours = Scheme::preset("ariadne").unwrap();
    assert!(ours.retain);
    let reclaim = ours.reclaim.parameters::<hotness_org::Params>().expect("its parameters");
    assert_eq!(reclaim.unseen, Unseen::Keep);
}

/// Archer 4.2 to 4.4 and 5.1, written out by hand.
#[test]
fn archer_is_what_the_paper_says() {
    let archer = Scheme::preset("archer").unwrap();
    let ft_list = ft_list::Params {
        // 5.1: "woken up when the parameter order in one round reclamation is detected larger than 8".
        wide_pages: Whole::of(512),
        // "the queue length (Lq) and ring buffer size are set to 256 and 128KB", of 32 items of 8 bytes.
        queue: Whole::of(256),
        transactions: Whole::of((128 << 10) / (32 * 8)),
        // "the confidence and support count are set to 70% and 0.2".
        confidence_pct: Whole::of(70),
        support_pct: Whole::of(20),
        // "The width w and the timeout threshold are set to 32 and 3s".
        window: Whole::of(32),
        timeout_ms: Whole::of(3000),
        // 4.3.1: "a cycle of three seconds", "when CPU utilization exceeds 80%".
        heartbeat_ms: Whole::of(3000),
        busy_pct: Whole::of(80),
        // Ours: the paper says nothing.
        least_transactions: Whole::of(5),
        together: Whole::of(1),
        tree_nodes: Whole::of(131_072),
    };
    assert_eq!(archer.reclaim.parameters(), Some(&ft_list));
    // "we set the compression buffer as 128KB", "use lz4"; 4.4: the others wait in the swap cache.
    let region = adaptive_region::Params {
        codec: CodecKind::Lz4,
        buffer: ByteSize(128 << 10),
        park_siblings: true,
    };
    assert_eq!(archer.packing.parameters(), Some(&region));
    let group = group::Params { buffer_pages: Whole::of(1024) };
    assert_eq!(archer.prefetch.parameters(), Some(&group));
    // All else is the kernel's zram, as it is of those that it is compared with.
    let zram = Scheme::preset("zram").unwrap();
    for name in ["archer", "shsc", "asap"] {
        let scheme = Scheme::preset(name).unwrap();
        assert_eq!(scheme.missing(), [""; 0]);
        assert_eq!((scheme.retain, scheme.on_full), (zram.retain, zram.on_full));
        assert_eq!(scheme.placement.about(), zram.placement.about());
    }
}

const ARCHER: &str = r#"
[scheme]
name = "mine"
reclaim = { kind = "ft-list", wide_pages = 64, queue = 512, window = 16, timeout_ms = 100, heartbeat_ms = 500, busy_pct = 50, transactions = 64, least_transactions = 1, support_pct = 0, confidence_pct = 90, together = 2, tree_nodes = 4096 }
admission = "all"
packing = { kind = "adaptive-region", codec = "zstd", buffer = "512KiB", park_siblings = false }
eviction = "none"
placement = "pool"
prefetch = { kind = "by-trigger", relaunch = { kind = "asap", switches = 3, used_in = 2, batch_pages = 64 }, fault = { kind = "group", buffer_pages = 64 } }
"#;

#[test]
fn every_parameter_of_archer_is_read_and_survives_being_written() {
    let scheme = Scheme::from_toml(ARCHER).unwrap();
    let expected = Scheme {
        name: "mine".to_string(),
        reclaim: Arc::new(ft_list::Params {
            wide_pages: Whole::of(64),
            queue: Whole::of(512),
            window: Whole::of(16),
            timeout_ms: Whole::of(100),
            heartbeat_ms: Whole::of(500),
            busy_pct: Whole::of(50),
            transactions: Whole::of(64),
            least_transactions: Whole::of(1),
            support_pct: Whole::of(0),
            confidence_pct: Whole::of(90),
            together: Whole::of(2),
            tree_nodes: Whole::of(4096),
        }),
        packing: Arc::new(adaptive_region::Params {
            codec: CodecKind::Zstd,
            buffer: ByteSize(512 << 10),
            park_siblings: false,
        }),
        prefetch: Arc::new(by_trigger::Params {
            relaunch: Arc::new(asap::Params {
                switches: Whole::of(3),
                used_in: Whole::of(2),
                batch_pages: Whole::of(64),
            }),
            fault: Arc::new(group::Params { buffer_pages: Whole::of(64) }),
        }),
        ..Scheme::preset("zram").unwrap()
    };
    assert_eq!(scheme, expected);
    assert_eq!(Scheme::from_toml(&scheme.to_toml()), Ok(scheme));
    let fixed = ARCHER
        .replace("adaptive-region", "fixed-blocks")
        .replace("buffer = \"512", "block = \"512");
    let scheme = Scheme::from_toml(&fixed).unwrap();
    let block = fixed_blocks::Params {
        codec: CodecKind::Zstd,
        block: ByteSize(512 << 10),
        park_siblings: false,
    };
    assert_eq!(scheme.packing.parameters(), Some(&block));
    assert_eq!(Scheme::from_toml(&scheme.to_toml()), Ok(scheme));
    for (from, to, expected) in [
        (
            "512KiB",
            "1MiB",
            "scheme.packing.buffer = \"1MiB\" makes no sense: expected a power of two from 8KiB",
        ),
        ("512KiB", "24KiB", "a power of two"),
        // No use would come within it, and the window be waited for without end.
        ("timeout_ms = 100", "timeout_ms = 0", "scheme.reclaim.timeout_ms = 0 makes no sense"),
        ("zstd", "zstd-dictionary", "a dictionary is for single pages"),
        ("used_in = 2", "used_in = 4", "used_in and switches contradict each other"),
    ] {
        let message = Scheme::from_toml(&ARCHER.replace(from, to)).expect_err(to).to_string();
        assert!(message.contains(expected), "'{to}' gave: {message}");
    }
}

#[test]
fn every_mechanism_of_ariadne_can_be_switched_off() {
    let ariadne = Scheme::preset("ariadne").unwrap().to_toml();
    let zram = Scheme::preset("zram").unwrap();
    let table: toml::Table = ariadne.parse().unwrap();
    for (column, off) in
        [("reclaim", "lru"), ("packing", "one-page"), ("prefetch", "none"), ("retain", "false")]
    {
        let mut table = table.clone();
        let scheme = table["scheme"].as_table_mut().unwrap();
        let value = match off {
            "false" => toml::Value::Boolean(false),
            kind => toml::Value::String(kind.to_string()),
        };
        scheme.insert(column.to_string(), value);
        if column == "reclaim" {
            // Nobody keeps a hot list then.
            let prefetch = scheme["prefetch"].as_table_mut().unwrap();
            prefetch.insert("relaunch".to_string(), "recorded-set".into());
        }
        let scheme = Scheme::from_toml(&table.to_string()).unwrap();
        match column {
            "reclaim" => assert_eq!(scheme.reclaim.about(), zram.reclaim.about()),
            "packing" => assert_eq!(scheme.packing.about(), zram.packing.about()),
            "prefetch" => assert_eq!(scheme.prefetch.about(), zram.prefetch.about()),
            _ => assert!(!scheme.retain),
        }
        scheme.build();
    }
}

#[test]
fn a_column_may_be_written_as_its_kind() {
    let text = ZRAM.replace("{ kind = \"lru\" }", "\"lru\"");
    assert_eq!(Scheme::from_toml(&text).unwrap(), Scheme::preset("zram").unwrap());
}

#[test]
fn refusals_name_the_field_and_what_it_may_be() {
    let cases = [
        ("chunk = \"4KiB\"", "chunk = \"256KiB\"", "scheme.packing.chunk = \"256KiB\""),
        ("chunk = \"4KiB\"", "chunk = \"32KiB\"", "at most a page"),
        ("chunk = \"4KiB\"", "chunk = 3000", "expected a power of two from 256 to 16KiB"),
        ("chunk = \"4KiB\"", "chunk = 0", "scheme.packing.chunk = 0"),
        ("chunk = \"4KiB\"", "chunk = -4096", "scheme.packing.chunk = -4096"),
        ("chunk = \"4KiB\"", "chunk = true", "scheme.packing.chunk = true"),
        (
            "codec = \"lz4\"",
            "codec = \"lzma\"",
            "scheme.packing.codec = \"lzma\" makes no sense: unknown variant `lzma`, expected one of `raw`, \
             `lz4`, `zstd`, `zstd-dictionary`, `lzo`",
        ),
        (
            "codec =",
            "codek =",
            "scheme.packing.codek = \"lz4\" makes no sense: unknown field `codek`, expected `codec` or `chunk`",
        ),
        (
            "\"lru\"",
            "\"fifo\"",
            "scheme.reclaim.kind = \"fifo\" makes no sense: expected \"none\" or \"lru\" or \"hotness-org\"",
        ),
        (
            "reclaim = { kind = \"lru\" }",
            "reclaim = {}",
            "scheme.reclaim.kind: missing, expected \"none\" or",
        ),
        (
            "reclaim = { kind = \"lru\" }",
            "reclaim = 7",
            "scheme.reclaim = 7 makes no sense: expected \"none\" or \"lru\" or \"hotness-org\" or \"ft-list\" or \"least-used-app\" or \"least-recent-app\" or \"files-first\", or a table",
        ),
        (
            "reclaim = { kind = \"lru\" }\n",
            "",
            "scheme.reclaim: missing, expected \"none\" or \"lru\"",
        ),
        (
            "kind = \"lru\"",
            "kind = \"lru\", pages = 4",
            "scheme.reclaim.pages = 4 makes no sense: unknown field",
        ),
        ("name = \"zram\"", "name = \"\"", "scheme.name"),
        (
            "name = \"zram\"",
            "title = \"zram\"",
            "scheme.title = \"zram\" makes no sense: unknown field `title`, expected one of `name`",
        ),
        ("name = \"zram\"\n", "", "scheme.name: missing, expected 1 to 64"),
        (
            "name = \"zram\"",
            "name = \"zram\"\nretain = 1",
            "scheme.retain = 1 makes no sense: invalid type: integer `1`, expected a boolean",
        ),
        (
            "name = \"zram\"",
            "name = \"zram\"\non_full = \"panic\"",
            "scheme.on_full = \"panic\" makes no sense: unknown variant `panic`, expected `stop` or `kill`",
        ),
        (
            "name = \"zram\"",
            "name = \"zram\"\npool = \"zbud\"",
            "scheme.pool = \"zbud\" makes no sense: unknown variant `zbud`, expected `size-classes` or `z3fold`",
        ),
        (
            "name = \"zram\"",
            "name = \"zram\"\ndisksize_pages = 0",
            "scheme.disksize_pages = 0 makes no sense: invalid value: integer `0`, expected a nonzero",
        ),
        (
            "name = \"zram\"",
            "name = \"zram\"\nmem_limit_bytes = \"4K\"",
            "scheme.mem_limit_bytes = \"4K\" makes no sense: expected a size from 64.0 KiB",
        ),
        (
            "name = \"zram\"",
            "name = \"zram\"\nsped = 9",
            "scheme.sped = 9 makes no sense: unknown field",
        ),
        ("{ kind = \"pool\" }", "{ kind = \"none\" }", "contradict"),
        ("[scheme]", "[sceme]", "sceme: unknown field `sceme`, expected `scheme`"),
        ("[scheme]", "[other]\n[scheme]", "other: unknown field"),
        ("[scheme]", "[scheme", "not valid TOML"),
        (
            "{ kind = \"lru\" }",
            "{ kind = \"hotness-org\", lists = \"hot\" }",
            "scheme.reclaim.lists = \"hot\" makes no sense: unknown variant `hot`, expected `all` or `exclude-hot`",
        ),
        (
            "{ kind = \"lru\" }",
            "{ kind = \"hotness-org\", initial_hot = -1 }",
            "scheme.reclaim.initial_hot = -1 makes no sense: expected a size",
        ),
        (
            "\"one-page\", codec = \"lz4\", chunk = \"4KiB\"",
            "\"adaptive-comp\", sizes = \"8K-2K-16K\"",
            "scheme.packing.sizes = \"8K-2K-16K\" makes no sense: expected hot-warm-cold",
        ),
        (
            "\"one-page\", codec = \"lz4\", chunk = \"4KiB\"",
            "\"adaptive-comp\", cold_codec = \"lzma\"",
            "scheme.packing.cold_codec = \"lzma\" makes no sense: unknown variant `lzma`, expected one of `raw`, `lz4`",
        ),
        (
            "\"one-page\", codec = \"lz4\", chunk = \"4KiB\"",
            "\"one-page\", codec = \"zstd-dictionary\", chunk = \"1KiB\"",
            "scheme.packing: codec and chunk contradict each other",
        ),
        (
            "prefetch = { kind = \"none\" }",
            "prefetch = { kind = \"runs\", probe_one_in = 1 }",
            "scheme.prefetch.probe_one_in = 1 makes no sense: invalid value: integer `1`, expected a whole number from 2 to 1024",
        ),
        (
            "eviction = { kind = \"none\" }",
            "eviction = \"cold-first\"",
            "scheme.eviction and scheme.placement contradict each other",
        ),
        (
            "prefetch = { kind = \"none\" }",
            "prefetch = \"hot-list\"",
            "nobody keeps a hot list; choose reclaim \"hotness-org\"",
        ),
        (
            "prefetch = { kind = \"none\" }",
            "prefetch = { kind = \"recorded-set\", leave_out_one_in = 1 }",
            "scheme.prefetch.leave_out_one_in = 1 makes no sense: expected 0 (none), or",
        ),
        (
            "prefetch = { kind = \"none\" }",
            "prefetch = { kind = \"by-trigger\", relaunch = \"pre-decomp\", fault = \"pre-decomp\" }",
            "scheme.prefetch.relaunch.kind = \"pre-decomp\" makes no sense: expected \"recorded-set\" or \"hot-list\"",
        ),
        (
            "prefetch = { kind = \"none\" }",
            "prefetch = { kind = \"by-trigger\", relaunch = \"recorded-set\" }",
            "scheme.prefetch.fault: missing, expected \"readahead\" or \"cluster\"",
        ),
        (
            "prefetch = { kind = \"none\" }",
            "prefetch = { kind = \"by-trigger\", relaunch = \"hot-list\", fault = \"pre-decomp\" }",
            "nobody keeps a hot list",
        ),
        (
            "prefetch = { kind = \"none\" }",
            "prefetch = { kind = \"readahead\", pages = 0 }",
            "scheme.prefetch.pages = 0 makes no sense: invalid value: integer `0`, expected a whole number from 1 to 512",
        ),
        (
            "prefetch = { kind = \"none\" }",
            "prefetch = { kind = \"by-trigger\", relaunch = \"recorded-set\", fault = { kind = \"runs\", max_pages = 0 } }",
            "scheme.prefetch.fault.max_pages = 0 makes no sense: invalid value: integer `0`, expected a whole number from 1 to 512",
        ),
        (
            "prefetch = { kind = \"none\" }",
            "prefetch = { kind = \"by-trigger\", relaunch = \"recorded-set\", fault = { kind = \"by-trigger\" } }",
            "scheme.prefetch.fault.kind = \"by-trigger\" makes no sense: expected \"readahead\" or",
        ),
        (
            "prefetch = { kind = \"none\" }",
            "prefetch = { kind = \"by-trigger\", relaunch = \"recorded-set\", fault = \"runs\", hit = 7 }",
            "scheme.prefetch.hit = 7 makes no sense: unknown field, expected kind, relaunch or fault",
        ),
    ];
    assert!(Scheme::from_toml("").unwrap_err().to_string().starts_with("[scheme]: missing"));
    for (from, to, expected) in cases {
        let text = ZRAM.replacen(from, to, 1);
        assert_ne!(text, ZRAM, "the case '{to}' changes nothing");
        let message = Scheme::from_toml(&text).expect_err(to).to_string();
        assert!(message.contains(expected), "'{to}' gave: {message}");
    }
}

#[test]
fn an_unknown_preset_names_the_known_ones() {
    let error = Scheme::preset("zram2").unwrap_err();
    assert!(matches!(error, SchemeError::UnknownPreset { .. }));
    assert_eq!(
        error.to_string(),
        "there is no scheme 'zram2'; known: dram, nosw, zram, zswap, ezswap, ezswap-apa, ezswap-apa-sa, ezswap-apa-ca, ezswap-sa-ca, flash-swap, \
         zram-flash, ariadne, ariadne-paper, elasticzram, seal, archer, shsc, asap, mobileswap, remoteswap, cloudswap, clew (or name a TOML file)"
    );
}

#[test]
fn the_table_says_what_the_schemes_are() {
    let table = schemes::table();
    assert_eq!(table[0].reclaim, "nobody");
    assert_eq!(table[0].packing, "-");
    let of = |name: &str| table.iter().find(|row| row.name == name).expect("a row");
    let zram = of("zram");
    assert_eq!(
        [&zram.name, &zram.reclaim, &zram.admission, &zram.packing, &zram.placement],
        ["zram", "active/inactive LRU", "every anonymous page", "one page, LZ4", "pool"]
    );
    assert_eq!((zram.pool.as_str(), table[0].pool.as_str()), ("size classes", "-"));
    assert_eq!((zram.status, zram.missing.len()), ("complete", 0));
    let zswap = of("zswap");
    assert_eq!(
        [&zswap.name, &zswap.packing, &zswap.pool, &zswap.placement, &zswap.prefetch],
        [
            "zswap",
            "one page, LZO",
            "z3fold",
            "pool, then flash, decompressed, where there is one",
            "nothing"
        ]
    );
    assert!(zswap.eviction.starts_with("frames by last insertion"), "{}", zswap.eviction);
    let ariadne = of("ariadne");
    assert_eq!(
        [&ariadne.name, &ariadne.reclaim, &ariadne.packing, &ariadne.prefetch],
        [
            "ariadne",
            "HotnessOrg, all lists",
            "AdaptiveComp 1K-4K-16K, LZ4, LZ4, zstd",
            "hot list at relaunch; PreDecomp"
        ]
    );
    assert_eq!((ariadne.status, ariadne.missing.len()), ("complete", 0));
    let clew = table.last().expect("clew is the last");
    assert_eq!((clew.name.as_str(), clew.status, clew.missing.len()), ("clew", "partial", 1));
}

/// Frames are evicted where there are some.
#[test]
fn frames_leave_a_pool_of_frames_only() {
    let zswap = Scheme::preset("zswap").unwrap();
    assert!(!zswap.retain, "what comes back leaves the pool");
    assert_eq!(Scheme::from_toml(&zswap.to_toml()), Ok(zswap.clone()));
    let other = Scheme { pool: PoolKind::SizeClasses, ..zswap };
    let said = Scheme::from_toml(&other.to_toml()).unwrap_err().to_string();
    assert_eq!(
        said,
        "scheme.eviction and scheme.pool contradict each other: frames can leave a pool in which \
         few zpages share one; choose pool \"z3fold\""
    );
}

const ELASTIC_ZRAM: &str = r#"
[scheme]
name = "elastic"
reclaim = "least-used-app"
admission = "all"
packing = "one-page"
eviction = { kind = "by-app", u1_pct = 30, life = "1GiB" }
prefetch = "none"

[scheme.placement]
kind = "adaptive-path"
u1_pct = 30
u2_pct = 80
life = "1GiB"
share_pct = 50
delta_pct = 100
responses = 8
compressed = true
sample_s = 60
"#;

#[test]
fn every_parameter_of_elastic_zram_is_read_and_survives_being_written() {
    let scheme = Scheme::from_toml(ELASTIC_ZRAM).expect("a scheme");
    let life = Some(ByteSize(1 << 30));
    let expected = Scheme {
        name: "elastic".to_string(),
        eviction: Arc::new(by_app::Params { u1_pct: Whole::of(30), life }),
        placement: Arc::new(adaptive_path::Params {
            u1_pct: Whole::of(30),
            u2_pct: Whole::of(80),
            life,
            share_pct: Whole::of(50),
            delta_pct: Whole::of(100),
            responses: Whole::of(8),
            compressed: true,
            sample_s: Whole::of(60),
        }),
        ..Scheme::preset("elasticzram").expect("a preset")
    };
    assert_eq!(scheme, expected);
    assert_eq!(scheme.device_sample_s(), Some(60));
    assert_eq!(Scheme::from_toml(&scheme.to_toml()), Ok(scheme));
    let late = ELASTIC_ZRAM.replace("u1_pct = 30\nu2", "u1_pct = 81\nu2");
    let error = Scheme::from_toml(&late).expect_err("it ends before it begins").to_string();
    assert!(error.contains("scheme.placement") && error.contains("u1_pct"), "{error}");
}

/// ElasticZRAM 3.3, 3.4, 4.1 and 4.3, written out by hand.
#[test]
fn elastic_zram_and_what_it_is_compared_with_are_what_the_paper_says() {
    let of = |name| Scheme::preset(name).expect("a preset");
    let elastic = of("elasticzram");
    let placement = adaptive_path::Params {
        // 3.3: "In our implementation, U1 is 40%, and U2 is 85%".
        u1_pct: Whole::of(40),
        u2_pct: Whole::of(85),
        // No figure is given for the device's life.
        life: None,
        // 4.3: "The initial value of ZRAM tends to be around 30%-50%".
        share_pct: Whole::of(40),
        // 3.4: "If it is set to 20%".
        delta_pct: Whole::of(20),
        // "N depends on the usage frequency of an application": as many as are kept.
        responses: Whole::of(32),
        // 2.2.1: "the page is decompressed and written to the storage device".
        compressed: false,
        // Algorithm 1, line 28: "Once a day".
        sample_s: Whole::of(24 * 60 * 60),
    };
    assert_eq!(elastic.placement.parameters(), Some(&placement));
    assert_eq!(elastic.reclaim.about().kind, "least-used-app");
    let eviction = by_app::Params { u1_pct: Whole::of(40), life: None };
    assert_eq!(elastic.eviction.parameters(), Some(&eviction));
    // 4.1: the schemes it is compared with.
    let flash_swap = of("flash-swap");
    assert!(flash_swap.needs_flash() && flash_swap.placement.about().kind == "flash");
    let zram_flash = of("zram-flash");
    assert_eq!(zram_flash.placement.parameters(), Some(&FlashLast { compressed: false }));
    assert_eq!(zram_flash.eviction.about().kind, "oldest-first");
    let seal = of("seal");
    assert!(seal.uses(Tier::Flash) && !seal.needs_flash() && seal.eviction.about().idle);
    for scheme in [elastic, flash_swap, zram_flash, seal] {
        assert!(scheme.uses(Tier::Flash) && scheme.missing().is_empty(), "{}", scheme.name);
    }
    // Nothing ever leaves.
    let nosw = of("nosw");
    assert!(nosw.reclaim.about().idle && nosw.on_full == OnFull::Kill && !nosw.uses(Tier::Flash));
}

const EZSWAP: &str = r#"
[scheme]
name = "mine"
pool = "z3fold"
retain = false
mem_limit_bytes = "100MiB"
reclaim = "files-first"
admission = { kind = "selective", files = true, sample_bytes = 256 }
packing = { kind = "one-page", codec = "lzo" }
eviction = { kind = "compressibility", free_pct = 50, seed = 7 }
placement = { kind = "flash-last", compressed = false }
prefetch = "none"
"#;

#[test]
fn every_parameter_of_ezswap_is_read_and_survives_being_written() {
    let scheme = Scheme::from_toml(EZSWAP).expect("a scheme");
    let expected = Scheme {
        name: "mine".to_string(),
        mem_limit_bytes: Some(ByteSize(100 << 20)),
        admission: Arc::new(selective::Params { files: true, sample_bytes: Whole::of(256) }),
        eviction: Arc::new(compressibility::Params { free_pct: Whole::of(50), seed: Whole::of(7) }),
        ..Scheme::preset("ezswap").expect("a preset")
    };
    assert_eq!(scheme, expected);
    assert_eq!(Scheme::from_toml(&scheme.to_toml()), Ok(scheme));
}

/// ezswap II-B, III and IV-A, written out by hand.
#[test]
fn ezswap_and_its_parts_are_what_the_paper_says() {
    let of = |name| Scheme::preset(name).expect("a preset");
    let zswap = of("zswap");
    // Which mechanisms each label of IV-B is made of: all-page accommodation, selective admission,
    // compressibility-aware replacement.
    for (name, apa, sa, ca) in [
        ("zswap", false, false, false),
        ("ezswap-sa-ca", false, true, true),
        ("ezswap-apa", true, false, false),
        ("ezswap-apa-sa", true, true, false),
        ("ezswap-apa-ca", true, false, true),
        ("ezswap", true, true, true),
    ] {
        let scheme = of(name);
        let admission = scheme.admission.about();
        assert_eq!((admission.takes_files, admission.rejects), (apa, sa), "{name}");
        let eviction = if ca { "compressibility" } else { "z3fold-lru" };
        assert_eq!(scheme.eviction.about().kind, eviction, "{name}");
        // All else is zswap's: z3fold, LZO, what is found leaves the pool, what is evicted is decompressed.
        let rest = Scheme {
            name: "zswap".to_string(),
            admission: zswap.admission.clone(),
            eviction: zswap.eviction.clone(),
            ..scheme.clone()
        };
        assert_eq!(rest, zswap, "{name}");
        assert!(scheme.missing().is_empty() && scheme.takes_files(), "{name}");
        // What is rejected has no other place.
        assert_eq!((scheme.needs_flash(), scheme.uses(Tier::Flash)), (sa, true), "{name}");
    }
    // III-B: "we used only the first 512 bytes of a page".
    let admission = selective::Params { files: true, sample_bytes: Whole::of(512) };
    assert_eq!(of("ezswap").admission.parameters(), Some(&admission));
    // III-C and figure 7: a quarter of a frame.
    let eviction = of("ezswap").eviction;
    let quarter = compressibility::Params { free_pct: Whole::of(25), ..Default::default() };
    assert_eq!(eviction.parameters(), Some(&quarter));
    assert_eq!((zswap.pool, zswap.retain), (PoolKind::Z3fold, false));
    let packing: Option<&OnePage> = zswap.packing.parameters();
    assert_eq!(packing.map(|packing| packing.codec), Some(CodecKind::Lzo));
    assert_eq!(zswap.placement.parameters(), Some(&FlashLast { compressed: false }));
}

/// What makes no sense together is refused, and it is said what would.
#[test]
fn parts_of_ezswap_need_each_other() {
    let refused = |from: &str, to: &str| {
        let text = EZSWAP.replace(from, to);
        assert_ne!(text, EZSWAP);
        Scheme::from_toml(&text).expect_err(to).to_string()
    };
    let pool_only = refused("{ kind = \"flash-last\", compressed = false }", "\"pool\"");
    assert!(pool_only.contains("needs another place"), "{pool_only}");
    let files = refused("files-first", "lru");
    assert!(files.contains("scheme.reclaim") && files.contains("files-first"), "{files}");
    let frames = refused("z3fold", "size-classes");
    assert!(frames.contains("scheme.pool"), "{frames}");
    let small = refused("sample_bytes = 256", "sample_bytes = 1024");
    assert!(small.contains("scheme.admission.sample_bytes = 1024"), "{small}");
}

/// A placement of somebody else.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct ToKernel {
    share_pct: Whole<1, 100, 50>,
}

impl Answer<dyn Placement> for ToKernel {
    fn about(&self) -> About {
        let tiers = &[Tier::Pool, Tier::Kernel];
        About { tiers, ..About::of("to-kernel", format!("{} % kernel", self.share_pct.get())) }
    }

    fn build(&self) -> Box<dyn Placement> {
        Box::new(ToPool)
    }

    fn validate(&self) -> Result<(), String> {
        if self.share_pct.get() == 13 { Err("13 brings bad luck".to_string()) } else { Ok(()) }
    }
}

#[test]
fn a_kind_of_somebody_else_is_read_with_the_tiers_that_there_are() {
    let mut registry = Registry::default();
    registry.placement = registry.placement.with::<ToKernel>();
    let text = |placement: &str| {
        ZRAM.replace("{ kind = \"pool\" }", placement)
            .replace("eviction = { kind = \"none\" }", "eviction = \"cold-first\"")
    };
    let whole = text("{ kind = \"to-kernel\", share_pct = 20 }");
    let says = |registry: &Registry, text: &str| {
        registry.read(text).expect_err("it makes no sense").to_string()
    };
    assert_eq!(
        says(&registry, &whole),
        "scheme.placement: there is no tier Kernel here, only [Pool, Flash, Donor(DonorId(0))]"
    );
    registry.tiers.push(Tier::Kernel);
    let scheme = registry.read(&whole).expect("there is such a tier");
    assert_eq!(scheme.tiers(), [Tier::Pool, Tier::Kernel]);
    assert!(!scheme.uses(Tier::Flash));
    assert_eq!(scheme.row().placement, "20 % kernel");
    assert_eq!(registry.read(&scheme.to_toml()), Ok(scheme));
    assert_eq!(
        says(&registry, &text("{ kind = \"to-kernel\", share_pct = 13 }")),
        "scheme.placement: 13 brings bad luck"
    );
    let unknown = Scheme::from_toml(&whole).expect_err("nobody else knows it").to_string();
    let expected = "scheme.placement.kind = \"to-kernel\" makes no sense: expected \"none\" or \"pool\" or \
                    \"flash-last\" or \"kernel-first\" or \"flash\" or \"launch-pages\" or \"adaptive-path\" or \"donors\" or \
                    \"app-aware\" or \"read-local\"";
    assert_eq!(unknown, expected);
    // What leaves the pool needs a place beyond it.
    assert!(says(&registry, &text("\"pool\"")).contains("contradict each other"));
}
