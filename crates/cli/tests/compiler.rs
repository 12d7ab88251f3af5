//! gcc under a storm: its object is the same to the byte.

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::Command;

use clew_fixture::storm::{CONFIG, LIMIT, Storm, rounds};
use clew_fixture::*;

/// Some 25,000 lines: functions for the optimizer, and a table that the parser must hold.
fn source() -> String {
    const FUNCTIONS: u64 = 300;
    const ROWS: u64 = 22_000;
    let mut random = Random(7);
    let mut draw = |limit| random.below(limit);
    let mut text = "#include <stdint.h>\n\
        struct row { const char *name; uint32_t (*act)(uint32_t); uint32_t n[4]; };\n"
        .to_string();
    for function in 0..FUNCTIONS {
        let _ = writeln!(text, "static uint32_t f{function}(uint32_t x) {{");
        for _ in 0..10 {
            let _ = match draw(4) {
                0 => writeln!(text, "  x ^= x << {};", 1 + draw(20)),
                1 => writeln!(text, "  x += x / {}u;", 1 + draw(999)),
                2 => writeln!(text, "  if (x % {} == 1) x *= {}u;", 2 + draw(99), draw(9999)),
                _ => writeln!(text, "  for (int j = 0; j < {}; j++) x += x * j;", 2 + draw(9)),
            };
        }
        text.push_str("  return x;\n}\n");
    }
    text.push_str("struct row table[] = {\n");
    for row in 0..ROWS {
        let (name, act, n) = (draw(1 << 24), draw(FUNCTIONS), draw(99_999));
        let _ =
            writeln!(text, "  {{\"name{name:x}\", f{act}, {{{n}, {n}u ^ 7, {row}, 3 * {row}}}}},");
    }
    text.push_str("};\n");
    text
}

#[test]
fn an_object_is_identical() {
    let test = "compiler::an_object_is_identical";
    if !can_run(test, &["gcc"]) {
        return;
    }
    let dir = TempDir::new();
    let file = dir.join("table.c");
    fs::write(&file, source()).expect("written");
    let words = |object: &Path| {
        let path = |path: &Path| path.to_str().expect("UTF-8").to_string();
        let fixed = ["gcc", "-O2", "-c", "-o"].map(String::from);
        fixed.into_iter().chain([path(object), path(&file)]).collect::<Vec<_>>()
    };
    let twin = dir.join("twin.o");
    let twins_words = words(&twin);
    let output = run_to_end(Command::new(&twins_words[0]).args(&twins_words[1..]), LIMIT);
    assert!(output.status.success(), "{}", texts(&output));
    let wanted = fs::read(&twin).expect("an object");
    assert!(wanted.len() > 1 << 20, "{} bytes", wanted.len());
    for _ in 0..rounds() {
        // It needs some 130 MiB.
        let mut fixture = Fixture::start_configured("80MiB", "clew", CONFIG);
        let object = dir.join("managed.o");
        let mut gcc = [fixture.run("gcc", &words(&object))];
        let storm = Storm::over(&mut fixture, &mut gcc, 4);
        let status = gcc[0].wait(LONG);
        assert!(status.success(), "{status}\n{}{}", gcc[0].report(), fixture.log());
        assert!(fs::read(&object).expect("an object") == wanted, "the objects differ");
        fs::remove_file(&object).expect("it is there");
        storm.was_one("gcc", 20_000);
        fixture.wait_all_freed("gcc");
    }
}
