//! Processes in containers: a tracer under the same seccomp filters as its target, which it cannot read. The profiles
//! are those of Docker, Podman, containerd and systemd, and some that kill.

#![allow(clippy::unwrap_used, reason = "what fails in a helper fails its test")]

use std::path::{Path, PathBuf};
use std::process::Command;

use nanoprobe_target::{Process, Protection, Sandbox};
use nanoprobe_tests::command::{Running, run};
use nanoprobe_tests::left_out::{is_root_of_the_machine, left_out};
use nanoprobe_tests::number_from_environment;
use nanoprobe_tests::program::{program, sources};

/// The variables by which this binary is started again inside of a container: the target, and how often to attach.
const TARGET: &str = "NANOPROBE_TEST_TARGET";
const TIMES: &str = "NANOPROBE_TEST_HOLD";
/// The status of the inner process when the target was refused.
const REFUSED: i32 = 77;

/// A container: the arguments of `contained`, with the names of profiles.
struct Shape {
    name: &'static str,
    arguments: &'static str,
    /// The text of the refusal; `None`: attaching succeeds.
    refusal: Option<&'static str>,
}

const fn permitted(name: &'static str, arguments: &'static str) -> Shape {
    Shape {
        name,
        arguments,
        refusal: None,
    }
}

const fn refused(name: &'static str, arguments: &'static str, refusal: &'static str) -> Shape {
    Shape {
        name,
        arguments,
        refusal: Some(refusal),
    }
}

const SHAPES: [Shape; 19] = [
    permitted("docker as root", "profile docker"),
    permitted("docker as an ordinary user", "uid 1000 profile docker"),
    permitted("docker with SYS_PTRACE", "cap SYS_PTRACE profile docker"),
    permitted("podman with SYS_PTRACE", "cap SYS_PTRACE profile podman"),
    permitted("containerd with SYS_PTRACE", "cap SYS_PTRACE profile containerd"),
    permitted("the restricted pod security", "nnp uid 1000 profile docker"),
    permitted("a unit with SystemCallFilter", "nnp uid 1000 profile systemd"),
    permitted("a unit with two filters", "nnp profile systemd profile no-exec-write"),
    permitted("docker in docker", "profile docker profile docker"),
    permitted("a profile that logs", "profile logs"),
    permitted("a list of calls that kill", "profile kills-others"),
    permitted(
        "docker with such a list",
        "uid 1000 profile docker profile kills-others",
    ),
    refused("memfd_create kills", "profile kills-memfd", "kills for memfd_create"),
    refused(
        "rt_sigtimedwait kills",
        "profile kills-wait",
        "kills for rt_sigtimedwait",
    ),
    refused(
        "executable pages kill",
        "profile kills-mprotect",
        "kills for mprotect of pages",
    ),
    refused("advice kills", "uid 1000 profile kills-advice", "kills for madvise"),
    refused(
        "munlock is trapped",
        "profile docker profile traps-unlock",
        "kills for munlock",
    ),
    refused(
        "restart_syscall kills",
        "profile kills-restart",
        "kills for restart_syscall",
    ),
    refused("memfd_create fails", "profile fails-memfd", "returns an error (EPERM"),
];

/// `contained` with the arguments of a shape; a profile's name becomes its path.
fn contained(first: &[&str], arguments: &str) -> Command {
    let mut command = Command::new(program("contained.c"));
    command.args(first);
    let mut is_profile = false;
    for word in arguments.split_whitespace() {
        match is_profile {
            true => command.arg(sources().join("profiles").join(word)),
            false => command.arg(word),
        };
        is_profile = word == "profile";
    }
    command.arg("--");
    command
}

/// A target in a container of its own, and the number of its process 1 outside.
fn start(arguments: &str) -> (Running, i32) {
    let mut command = contained(&["new"], arguments);
    let mut target = Running::start(command.arg(program("busy.c")).args(["--wait", "3"]));
    target.wait_for("ready\n");
    target.go();
    target.wait_for("working\n");
    let children = format!("/proc/{0}/task/{0}/children", target.pid());
    let child = std::fs::read_to_string(children).unwrap();
    let child = child.split_whitespace().next().unwrap().parse().unwrap();
    (target, child)
}

#[track_caller]
fn finish(mut target: Running, name: &str) {
    assert!(target.is_running(), "{name}: the target was killed");
    target.write("stop\n");
    let finished = target.finish().success();
    assert!(finished.stdout.ends_with("OK\n"), "{name}: {}", finished.stdout);
}

/// Attaches from a process that enters the container with these arguments; yields that process's status and output.
fn attach_inside(container: i32, arguments: &str, target: i32, times: usize) -> (i32, String) {
    let mut command = contained(&["enter", &container.to_string()], arguments);
    command
        .arg(own_copy())
        .args(["--exact", "inside_of_a_container", "--nocapture", "--test-threads=1"])
        .env(TARGET, target.to_string())
        .env(TIMES, times.to_string());
    let finished = run(&mut command);
    (finished.code(), finished.stdout + &finished.stderr)
}

