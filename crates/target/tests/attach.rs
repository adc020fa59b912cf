//! Every refusal to attach, provoked for real where this machine and user allow it.
#![allow(missing_docs, clippy::unwrap_used)]

mod support;

use std::process::Command;

use nanoprobe_tests::in_time::InTime;
use nanoprobe_tests::left_out::{has_another_user, left_out};

use nanoprobe_target::{AttachError, Process, Seccomp};
use support::{Running, compile, copy_program, until};

fn refusal(pid: i32) -> AttachError {
    Process::open(pid).map(drop).unwrap_err()
}

#[test]
fn untraceable_processes_are_refused_with_the_reason() {
    assert_eq!(refusal(i32::MAX), AttachError::NotFound { pid: i32::MAX });
    assert_eq!(refusal(-1), AttachError::NotFound { pid: -1 });
    assert_eq!(refusal(0), AttachError::NotFound { pid: 0 });
    let ourselves = std::process::id() as i32;
    assert_eq!(refusal(ourselves), AttachError::Ourselves { pid: ourselves });
    if std::path::Path::new("/proc/2/status").exists() {
        assert_eq!(refusal(2), AttachError::KernelThread { pid: 2 });
    }
}

#[test]
fn zombies_and_threads_are_refused() {
    let program = compile("storm");
    let mut running = Running::of(&program, &[]);
    running.line();
    let pid = running.pid();
    let process = running.open();
    let thread = process.threads().unwrap().into_iter().find(|&tid| tid != pid).unwrap();
    assert_eq!(refusal(thread), AttachError::IsThread { tid: thread, pid });
    process.kill();
    // While the process ends, its files cannot be read.
    until("a zombie, with all its threads", || {
        matches!(Process::open(pid), Err(AttachError::Zombie { .. }))
    });
    assert_eq!(refusal(pid), AttachError::Zombie { pid });
}

#[test]
fn one_tracer_at_a_time() {
    let program = compile("plain");
    let mut running = Running::of(&program, &[]);
    running.line();
    let process = running.open();
    let stopped = process.stop().unwrap();
    let error = refusal(running.pid());
    let AttachError::AlreadyTraced { tracer, .. } = error else {
        panic!("{error}")
    };
    // The tracer is this test's own thread.
    assert_eq!(tracer, nix::unistd::gettid().as_raw());
    drop(stopped);
    running.open();
}

#[test]
fn facts_are_right() {
    let program = compile("plain");
    let mut running = Running::of(&program, &[]);
    running.line();
    let facts = running.open().facts().clone();
    assert_eq!(facts.name, "plain");
    assert_eq!(facts.executable, program.path);
    assert_eq!(facts.uid, nix::unistd::geteuid().as_raw());
    assert_eq!(facts.seccomp, Seccomp::Disabled);
    assert_eq!(facts.inner_pid, running.pid());
    assert!(!facts.in_other_pid_namespace);
}

/// Runs this test program as another user. `pid`: the target, or 0 for a target that the test program starts
/// itself.
fn as_nobody(pid: i32) -> String {
    let mut copy = std::env::temp_dir();
    copy.push(format!("nanoprobe-attach-test-{}", std::process::id()));
    copy_program(&std::env::current_exe().unwrap(), &copy);
    let output = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(&copy)
        .args(["opens_as_another_user", "--exact", "--ignored", "--nocapture"])
        .env("NANOPROBE_TEST_TARGET", pid.to_string())
        .output_in_time()
        .unwrap();
    std::fs::remove_file(copy).unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
#[ignore = "started by the tests below"]
fn opens_as_another_user() {
    let Ok(pid) = std::env::var("NANOPROBE_TEST_TARGET") else {
        return;
    };
    match Process::open(pid.parse().unwrap()) {
        Err(error) => println!("\nrefused: {error}"),
        Ok(process) => {
            let mut stopped = process.stop().unwrap();
            let tid = stopped.best_thread().unwrap();
            let mut remote = stopped.remote(tid).unwrap();
            let at = process
                .map()
                .unwrap()
                .holes(&process.hole_rules())
                .last()
                .unwrap()
                .start;
            let shared = remote.create_shared("nanoprobe-test", at, 8192).unwrap();
            remote.unmap(at, shared.bytes).unwrap();
            println!("\nworks");
        }
    }
}

#[test]
fn an_ordinary_user_traces_own_processes_and_no_others() {
    if !has_another_user() {
        return left_out("a tracer of another user", "only root can become somebody else");
    }
    let program = compile("plain");
    let mut running = Running::of(&program, &[]);
    running.line();
    let said = as_nobody(running.pid());
    let expected = format!(
        "refused: process {} belongs to user root; run nanoprobe as that user, or as root",
        running.pid()
    );
    assert!(said.contains(&expected), "{said}");

    let mut command = Command::new("setpriv");
    command
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(&program.path);
    let mut own = Running::start(&mut command);
    assert!(own.line().starts_with("ready"));
    let said = as_nobody(own.pid());
    assert!(said.contains("works"), "{said}");
    own.write(b"f\n");
    assert_eq!(own.line(), "42");

    let mut command = Command::new("setpriv");
    command
        .args(["--reuid=65534", "--regid=65533", "--clear-groups"])
        .arg(&program.path);
    let mut mixed = Running::start(&mut command);
    assert!(mixed.line().starts_with("ready"));
    let said = as_nobody(mixed.pid());
    assert!(said.contains("has mixed user or group ids"), "{said}");

    // A program that may be executed but not read: on some systems it is not dumpable, on others it can be traced.
    let hidden = program.path.with_file_name("hidden");
    copy_program(&program.path, &hidden);
    std::fs::set_permissions(&hidden, std::os::unix::fs::PermissionsExt::from_mode(0o711)).unwrap();
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(&hidden);
    let mut hidden = Running::start(&mut command);
    assert!(hidden.line().starts_with("ready"));
    let said = as_nobody(hidden.pid());
    assert!(
        said.contains("works") || said.contains("is protected (not dumpable"),
        "{said}"
    );

    let mut command = Command::new("setpriv");
    command
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(&program.path)
        .arg("hide");
    let mut hidden = Running::start(&mut command);
    assert!(hidden.line().starts_with("ready"));
    let said = as_nobody(hidden.pid());
    assert!(said.contains("is protected (not dumpable"), "{said}");
}
