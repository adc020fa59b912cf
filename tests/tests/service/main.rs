//! `--service`: a run that stays attached to whatever matches, as processes come and go. The service manager is the
//! test.
//!
//! These tests have a program of their own: a service restores what killed tracers have left in any process.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod manager;
mod memory;
mod nginx;
mod output;
mod restarted;
#[allow(dead_code, reason = "other tests need the rest")]
#[path = "../living/told.rs"]
mod told;
mod unit;

use std::path::{Path, PathBuf};

use nanoprobe_tests::program::{copy_program, program};
use nanoprobe_tests::results::table;

use manager::Service;
use told::{BY_PROCESS, Told};

/// A copy of the program that obeys, under a name of its own.
pub fn copy(folder: &Path, name: &str) -> PathBuf {
    let path = folder.join(name);
    copy_program(&program("member.c"), &path);
    path
}

#[test]
fn a_service_waits_and_says_what_it_does_and_ends_with_status_0() {
    let folder = tempfile::tempdir().unwrap();
    let path = copy(folder.path(), "served-first");
    let mut service = Service::start(&[
        "--name",
        "served-fir*",
        "-n",
        BY_PROCESS,
        "-n",
        "BEGIN { printf(\"began\\n\"); }",
    ]);
    service.wait_for("READY=1");
    service.wait_for("STATUS=--name served-fir*: waiting for the first process");
    // It lives, although nothing happens.
    let begun = service.times("WATCHDOG=1");
    while service.times("WATCHDOG=1") < begun + 3 {
        assert!(service.running.is_running());
    }
    assert_eq!(service.running.stdout(), "");
    let mut first = Told::of(&path);
    service.wait_for("STATUS=tracing 1 process of --name served-fir*; 1 since the start");
    first.tell("call 100");
    let mut second = Told::of(&path);
    service.wait_for("STATUS=tracing 2 processes of --name served-fir*; 2 since the start");
    second.tell("call 20");
    second.tell("fork 3");
    let said: std::collections::BTreeMap<_, _> = told::end_before_restored(vec![second]);
    service.wait_for("STATUS=tracing 1 process of --name served-fir*; 2 since the start");
    let begun = service.times("WATCHDOG=1");
    while service.times("WATCHDOG=1") < begun + 3 {
        assert!(service.running.is_running());
    }
    assert_eq!(service.times("READY=1"), 1);
    let (stdout, stderr) = service.end();
    let mut said = said;
    said.extend(first.end());
    assert_eq!(said.values().sum::<i64>(), 123);
    assert_eq!(stdout.matches("began").count(), 1, "{stdout}");
    let counted = stdout.replace("began\n", "");
    assert_eq!(table(&counted), said, "{stderr}");
}

/// An upgrade replaces the file of a program, and the old processes run on.
#[test]
fn a_program_that_was_replaced_is_traced_by_its_path() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("upgraded");
    let mut service = Service::start(&["--exe", path.to_str().unwrap(), "-n", BY_PROCESS]);
    service.wait_for("waiting for the first process");
    let mut told = Vec::new();
    for version in 1..=3 {
        // Another file each time: the old one is still executed.
        let new = copy(folder.path(), "new");
        std::fs::rename(new, &path).unwrap();
        told.push(Told::of(&path));
        service.wait_for_processes(version);
        for told in &mut told {
            told.tell("call 10");
        }
    }
    let (stdout, stderr) = service.end();
    for told in &told {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", told.pid())).unwrap();
        assert!(!maps.contains("nanoprobe"), "{maps}");
    }
    // The text of a file that is gone cannot be compared with it.
    let mut said = told.pop().unwrap().end();
    said.extend(told::end_before_restored(told));
    assert_eq!(said.values().sum::<i64>(), 60);
    assert_eq!(table(&stdout), said, "{stderr}");
}

#[test]
fn a_service_without_a_rule_is_refused() {
    let own = std::process::id().to_string();
    for arguments in [vec!["-p", own.as_str()], vec![]] {
        let mut command = std::process::Command::new(nanoprobe_tests::tracer::nanoprobe());
        command.arg("--service").args(&arguments).args(["-n", "BEGIN"]);
        let refused = nanoprobe_tests::command::run(&mut command);
        assert_eq!(refused.code(), 2, "{}", refused.stderr);
        assert!(refused.stderr.contains("Give --exe, --name"), "{}", refused.stderr);
    }
}