fn own_copy() -> PathBuf {
    std::env::current_exe().unwrap()
}

fn can_make_containers() -> bool {
    if !is_root_of_the_machine() {
        left_out("containers", "to make them takes root");
        return false;
    }
    let probe = run(contained(&["new"], "profile docker").arg("true"));
    if probe.code() != 0 {
        left_out(
            "containers",
            &format!("they cannot be made here: {}", probe.stderr.trim()),
        );
    }
    probe.code() == 0
}

/// The tracer's part: attaches again and again, with all calls that attaching and detaching make. Nothing to do in an
/// ordinary run of the tests.
#[test]
fn inside_of_a_container() {
    let number = |name: &str| std::env::var(name).ok()?.parse::<i32>().ok();
    let (Some(pid), Some(times)) = (number(TARGET), number(TIMES)) else {
        return;
    };
    for _ in 0..times {
        let process = Process::open(pid).unwrap_or_else(|error| panic!("{error}"));
        process.examine_filters();
        let stopped = process.stop().unwrap();
        let sandbox = stopped.sandbox();
        stopped.release();
        if !matches!(sandbox, Sandbox::SameAsOurs | Sandbox::Permits | Sandbox::None) {
            println!("REFUSED: {sandbox}");
            std::process::exit(REFUSED);
        }
        attach_and_detach(&process);
    }
    println!("attached {times} times");
}

fn attach_and_detach(process: &Process) {
    const BYTES: u64 = 1 << 16;
    let holes = process.map().unwrap().holes(&process.hole_rules());
    let hole = holes
        .iter()
        .find(|hole| hole.end.0 - hole.start.0 > 4 * BYTES)
        .unwrap()
        .start;
    let at = |index: u64| nanoprobe_patch::TargetAddress(hole.0 + index * BYTES);
    let mut stopped = process.stop().unwrap();
    let tid = stopped.best_thread().unwrap();
    let mut remote = stopped.remote(tid).unwrap();
    let shared = remote.create_shared("contained", at(0), BYTES).unwrap();
    remote.advise(at(0), BYTES, libc::MADV_DONTDUMP).unwrap();
    remote.map_anonymous(at(1), BYTES, Protection::ReadExecute).unwrap();
    remote.map_anonymous(at(2), BYTES, Protection::ReadWrite).unwrap();
    remote.advise(at(2), BYTES, libc::MADV_WIPEONFORK).unwrap();
    let before = remote.signal_action(libc::SIGTRAP, None).unwrap();
    let wanted = [(libc::SIGTRAP, Some(before)), (libc::SIGSEGV, None)];
    assert_eq!(remote.signal_actions(&wanted).unwrap().first(), Some(&before));
    for index in [2, 1, 0] {
        remote.unmap(at(index), BYTES).unwrap();
    }
    assert_eq!(shared.bytes, BYTES);
    drop(remote);
    stopped.release();
}

/// `NANOPROBE_CONTAINED` is the number of attaches to all shapes together.
#[test]
fn no_filter_kills_a_target() {
    if !can_make_containers() {
        return;
    }
    let times = number_from_environment("NANOPROBE_CONTAINED", 200) as usize;
    let permitted = SHAPES.iter().filter(|shape| shape.refusal.is_none()).count();
    let mut attached = 0;
    for shape in &SHAPES {
        let (target, pid) = start(shape.arguments);
        let each = times.div_ceil(permitted);
        let (status, said) = attach_inside(pid, shape.arguments, 1, each);
        match shape.refusal {
            None => {
                assert_eq!(status, 0, "{}: {said}", shape.name);
                attached += each;
            }
            Some(refusal) => {
                assert_eq!(status, REFUSED, "{}: {said}", shape.name);
                assert!(said.contains(refusal), "{}: {said}", shape.name);
            }
        }
        finish(target, shape.name);
    }
    println!("{attached} attaches to {permitted} containers killed no target");
}

/// The default profile of a container runtime forbids this tracer ptrace. The tracer reports that, and the target
/// runs on.
#[test]
fn without_ptrace_there_is_no_attaching() {
    if !can_make_containers() {
        return;
    }
    for (profile, reason) in [
        ("profile podman", "EPERM"),
        ("profile containerd-old", "pidfd_open failed: EPERM"),
    ] {
        let (target, pid) = start(profile);
        let (status, said) = attach_inside(pid, profile, 1, 1);
        assert_ne!(status, 0, "{said}");
        assert!(said.contains(reason), "{said}");
        finish(target, profile);
    }
}

