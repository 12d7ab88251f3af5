//! The verbs that only look, and the ones that say what is in front.

use clew_fixture::*;
use clew_live::control::status::Status;
use serde_json::Value;

#[test]
fn every_verb_explains_itself() {
    let all = run_to_end(clew().arg("--help"), LONG);
    assert!(all.status.success(), "{}", texts(&all));
    let help = String::from_utf8_lossy(&all.stdout).into_owned();
    assert!(help.lines().all(|line| line.chars().count() <= 100), "{help}");
    let verbs = verbs(&help);
    for verb in
        ["doctor", "daemon", "run", "ps", "top", "fg", "bg", "stop", "schemes", "demo", "bench"]
    {
        assert!(verbs.iter().any(|v| v == verb), "'{verb}' is not in the help:\n{help}");
    }
    for verb in &verbs {
        let output = run_to_end(clew().args([verb, "--help"]), LONG);
        assert!(output.status.success(), "{verb}: {}", texts(&output));
        assert!(!output.stdout.is_empty(), "{verb} has no help");
    }
}

/// Whatever makes no sense is said on one line, with exit code 2.
#[test]
fn what_makes_no_sense_is_said_on_one_line() {
    let dir = TempDir::new();
    let file = |name: &str, text: &[u8]| {
        std::fs::write(dir.join(name), text).expect("a file");
        dir.join(name).to_str().expect("UTF-8").to_string()
    };
    let broken = file("broken.toml", b"budget = \n");
    let unknown = file("unknown.toml", b"foo = 3\n");
    let deep = file("deep.toml", format!("a = {}", "[".repeat(100_000)).as_bytes());
    let no_text = file("no-text.toml", b"a = \"\xff\"\n");
    let directory = dir.path().to_str().expect("UTF-8");
    for words in [
        &["demo", "--switches", "x"][..],
        &["demo", "--total", "0"],
        &["donate", "--memory", "0", "--listen", "127.0.0.1:0", "--keys", directory],
        &["mount"],
        &["nosuch"],
        &["ps", "--nosuch"],
        &["replay", "x", "--scheme", "a\nb"],
        &["daemon", "--config", &broken],
        &["daemon", "--config", &unknown],
        &["daemon", "--config", &deep],
        &["daemon", "--config", &no_text],
        &["sweep", &broken],
        &["sweep", &no_text],
        &["sweep", directory],
        &["replay", "/dev/null", "--scheme", "zram", "--total", "1GiB", "--costs", &broken],
        &["trace", "verify", "/dev/null"],
        &["trace", "verify", directory],
        &["import", "ariadne", &broken, "-o", &format!("{directory}/x.trace")],
    ] {
        let output = run_to_end(clew().args(words).current_dir(dir.path()), LONG);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{words:?}: {}", texts(&output));
        let lines: Vec<&str> = said.lines().collect();
        assert!(lines.len() == 1 && said.starts_with("clew: "), "{words:?}: {said}");
        assert!(said.len() < 2000, "{words:?}: {} bytes", said.len());
    }
    // A variable that says nothing is none.
    let output = run_to_end(clew().args(["schemes"]).env("CLEW_SOCKET", ""), LONG);
    assert!(output.status.success(), "{}", texts(&output));
}

/// The verbs that the help lists.
fn verbs(help: &str) -> Vec<String> {
    let after = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let lines = after.take_while(|line| !line.is_empty());
    // What goes on from the line before is indented further.
    let verbs = lines.filter_map(|line| line.strip_prefix("  ").filter(|l| !l.starts_with(' ')));
    let verbs = verbs.filter_map(|line| line.split_whitespace().next());
    verbs.map(str::to_string).filter(|verb| verb != "help").collect()
}

#[test]
fn completions_and_man_pages_know_every_verb_and_option() {
    let help = run_to_end(clew().arg("--help"), LONG);
    let verbs = verbs(&String::from_utf8_lossy(&help.stdout));
    assert!(verbs.len() > 10, "{verbs:?}");
    let dir = TempDir::new();
    let written = run_to_end(clew().arg("man").arg(dir.path()), LONG);
    assert!(written.status.success(), "{}", texts(&written));
    for verb in &verbs {
        let page = std::fs::read_to_string(dir.join(format!("clew-{verb}.1")));
        let page = page.unwrap_or_else(|e| panic!("no page of '{verb}': {e}")).replace('\\', "");
        let explained = run_to_end(clew().args([verb, "--help"]), LONG);
        let explained = String::from_utf8_lossy(&explained.stdout).into_owned();
        let lines = explained.lines().map(str::trim_start).filter(|line| line.starts_with('-'));
        for option in lines.filter_map(|l| l.split([' ', '=', '[']).find(|w| w.starts_with("--"))) {
            assert!(page.contains(option), "{option} is not on the page of '{verb}'");
        }
    }
    let link = dir.join("clew-ps.1");
    std::fs::write(dir.join("elsewhere"), "precious").expect("it can be written");
    std::fs::remove_file(&link).expect("it is there");
    std::os::unix::fs::symlink(dir.join("elsewhere"), &link).expect("a link");
    let written = run_to_end(clew().arg("man").arg(dir.path()), LONG);
    assert!(written.status.success(), "{}", texts(&written));
    let elsewhere = std::fs::read_to_string(dir.join("elsewhere")).expect("still there");
    assert_eq!(elsewhere, "precious", "written to through a link");
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let output = run_to_end(clew().args(["completions", shell]), LONG);
        assert!(output.status.success(), "{shell}: {}", texts(&output));
        let script = String::from_utf8_lossy(&output.stdout).into_owned();
        for word in verbs.iter().map(String::as_str).chain(["metrics-public", "once"]) {
            assert!(script.contains(word), "{shell} does not know '{word}'");
        }
    }
}

