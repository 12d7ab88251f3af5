//! PostgreSQL as its own user, which is not root's: under a daemon of that user it is managed, under
//! root's it plainly is not. Each answer is compared with that of a server without Clew.

use std::path::{Path, PathBuf};
use std::process::Command;

use clew_fixture::other_user::{ID, OtherUser, as_other_user, directory_of_theirs};
use clew_fixture::storm::{CONFIG, LIMIT, rounds};
use clew_fixture::*;

/// Each answers with one line. The memory is that of sorts and hashes: a backend's own.
const QUERIES: [&str; 6] = [
    "create temp table t as select i as id, i * 7919 % 10007 as n, md5(i::text) as body \
     from generate_series(1, 30000) i; select 'filled';",
    "select count(*), sum(n), md5(string_agg(body, '' order by body)) from t;",
    "update t set body = md5(body || n) where n % 3 = 0; select sum(length(body)) from t;",
    "select md5(string_agg(x, ',' order by x)) from (select a.n || ':' || count(*) || max(b.body) x \
     from t a join t b on a.n = b.n group by a.n) q;",
    "select md5(string_agg(x, '' order by x desc)) \
     from (select md5(i::text) x from generate_series(1, 120000) i) q;",
    "select count(distinct body), min(body), max(body) from t;",
];

/// A program of PostgreSQL's, on the path or where Debian has it.
fn installed(name: &str) -> Option<String> {
    let debian = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let dirs = debian.map(|version| version.path().join("bin")).chain(std::env::split_paths(&path));
    let mut found = dirs.map(|dir| dir.join(name)).filter(|program| program.is_file());
    found.next().map(|program| program.to_str().expect("UTF-8").to_string())
}

/// Clusters in `dir`, made by their user.
struct Clusters {
    dir: PathBuf,
    postgres: String,
    psql: String,
}

impl Clusters {
    fn in_dir(dir: &Path, names: &[&str]) -> Option<Clusters> {
        let initdb = installed("initdb")?;
        let clusters = Clusters {
            dir: dir.to_path_buf(),
            postgres: installed("postgres")?,
            psql: installed("psql")?,
        };
        for name in names {
            let data = clusters.path(name);
            let words =
                [&initdb, "-D", &data, "-A", "trust", "-U", "me", "--no-sync", "--locale=C"];
            let words = as_other_user(&words.map(String::from));
            let output =
                run_to_end(Command::new(&words[0]).args(&words[1..]).current_dir(dir), LIMIT);
            assert!(output.status.success(), "initdb: {}", texts(&output));
        }
        Some(clusters)
    }

    fn path(&self, name: &str) -> String {
        self.dir.join(name).to_str().expect("UTF-8").to_string()
    }

    /// Its server; its socket is in its directory.
    fn server(&self, name: &str) -> Vec<String> {
        let data = self.path(name);
        let words = [&self.postgres, "-D", &data, "-k", &data, "-c", "listen_addresses="];
        let mut words: Vec<String> = words.map(String::from).into();
        let memory = ["jit=off", "fsync=off", "work_mem=256MB", "temp_buffers=64MB"];
        memory.iter().for_each(|setting| words.extend(["-c".into(), setting.to_string()]));
        words
    }

    /// A client that answers queries line by line, once the server does.
    fn client(&self, dir: &TempDir, name: &str) -> Program {
        let data = self.path(name);
        let words = ["-h", &data, "-U", "me", "-d", "postgres", "-Atq", "-v", "ON_ERROR_STOP=1"];
        let answers = || {
            let mut psql = Command::new(&self.psql);
            let output = run_to_end(psql.args(words).args(["-c", "select 1"]), LONG);
            output.status.success().then_some(())
        };
        poll(2 * LONG, answers).unwrap_or_else(|| panic!("server {name} does not answer"));
        let mut psql = Command::new(&self.psql);
        psql.args(words);
        Program::start(dir, &format!("psql-{name}"), psql)
    }
}

/// Ends a server as an administrator does.
fn shut_down(mut server: Program) {
    terminate(server.pid);
    let status = server.wait(LONG);
    assert!(status.success(), "{}: {status}\n{}", server.name, server.report());
}