/// Target and tracer have the same number of filters, but different filters: each such case is refused.
#[test]
fn another_filter_of_the_same_number_is_not_taken_for_ours() {
    if !can_make_containers() {
        return;
    }
    // Target and tracer are in one container without a filter, and each has its own filter. In the reverse case,
    // the tracer has more filters than the container.
    for (theirs, ours, reason) in [
        ("profile kills-memfd", "profile docker", "of the same container"),
        (
            "profile docker profile kills-memfd",
            "profile docker profile docker",
            "of the same container",
        ),
        (
            "profile docker profile kills-memfd",
            "profile docker",
            "has added its own",
        ),
        ("profile kills-memfd", "", "nanoprobe itself is under no filter"),
    ] {
        let outer = if theirs.contains("docker") {
            "profile docker"
        } else {
            ""
        };
        let inner = theirs
            .strip_prefix("profile docker")
            .filter(|_| !outer.is_empty())
            .unwrap_or(theirs);
        let (target, pid) = start_nested(outer, inner.trim());
        let ours = format!("{ours} cap SYS_PTRACE");
        let (status, said) = attach_inside(pid, &ours, 2, 1);
        assert_eq!(status, REFUSED, "{theirs}: {said}");
        assert!(said.contains(reason), "{theirs}: {said}");
        finish(target, theirs);
    }
    // Two containers: the namespaces differ.
    let (target, pid) = start("profile kills-memfd");
    let (status, said) = attach_outside(pid, "cap SYS_PTRACE profile docker");
    assert_eq!(status, REFUSED, "{said}");
    assert!(said.contains("in another container"), "{said}");
    finish(target, "two containers");
}

/// A container whose process 1 is a shell under `outer`; the target is its child, under `inner` as well.
fn start_nested(outer: &str, inner: &str) -> (Running, i32) {
    let mut command = contained(&["new"], outer);
    // Without capabilities, a filter takes no_new_privs.
    let second = contained(&["nnp"], inner);
    // The shell stays: it has more to do after the target.
    command
        .args(["sh", "-c", "\"$@\"; exit $?", "sh"])
        .arg(second.get_program());
    command.args(second.get_args());
    let mut target = Running::start(command.arg(program("busy.c")).args(["--wait", "3"]));
    target.wait_for("ready\n");
    target.go();
    target.wait_for("working\n");
    let children = format!("/proc/{0}/task/{0}/children", target.pid());
    let shell = std::fs::read_to_string(children).unwrap();
    (target, shell.split_whitespace().next().unwrap().parse().unwrap())
}

/// Attaches from another container that shares the pid namespace of the tests.
fn attach_outside(target: i32, arguments: &str) -> (i32, String) {
    let mut command = contained(&[], arguments);
    command
        .arg(own_copy())
        .args(["--exact", "inside_of_a_container", "--nocapture", "--test-threads=1"])
        .env(TARGET, target.to_string())
        .env(TIMES, "1");
    let finished = run(&mut command);
    (finished.code(), finished.stdout + &finished.stderr)
}

/// A parent that cannot be seen may have had other filters.
#[test]
fn hidden_parents_are_doubted() {
    if !can_make_containers() || !Path::new("/proc/self/ns/pid").exists() {
        return;
    }
    let mut command = contained(&["new", "hidepid"], "profile docker");
    let second = contained(&[], "uid 1000");
    command
        .args(["sh", "-c", "\"$@\"; exit $?", "sh"])
        .arg(second.get_program());
    command.args(second.get_args());
    let mut target = Running::start(command.arg(program("busy.c")).args(["--wait", "3"]));
    target.wait_for("ready\n");
    target.go();
    target.wait_for("working\n");
    let children = format!("/proc/{0}/task/{0}/children", target.pid());
    let shell: i32 = std::fs::read_to_string(children).unwrap().trim().parse().unwrap();
    let (status, said) = attach_inside(shell, "uid 1000 profile docker", 2, 1);
    assert_eq!(status, REFUSED, "{said}");
    assert!(said.contains("cannot be examined"), "{said}");
    finish(target, "hidepid");
}

/// Root outside of all containers reads the filters.
#[test]
fn root_outside_reads_the_filters() {
    if !can_make_containers() {
        return;
    }
    for shape in &SHAPES {
        let (target, pid) = start(shape.arguments);
        let process = Process::open(pid).unwrap();
        let stopped = process.stop().unwrap();
        let sandbox = stopped.sandbox();
        stopped.release();
        match shape.refusal {
            None => {
                assert_eq!(sandbox, Sandbox::Permits, "{}", shape.name);
                attach_and_detach(&process);
            }
            Some(_) => assert!(matches!(sandbox, Sandbox::Forbids { .. }), "{}: {sandbox}", shape.name),
        }
        finish(target, shape.name);
    }
}