#[test]
fn schemes_are_listed() {
    let output = run_to_end(clew().arg("schemes"), LONG);
    assert!(output.status.success(), "{}", texts(&output));
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("dram") && text.contains("zram"), "{text}");
    let output = run_to_end(clew().args(["schemes", "--format", "json"]), LONG);
    assert!(output.status.success(), "{}", texts(&output));
    let list: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert!(list.to_string().contains("\"zram\""), "{list}");
}

#[test]
fn doctor_reports() {
    let output = run_to_end(clew().arg("doctor"), 2 * LONG);
    // It says what is missing by its exit code too.
    assert!(matches!(output.status.code(), Some(0 | 3)), "{}", texts(&output));
    let text = String::from_utf8_lossy(&output.stdout).to_lowercase();
    assert!(text.contains("userfaultfd"), "{}", texts(&output));
    let output = run_to_end(clew().args(["doctor", "--format", "json"]), 2 * LONG);
    serde_json::from_slice::<Value>(&output.stdout).expect("JSON");
}

#[test]
fn ps_shows_apps_and_fg_and_bg_change_them() {
    if !can_run("commands::ps", &["cc"]) {
        return;
    }
    let mut fixture = Fixture::start("1GiB");
    let ps = || -> Status {
        let output = fixture.verb(&["ps", "--format", "json"]);
        assert!(output.status.success(), "{}", texts(&output));
        serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}", texts(&output)))
    };
    let empty = ps();
    assert_eq!(empty.scheme, "zram");
    assert_eq!(empty.budget_bytes, 1 << 30);
    assert!(empty.apps.is_empty(), "{empty:?}");
    assert!(empty.daemon_bytes > 0);

    let mut program = fixture.run_touch("mine", 8192, 60, 1);
    let state = |wanted: &str, stored: bool| {
        let status = ps();
        let app = status.apps.iter().find(|app| app.name == "mine").expect("the app is listed");
        assert_eq!(app.state, wanted, "{app:?}");
        assert_eq!(app.stored_pages > 0, stored, "{app:?}");
        let process = app.processes.iter().find(|p| p.pid == program.pid).expect("its process");
        assert!(process.managed && process.reason.is_empty(), "{process:?}");
        assert!(process.command.starts_with("touch"), "{process:?}");
        (app.ratio, app.faults, app.restored_pages)
    };
    let bg = fixture.verb(&["bg", "mine"]);
    assert!(bg.status.success(), "{}", texts(&bg));
    state("background", false);
    fixture.swap_out_at_least("mine", 8192 * 4096 * 8 / 10);
    let (ratio, _, _) = state("background", true);
    assert!(ratio > 1.5, "60 % of each page repeats: ratio {ratio}");
    let fg = fixture.verb(&["fg", "mine"]);
    assert!(fg.status.success(), "{}", texts(&fg));
    let status = ps();
    assert_eq!(status.apps[0].state, "foreground", "{status:?}");
    let table = fixture.verb(&["ps"]);
    assert!(table.status.success() && String::from_utf8_lossy(&table.stdout).contains("mine"));
    program.expect("touch seq", "touched 8192 bad 0");
    let status = ps();
    assert!(status.apps[0].restored_pages >= 8192 * 8 / 10, "{status:?}");
    program.quit();
    fixture.assert_daemon_lives();
}

#[test]
fn run_without_a_daemon_starts_a_private_one() {
    if !can_run("commands::run_without_a_daemon_starts_a_private_one", &[]) {
        return;
    }
    // Under a name that no daemon serves: it works, hands on the status, and leaves nothing behind.
    let dir = TempDir::new();
    let socket = dir.join("private");
    let mut command = clew();
    command
        .arg("run")
        .arg("--socket")
        .arg(&socket)
        .args(["--scheme", "zram", "--budget", "256MiB"]);
    command.args(["--", "sh", "-c", "echo works; exit 5"]);
    let output = run_to_end(&mut command, LONG);
    assert_eq!(output.status.code(), Some(5), "{}", texts(&output));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "works\n");
}
