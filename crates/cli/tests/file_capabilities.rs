//! A command that has CAP_SYS_PTRACE from its file, as another user than root may have it: whoever executes it has the
//! capability, and it is for the own programs alone.

use std::fs;
use std::os::unix::fs::chown;

use clew_fixture::other_user::*;
use clew_fixture::touch::{BYTES, PAGES, ZRAM, swapped_out};
use clew_fixture::*;

#[test]
fn it_serves_its_user_and_is_succeeded() {
    if !can_run("file_capabilities::serves", &["cc", "setcap", "setpriv", "unshare"]) {
        return;
    }
    let mut user = OtherUser::start_with("1GiB", "", Capability::OfFile);
    let touch = compile(&user.dir, "touch.c", &[]).to_str().expect("UTF-8").to_string();
    let words = [touch, PAGES.to_string(), "50".to_string(), "3".to_string()];
    let mut program = user.run("touch", &words);
    program.wait_ready();
    let sum = program.ask("sum");
    for _ in 0..2 {
        let stored = poll(LONG, || {
            user.swap_out("touch");
            let app = user.status().apps.into_iter().find(|app| app.name == "touch")?;
            (app.stored_pages * 4096 >= BYTES * 8 / 10).then_some(())
        });
        assert!(stored.is_some(), "{}", user.log());
        user.replace_daemon();
        program.expect("sum", &sum);
    }
    program.quit();
}

/// All that names a keeper can be read by everybody, and be written down by who likes.
#[test]
fn what_another_user_s_keeper_has_is_not_taken() {
    if !can_run("file_capabilities::forged", &["cc", "setcap", "setpriv"]) {
        return;
    }
    let Some((mut fixture, mut program, sum)) = swapped_out("file_capabilities", &ZRAM) else {
        return;
    };
    let dir = directory_of_theirs();
    copy_of_command(&dir, Capability::OfFile);
    let forged = dir.join("s.keeper");
    fs::copy(fixture.socket.with_extension("keeper"), &forged).expect("root may read it");
    chown(&forged, Some(ID), Some(ID)).expect("root gives it away");
    for besides in [&[][..], &["--takeover"], &["--takeover", "--check"]] {
        let mut command = daemon_command(&dir, Capability::OfFile);
        command.arg(dir.join("s")).args(["--budget", "1GiB"]).args(besides);
        let said = run_to_end(&mut command, LONG);
        assert_eq!(said.status.code(), Some(1), "{besides:?}: {}", texts(&said));
        assert!(texts(&said).contains("which is another user's"), "{}", texts(&said));
    }
    program.expect("sum", &sum);
    program.quit();
    fixture.wait_all_freed("touch");
    fixture.assert_daemon_lives();
}
