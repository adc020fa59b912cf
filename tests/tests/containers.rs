//! The command in a container: a tracer under its target's own seccomp filter, which it cannot read.

#![allow(clippy::unwrap_used, reason = "what fails in a helper fails its test")]

use std::process::Command;

use nanoprobe_tests::command::{Finished, Running, run};
use nanoprobe_tests::left_out::{is_root_of_the_machine, left_out};
use nanoprobe_tests::program::{program, sources};
use nanoprobe_tests::results::{said, value};
use nanoprobe_tests::text::Snapshot;
use nanoprobe_tests::tracer::{Form, Tracer, nanoprobe, wait_until_armed};

const CLAUSE: &str = "pid$target:a.out:func:entry { @ = count(); }";

/// `contained` with its first arguments; a profile's name becomes its path.
fn words(first: &[&str], arguments: &str) -> Vec<String> {
    let mut words = vec![program("contained.c").display().to_string()];
    words.extend(first.iter().map(|&word| word.to_owned()));
    let mut is_profile = false;
    for word in arguments.split_whitespace() {
        words.push(match is_profile {
            true => sources().join("profiles").join(word).display().to_string(),
            false => word.to_owned(),
        });
        is_profile = word == "profile";
    }
    words.push("--".to_owned());
    words
}

fn command(words: &[String]) -> Command {
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    command
}

/// A container with two processes: process 1, which is a shell, and the target. The shell outlives the target, because
/// its end would end all others.
struct Container {
    running: Running,
    shell: i32,
    target: i32,
}

/// The target's number in its container.
const INNER: i32 = 2;

/// A looper in a container of its own.
fn start(arguments: &str, calls: &str) -> Container {
    let mut shell = command(&words(&["new"], arguments));
    shell.args(["sh", "-c", "\"$@\"; read line", "sh"]);
    let mut running = Running::start(shell.arg(program("looper.c")).args(["--wait", calls]));
    running.wait_for("ready\n");
    let shell = child_of(running.pid());
    let target = child_of(shell);
    Container { running, shell, target }
}

/// Waits for the target's end, then ends the shell.
#[track_caller]
fn finish(mut container: Container) -> Finished {
    container.running.wait_for("OK\n");
    container.running.write("\n");
    container.running.finish().success()
}

fn child_of(pid: i32) -> i32 {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    children.split_whitespace().next().unwrap().parse().unwrap()
}

fn can_make_containers() -> bool {
    let can = is_root_of_the_machine() && run(command(&words(&["new"], "profile docker")).arg("true")).code() == 0;
    if !can {
        left_out("the command in containers", "to make them takes root and libseccomp");
    }
    can
}

#[test]
fn counts_are_exact_in_a_container() {
    if !can_make_containers() {
        return;
    }
    for arguments in [
        "profile docker",
        "nnp uid 1000 profile docker",
        "cap SYS_PTRACE profile podman",
    ] {
        for form in [Form::Default, Form::Trap] {
            let mut container = start(arguments, &form.scale(1_000_000, 20_000).to_string());
            let entered = words(&["enter", &container.shell.to_string()], arguments);
            let entered: Vec<&str> = entered.iter().map(String::as_str).collect();
            let mut tracing = Tracer::new(form).under(&entered).clause(CLAUSE).process(INNER).start();
            wait_until_armed(&mut tracing.running, container.target);
            container.running.go();
            container.running.wait_for("OK\n");
            let traced = tracing.finish().success();
            let finished = finish(container);
            assert_eq!(value(&traced.results), said(&finished.stdout, "calls"), "{arguments}");
        }
    }
}

#[test]
fn a_killed_tracer_in_a_container_is_cleaned_up_after() {
    if !can_make_containers() {
        return;
    }
    let arguments = "uid 1000 profile docker";
    let mut container = start(arguments, "1000000");
    let snapshot = Snapshot::take(container.target);
    let entered = words(&["enter", &container.shell.to_string()], arguments);
    let borrowed: Vec<&str> = entered.iter().map(String::as_str).collect();
    let mut tracing = Tracer::new(Form::Default)
        .under(&borrowed)
        .clause(CLAUSE)
        .process(INNER)
        .start();
    wait_until_armed(&mut tracing.running, container.target);
    // The launcher's death kills the tracer in the container.
    tracing.running.signal(nix::sys::signal::Signal::SIGKILL);
    drop(tracing);
    let mut restored = None;
    container.running.wait_until("being restored", |_| {
        // The tracer's end takes a moment.
        let finished = run(command(&entered).arg(nanoprobe()).args(["restore", &INNER.to_string()]));
        let done = finished.code() == 0;
        restored = Some(finished);
        done
    });
    assert!(restored.is_some_and(|finished| finished.stderr.contains("restored")));
    snapshot.assert_identical(container.target);
    container.running.go();
    finish(container);
}

#[test]
fn a_filter_that_kills_is_refused_and_named() {
    if !can_make_containers() {
        return;
    }
    for (arguments, option, reason) in [
        ("profile kills-memfd", "check", "kills for memfd_create"),
        // A filter that is known to kill is not tried.
        ("profile kills-memfd", "try", "kills for memfd_create"),
    ] {
        let mut container = start(arguments, "1000");
        let mut tracer = command(&words(&["enter", &container.shell.to_string()], arguments));
        tracer.arg(nanoprobe()).args([
            "-x",
            &format!("seccomp={option}"),
            "-n",
            CLAUSE,
            "-p",
            &INNER.to_string(),
        ]);
        let finished = run(&mut tracer);
        assert_eq!(finished.code(), 1, "{}", finished.stderr);
        assert!(finished.stderr.contains(reason), "{}", finished.stderr);
        container.running.go();
        finish(container);
    }
}

/// A tracer in another container (here the container of the tests) does not know the filter, but the user insists on
/// tracing.
#[test]
fn a_user_may_insist() {
    if !can_make_containers() {
        return;
    }
    let mut container = start("profile docker", "1000000");
    let outside = words(&[], "cap SYS_PTRACE profile docker");
    let mut refused = command(&outside);
    refused
        .arg(nanoprobe())
        .args(["-n", CLAUSE, "-p", &container.target.to_string()]);
    let refused = run(&mut refused);
    assert_eq!(refused.code(), 1, "{}", refused.stderr);
    assert!(
        refused.stderr.contains("another container") && refused.stderr.contains("seccomp=try"),
        "{}",
        refused.stderr
    );
    let outside: Vec<&str> = outside.iter().map(String::as_str).collect();
    let tracer = Tracer::new(Form::Default)
        .under(&outside)
        .argument("-x")
        .argument("seccomp=try");
    let mut tracing = tracer.clause(CLAUSE).process(container.target).start();
    wait_until_armed(&mut tracing.running, container.target);
    container.running.go();
    container.running.wait_for("OK\n");
    let traced = tracing.finish().success();
    let finished = finish(container);
    assert_eq!(value(&traced.results), said(&finished.stdout, "calls"));
}
