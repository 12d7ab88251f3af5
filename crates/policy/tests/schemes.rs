//! Schemes read from TOML: what is taken, what is refused and what the refusal says.

use clew_core::{ByteSize, CodecKind};
use clew_policy::schemes::{self, OnFull, PackingChoice, PrefetchChoice};
use clew_policy::{Scheme, SchemeError};

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
        packing: PackingChoice::OnePage { codec: CodecKind::Zstd, chunk: ByteSize(512) },
        prefetch: PrefetchChoice::Readahead { pages: 8 },
        ..Scheme::preset("zram").unwrap()
    };
    assert_eq!(Scheme::from_toml(&scheme.to_toml()), Ok(scheme));
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
        ("chunk = \"4KiB\"", "chunk = 3000", "a power of two from 256 to 128KiB"),
        ("chunk = \"4KiB\"", "chunk = 0", "scheme.packing.chunk = 0"),
        ("chunk = \"4KiB\"", "chunk = -4096", "scheme.packing.chunk = -4096"),
        ("chunk = \"4KiB\"", "chunk = true", "scheme.packing.chunk = true"),
        ("codec = \"lz4\"", "codec = \"lzma\"", "\"lz4\" or \"zstd\" or \"raw\""),
        ("codec =", "codek =", "scheme.packing.codek is not known; allowed here: kind, codec"),
        ("\"lru\"", "\"fifo\"", "scheme.reclaim.kind = \"fifo\" makes no sense; allowed: \"none\""),
        ("reclaim = { kind = \"lru\" }", "reclaim = {}", "scheme.reclaim.kind is missing"),
        (
            "reclaim = { kind = \"lru\" }",
            "reclaim = 7",
            "{ kind = \"none\" } or { kind = \"lru\" } or { kind = \"hotness-org\" }",
        ),
        ("reclaim = { kind = \"lru\" }\n", "", "scheme.reclaim is missing"),
        ("kind = \"lru\"", "kind = \"lru\", pages = 4", "scheme.reclaim.pages is not known"),
        ("name = \"zram\"", "name = \"\"", "scheme.name"),
        ("name = \"zram\"", "title = \"zram\"", "scheme.title is not known"),
        ("name = \"zram\"\n", "", "scheme.name is missing"),
        ("name = \"zram\"", "name = \"zram\"\nretain = 1", "true or false"),
        ("name = \"zram\"", "name = \"zram\"\non_full = \"panic\"", "\"stop\" or \"kill\""),
        ("name = \"zram\"", "name = \"zram\"\ndisksize_pages = 0", "scheme.disksize_pages = 0"),
        ("name = \"zram\"", "name = \"zram\"\nmem_limit_bytes = \"4K\"", "a size from 64KiB"),
        ("name = \"zram\"", "name = \"zram\"\nsped = 9", "scheme.sped is not known"),
        ("{ kind = \"pool\" }", "{ kind = \"none\" }", "contradict"),
        ("[scheme]", "[sceme]", "[scheme] is missing"),
        ("[scheme]", "[other]\n[scheme]", "other is not known"),
        ("[scheme]", "[scheme", "not valid TOML"),
        (
            "prefetch = { kind = \"none\" }",
            "prefetch = { kind = \"readahead\", pages = 0 }",
            "scheme.prefetch.pages = 0 makes no sense; allowed: a whole number from 1 to 512",
        ),
    ];
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
        "there is no scheme 'zram2'; known: dram, zram, ariadne, ariadne-paper (or name a TOML file)"
    );
}

#[test]
fn the_table_says_what_the_schemes_are() {
    let table = schemes::table();
    assert_eq!(table[0].reclaim, "nobody");
    assert_eq!(table[0].packing, "-");
    let zram = &table[1];
    assert_eq!(
        [&zram.name, &zram.reclaim, &zram.admission, &zram.packing, &zram.placement],
        ["zram", "active/inactive LRU", "every anonymous page", "one page, LZ4", "pool"]
    );
}
