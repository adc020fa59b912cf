//! Real programs whose children do the work: each process's calls are what the process itself counts.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use nanoprobe_tests::command::run;
use nanoprobe_tests::left_out::need_command;
use nanoprobe_tests::program::{Build, need_program};
use nanoprobe_tests::results::table;
use nanoprobe_tests::tracer::{Form, Tracer, assert_nothing_lost};

/// Lines of a process and its count.
fn counts(text: &str) -> BTreeMap<String, i64> {
    let lines = text.lines().filter_map(|line| line.split_once(' '));
    lines
        .map(|(pid, calls)| (pid.to_owned(), calls.parse().expect("a count")))
        .collect()
}

/// git's commands are processes that execute git again. A preloaded library counts in each of them.
#[test]
fn each_process_of_git_is_counted_under_its_number() {
    let what = "the processes of git";
    let Some(git) = need_command(what, "git") else { return };
    let Some(library) = need_program("inflates.c", Build::Library) else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let repository = folder.path().join("repository");
    let git_in = |arguments: &[&str]| {
        let mut command = Command::new(&git);
        command
            .arg("-C")
            .arg(&repository)
            .args(["-c", "user.name=a", "-c", "user.email=a@b", "-c", "gc.auto=0"]);
        run(command.args(arguments)).success()
    };
    std::fs::create_dir(&repository).expect("a folder");
    git_in(&["init", "-q"]);
    for number in 0..5 {
        for file in 0..40 {
            let text = format!("{file} {number}\n").repeat(50 * (file + 1));
            std::fs::write(repository.join(format!("file{file}")), text).expect("a file");
        }
        git_in(&["add", "."]);
        git_in(&["commit", "-q", "-m", "x"]);
    }
    for work in ["fsck --full --no-progress", "gc -q", "fsck --full --no-progress"] {
        let file = folder.path().join("inflates");
        let _ = std::fs::remove_file(&file);
        let line = format!("-C {} {work}", repository.display());
        let traced = Tracer::new(Form::Default)
            .environment(&[("LD_PRELOAD", &library), ("INFLATES", &file)])
            .argument("-x")
            .argument("follow=all")
            .clause("pid$target:libz*:inflate:entry { @[pid] = count(); }")
            .command(Path::new(&git), &line)
            .run()
            .success();
        let said = counts(&std::fs::read_to_string(&file).expect("counts"));
        assert!(said.values().sum::<i64>() >= 100, "{work}: {said:?}");
        assert_eq!(table(&traced.results), said, "{work}: {}", traced.finished.stderr);
        assert_nothing_lost(&traced.finished.stderr);
    }
}

/// Workers that are forked before there is work, as gunicorn's are, and replaced when they end.
const PREFORK: &str = r#"
import os, socket, sys
listener = socket.socket()
listener.bind(("127.0.0.1", 0))
listener.listen(64)
address = listener.getsockname()
def work(connections):
    for number in range(connections):
        connection, _ = listener.accept()
        connection.sendall(b"%d\n" % os.getpid())
        connection.close()
    os.write(1, b"%d %d\n" % (os.getpid(), connections))
    os._exit(0)
def start(connections):
    child = os.fork()
    if child == 0:
        work(connections)
    return child
plan = [5, 50, 500]
workers = {start(connections) for connections in plan}
left = [7, 70]
answers = 0
while workers:
    if answers < sum(plan) + 77:
        client = socket.create_connection(address)
        assert client.recv(100)
        client.close()
        answers += 1
    done, status = os.waitpid(-1, 0 if answers == sum(plan) + 77 else os.WNOHANG)
    if done:
        assert status == 0
        workers.remove(done)
        if left:
            workers.add(start(left.pop()))
"#;

#[test]
fn each_worker_of_a_preforking_server_is_counted_under_its_number() {
    let what = "a preforking server in Python";
    let Some(python) = need_command(what, "/usr/bin/python3") else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let script = folder.path().join("prefork.py");
    std::fs::write(&script, PREFORK).expect("a script");
    let traced = Tracer::new(Form::Default)
        .clause("pid$target:libc:accept4:return / (int)arg1 >= 0 / { @[pid] = count(); }")
        .command(Path::new(&python), &script.display().to_string())
        .run()
        .success();
    let said = counts(&traced.finished.stdout);
    assert_eq!((said.len(), said.values().sum::<i64>()), (5, 632));
    assert_eq!(table(&traced.results), said, "{}", traced.finished.stderr);
    assert_nothing_lost(&traced.finished.stderr);
}
