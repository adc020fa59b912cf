//! A lock that the kernel drops when the tracer ends shows whether the tracer lives. Neither its name nor its number
//! matters.

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use nanoprobe_tests::command::{Finished, Running, run};
use nanoprobe_tests::left_out::{left_out, need_command};
use nanoprobe_tests::program::program;
use nanoprobe_tests::results::{said, value};
use nanoprobe_tests::text::Snapshot;
use nanoprobe_tests::tracer::{Form, Tracer, nanoprobe, start_waiting, wait_until_armed};

const WORK: &str = "pid$target:a.out:thread_work:entry { @ = count(); }";
const ARGUMENTS: &str = "2 20000 early";

#[track_caller]
fn assert_refused(restored: &Finished) {
    assert_eq!(restored.code(), 1, "{restored:?}");
    assert!(
        restored.stderr.contains("is being traced by another nanoprobe"),
        "{restored:?}"
    );
}

/// The address of the arena in a process.
fn arena(pid: i32) -> u64 {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).expect("the map");
    let line = maps
        .lines()
        .find(|line| line.contains("/memfd:nanoprobe-"))
        .expect("an arena");
    u64::from_str_radix(line.split('-').next().expect("an address"), 16).expect("an address")
}

#[test]
fn a_tracer_of_another_name_counts_as_alive() {
    let mut target = start_waiting(&program("threads.c"), ARGUMENTS);
    let folder = tempfile::tempdir().expect("a folder");
    let other_name = folder.path().join("quite-another");
    std::os::unix::fs::symlink(nanoprobe(), &other_name).expect("another name");
    let results = tempfile::NamedTempFile::new().expect("a temporary file");
    let pid = target.pid().to_string();
    let mut command = Command::new(&other_name);
    command.arg("-o").arg(results.path()).args(["-n", WORK, "-p", &pid]);
    let mut tracer = Running::start(&mut command);
    wait_until_armed(&mut tracer, target.pid());
    assert_refused(&run(Command::new(nanoprobe()).args(["restore", &pid])));
    // A second tracer takes nothing away.
    let second = Tracer::new(Form::Default).clause(WORK).trace(target.pid());
    target.go();
    let finished = target.finish().success();
    tracer.finish().success();
    let counted = std::fs::read_to_string(results.path()).expect("the results");
    assert_eq!(value(&counted), said(&finished.stdout, "calls"));
    assert_eq!(
        value(&second.finish().success().results),
        said(&finished.stdout, "calls")
    );
}

/// The number, in our namespace, of a program that was started in its own pid namespace.
fn descendant(of: i32, program: &Path) -> Option<i32> {
    let children = std::fs::read_to_string(format!("/proc/{of}/task/{of}/children")).ok()?;
    children.split_ascii_whitespace().find_map(|child| {
        let child = child.parse().ok()?;
        let is_it = std::fs::read_link(format!("/proc/{child}/exe")).is_ok_and(|exe| exe == program);
        if is_it { Some(child) } else { descendant(child, program) }
    })
}

#[test]
fn a_tracer_in_another_pid_namespace_counts_as_alive() {
    let what = "a tracer in another pid namespace";
    let (Some(unshare), Some(nsenter)) = (need_command(what, "unshare"), need_command(what, "nsenter")) else {
        return;
    };
    let namespace = ["--pid", "--fork", "--mount-proc"];
    if !run(Command::new(&unshare).args(namespace).arg("true")).status.success() {
        left_out(what, "no pid namespace can be made here");
        return;
    }
    let program = std::fs::canonicalize(program("threads.c")).expect("its path");
    let mut command = Command::new(&unshare);
    command
        .args(namespace)
        .args(["sh", "-c", "\"$0\" --wait \"$@\"; exit $?"]);
    command.arg(&program).args(ARGUMENTS.split(' '));
    let mut container = Running::start(&mut command);
    container.wait_for("ready\n");
    let pid = descendant(container.pid(), &program).expect("the program");
    let mut tracing = Tracer::new(Form::Default).clause(WORK).start_on(pid);
    wait_until_armed(&mut tracing.running, pid);

    // From within the namespace, the tracer has no number.
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("its status");
    let numbers = status
        .lines()
        .find_map(|line| line.strip_prefix("NSpid:"))
        .expect("its numbers");
    let inner = numbers.split_ascii_whitespace().last().expect("its own number");
    let mut restore = Command::new(&nsenter);
    restore.args(["--target", &pid.to_string(), "--pid", "--mount"]);
    restore.arg(nanoprobe()).args(["restore", inner]);
    assert_refused(&run(&mut restore));

    container.go();
    let finished = container.finish().success();
    assert_eq!(
        value(&tracing.finish().success().results),
        said(&finished.stdout, "calls")
    );
}

/// The session notices that its patches were taken back, and does not continue as if it counted.
#[test]
fn a_session_whose_patches_were_taken_back_says_so() {
    const STATE_OFFSET: u64 = 36;
    const RESTORED: u32 = 2;
    let mut target = start_waiting(&program("threads.c"), ARGUMENTS);
    let snapshot = Snapshot::take(target.pid());
    let tracing = Tracer::new(Form::Default).clause(WORK).attach(target.pid());
    let memory = std::fs::File::options()
        .write(true)
        .open(format!("/proc/{}/mem", target.pid()))
        .expect("its memory");
    let place = arena(target.pid()) + STATE_OFFSET;
    memory
        .write_all_at(&RESTORED.to_le_bytes(), place)
        .expect("writing the state");
    let finished = tracing.finish().finished;
    assert_eq!(finished.code(), 1, "{finished:?}");
    assert!(
        finished.stderr.contains("were removed by somebody else"),
        "{finished:?}"
    );
    snapshot.assert_identical(target.pid());
    target.go();
    target.finish().success();
}
