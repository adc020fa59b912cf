//! The cost of `nanoprobe restore` on a made-up arena is bounded by the data that really exist.

use std::process::Command;

use nanoprobe_tests::command::{Finished, run};
use nanoprobe_tests::left_out::need_command;
use nanoprobe_tests::program::program;
use nanoprobe_tests::results::said;
use nanoprobe_tests::tracer::{nanoprobe, start_waiting};

/// 19 MB of table.
const SITES: i64 = 400_000;
/// The limit of writable memory of `restore`.
const MEMORY: &str = "--data=134217728";

/// Restores a process that pretends to have been traced. Returns the output of `restore`, and the number of bytes that
/// it restored.
fn restored(mode: &str, sites: i64) -> Option<(Finished, i64)> {
    let prlimit = need_command("restoring within little memory", "prlimit")?;
    let mut target = start_waiting(&program("faked.c"), &format!("{mode} {sites}"));
    let mut command = Command::new(prlimit);
    command.arg(MEMORY).arg(nanoprobe());
    let finished = run(command.args(["restore", &target.pid().to_string()]));
    target.go();
    Some((finished, said(&target.finish().success().stdout, "restored")))
}

#[test]
fn a_large_table_is_put_back_within_little_memory() {
    let Some((finished, bytes)) = restored("true", SITES) else {
        return;
    };
    assert_eq!(finished.code(), 0, "{finished:?}");
    assert!(
        finished.stderr.contains(&format!("{SITES} sites restored")),
        "{finished:?}"
    );
    assert_eq!(bytes, 16 * SITES);
}

#[test]
fn a_table_that_is_a_hole_ends_at_its_first_piece() {
    let Some((finished, bytes)) = restored("sparse", 2 << 20) else {
        return;
    };
    assert_eq!(finished.code(), 0, "{finished:?}");
    assert!(
        finished.stderr.contains("entries of the tracer's tables are damaged"),
        "{finished:?}"
    );
    assert_eq!(bytes, 0);
}

#[test]
fn a_table_that_claims_more_than_its_mapping_ends_there() {
    let Some((finished, bytes)) = restored("beyond", 1000) else {
        return;
    };
    assert_eq!(finished.code(), 0, "{finished:?}");
    assert!(
        finished.stderr.contains("entries of the tracer's tables are damaged"),
        "{finished:?}"
    );
    assert_eq!(bytes, 0);
}