fn can_run_here(test: &str, dir: &Path, names: &[&str]) -> Option<Clusters> {
    if !can_run(test, &["setpriv", "unshare"]) {
        return None;
    }
    let clusters = Clusters::in_dir(dir, names);
    if clusters.is_none() {
        skip(test, "postgresql is not installed");
    }
    clusters
}

fn start_twin(clusters: &Clusters, dir: &TempDir) -> Program {
    let words = as_other_user(&clusters.server("twin"));
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).current_dir(dir.path());
    Program::start(dir, "twin", command)
}

#[test]
fn under_a_daemon_of_its_user() {
    let test = "postgres::under_a_daemon_of_its_user";
    let dir = directory_of_theirs();
    let Some(clusters) = can_run_here(test, dir.path(), &["managed", "twin"]) else { return };
    let _alone = alone();
    let mut user = OtherUser::start("64MiB", CONFIG);
    let twin = start_twin(&clusters, &dir);
    let server = user.run("postgres", &clusters.server("managed"));
    let mut twins_client = clusters.client(&dir, "twin");
    let mut client = clusters.client(&dir, "managed");
    let app = |user: &OtherUser| {
        user.status().apps.into_iter().find(|app| app.name == "postgres").unwrap_or_default()
    };
    let mut out = 0;
    for round in 0..rounds() {
        for (number, query) in QUERIES.iter().enumerate() {
            let fresh = if number == 0 { "drop table if exists t; " } else { "" };
            let query = format!("{fresh}{query}");
            let managed = || {
                let processes = app(&user).processes;
                (processes.iter().filter(|process| process.managed).count() > 3).then_some(())
            };
            assert!(poll(LONG, managed).is_some(), "{:?}\n{}", app(&user), user.log());
            assert!(user.swap_out("postgres"), "{}", user.log());
            client.send(&query);
            let wanted = twins_client.ask(&query);
            out += app(&user).swapped_out_pages;
            user.replace_daemon();
            let answer = client.read(2 * LONG);
            assert_eq!(answer, wanted, "round {round}: {query}\n{}{}", server.report(), user.log());
        }
    }
    println!("{test}: {out} pages out");
    assert!(out > 500, "{out} pages out");
    drop((client, twins_client));
    shut_down(server);
    shut_down(twin);
}

#[test]
fn under_roots_daemon_it_is_plainly_not_managed() {
    let test = "postgres::under_roots_daemon_it_is_plainly_not_managed";
    let dir = directory_of_theirs();
    let Some(clusters) = can_run_here(test, dir.path(), &["served", "twin"]) else { return };
    let mut fixture = Fixture::start_configured("1GiB", "zram", CONFIG);
    let twin = start_twin(&clusters, &dir);
    let server = fixture.run("postgres", &as_other_user(&clusters.server("served")));
    let mut twins_client = clusters.client(&dir, "twin");
    let mut client = clusters.client(&dir, "served");
    // What has become the server was root's, and its memory may be there for a moment still.
    let is_gone = || fixture.app("postgres").processes.iter().all(|p| !p.managed).then_some(());
    assert!(poll(LONG, is_gone).is_some(), "{:?}", fixture.app("postgres"));
    for query in QUERIES {
        client.send(query);
        let _ = fixture.try_swap_out("postgres");
        let app = fixture.app("postgres");
        assert!(app.stored_pages == 0 && app.processes.iter().all(|p| !p.managed), "{app:?}");
        let wanted = twins_client.ask(query);
        assert_eq!(client.read(2 * LONG), wanted, "{query}\n{}", server.report());
    }
    let said = poll(LONG, || {
        let mut processes = fixture.app("postgres").outside.processes.into_iter();
        processes.find(|process| process.uid == ID && process.command.starts_with("postgres"))
    });
    let said = said.unwrap_or_else(|| panic!("{:?}\n{}", fixture.app("postgres"), fixture.log()));
    assert!(said.bytes > 0 && !said.reason.is_empty(), "{said:?}");
    let table = fixture.verb(&["ps"]);
    assert!(texts(&table).contains("outside (memory that cannot be taken)"), "{}", texts(&table));
    drop((client, twins_client));
    shut_down(server);
    shut_down(twin);
    fixture.assert_daemon_lives();
}
