//! Real programs whose children do the work: each process's calls are what the process itself counts.

use std::collections::BTreeMap;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use nanoprobe_tests::LIMIT;
use nanoprobe_tests::command::run;
use nanoprobe_tests::left_out::{is_root_of_the_machine, left_out, need_command};
use nanoprobe_tests::postgres::{self, Server};
use nanoprobe_tests::program::{Build, need_program, program};
use nanoprobe_tests::results::table;
use nanoprobe_tests::tracer::{Form, Tracer, assert_nothing_lost};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Lines of a process and its count.
fn counts(text: &str) -> BTreeMap<String, i64> {
    let lines = text.lines().filter_map(|line| line.split_once(' '));
    lines
        .map(|(pid, calls)| (pid.to_owned(), calls.parse().expect("a count")))
        .collect()
}

#[track_caller]
fn until(what: &str, is_so: &dyn Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < LIMIT, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// git's commands are processes that execute git again. A preloaded library counts in each of them.
#[test]
fn each_process_of_git_is_counted_under_its_number() {
    let what = "the processes of git";
    let Some(git) = need_command(what, "git") else { return };
    let Some(library) = need_program("preloaded.c", Build::Library) else {
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

/// postgres forks a process for each connection, and `pgbench -C` connects for each transaction.
#[test]
fn each_session_of_postgres_is_counted_under_its_number() {
    let what = "postgres under pgbench -C";
    let Some(pgbench) = postgres::find("pgbench") else {
        return left_out(what, "pgbench is not installed");
    };
    let Some(library) = need_program("preloaded.c", Build::Library) else {
        return;
    };
    // The server runs as another user.
    let folder = postgres::open_folder();
    let (preloaded, file) = (folder.path().join("preloaded.so"), folder.path().join("receives"));
    std::fs::copy(&library, &preloaded).expect("a copy");
    let variables = [("LD_PRELOAD", preloaded.as_path()), ("RECEIVES", file.as_path())];
    let Some(server) = Server::start_with(what, &variables) else {
        return;
    };
    let said = || counts(&std::fs::read_to_string(&file).unwrap_or_default());
    let wait_for_sessions = |count: usize| until("sessions", &|| said().len() >= count);
    // The sessions by which the test has found the server ready end before the tracing.
    let sessions = || {
        let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", server.pid()));
        let title = |pid: &str| std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let children = children.unwrap_or_default();
        children
            .split_whitespace()
            .filter(|pid| title(pid).contains("[local]"))
            .count()
    };
    wait_for_sessions(1);
    until("sessions of the start", &|| sessions() == 0);
    let clauses = "pid$target:libc:recv:entry { @[pid] = count(); }
                   pid$target:postgres:PostgresMain:entry { @sessions[\"sessions\"] = count(); }";
    let tracing = Tracer::new(Form::Default)
        .argument("-x")
        .argument("follow=fork")
        .clause(clauses)
        .trace(server.pid());
    let before = said();
    server.pgbench_connecting(&pgbench, "select 1; select 2;", 200);
    // pgbench itself connects once more, to look at the server.
    wait_for_sessions(before.len() + 201);
    let traced = tracing.interrupt();
    server.stop();
    let mut counted = table(&traced.results);
    assert_eq!(counted.remove("sessions"), Some(201), "{}", traced.finished.stderr);
    let mut expected = said();
    expected.retain(|pid, _| !before.contains_key(pid));
    assert_eq!(counted, expected, "{}", traced.finished.stderr);
    assert_nothing_lost(&traced.finished.stderr);
}

/// sshd executes itself for a connection, puts a child under a filter that kills, and starts a login shell, which is
/// given the programs to execute.
#[test]
fn the_programs_of_a_login_shell_under_sshd_are_counted() {
    let what = "a login shell under sshd";
    if !is_root_of_the_machine() {
        return left_out(what, "sshd starts shells of other users as root");
    }
    let needed = ["sshd", "ssh", "ssh-keygen"];
    let [Some(sshd), Some(ssh), Some(keygen)] = needed.map(|name| need_command(what, name)) else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let place = |name: &str| folder.path().join(name).display().to_string();
    for key in ["host", "user"] {
        run(Command::new(&keygen).args(["-q", "-t", "ed25519", "-N", "", "-f", &place(key)])).success();
    }
    let port = TcpListener::bind("127.0.0.1:0")
        .expect("a port")
        .local_addr()
        .expect("its number")
        .port();
    let configuration = format!(
        "Port {port}\nListenAddress 127.0.0.1\nHostKey {}\nAuthorizedKeysFile {}\nPidFile {}\nStrictModes no\n\
         UsePAM no\nPermitRootLogin yes\nPasswordAuthentication no\n",
        place("host"),
        place("user.pub"),
        place("pid")
    );
    std::fs::write(place("configuration"), configuration).expect("a configuration");
    // Its folder for children without rights, which a boot makes.
    let _ = std::fs::create_dir("/run/sshd");
    let checked = run(Command::new(&sshd).args(["-t", "-f", &place("configuration")]));
    if !checked.status.success() {
        return left_out(what, &format!("sshd does not run here: {}", checked.stderr.trim()));
    }
    let tracing = Tracer::new(Form::Default)
        .argument("-x")
        .argument("follow=all")
        .clause("pid$target:executes:called:entry { @[pid] = count(); }")
        .command(&sshd, &format!("-D -e -f {}", place("configuration")))
        .start();
    until("sshd listens", &|| TcpStream::connect(("127.0.0.1", port)).is_ok());
    let executes = program("executes.c").display().to_string();
    let script = format!("{executes} call 100\n{executes} fork 3 10\n{executes} call 7 | cat\nexit 3\n");
    std::fs::write(place("script"), script).expect("a script");
    // The shell reads the script as if it were typed.
    let mut login = Command::new("sh");
    let reads = format!("exec \"$0\" \"$@\" < {}", place("script"));
    login
        .arg("-c")
        .arg(reads)
        .arg(&ssh)
        .args(["-F", "none", "-p", &port.to_string(), "-i", &place("user"), "-T"]);
    for option in [
        "LogLevel=ERROR",
        "StrictHostKeyChecking=no",
        "UserKnownHostsFile=/dev/null",
        "IdentitiesOnly=yes",
    ] {
        login.args(["-o", option]);
    }
    let session = run(login.arg("root@127.0.0.1"));
    // What sshd cannot let in, a shell was never started for.
    if session.code() == 255 && session.stdout.is_empty() && session.stderr.contains("Permission denied") {
        drop(tracing);
        return left_out(what, "root may not log in");
    }
    assert_eq!(session.code(), 3, "{}", session.stderr);
    let pid = std::fs::read_to_string(place("pid")).expect("sshd's number");
    kill(Pid::from_raw(pid.trim().parse().expect("a number")), Signal::SIGTERM).expect("sshd lives");
    let traced = tracing.finish();
    let lines = session.stdout.lines().filter_map(|line| line.strip_prefix("by "));
    let said = counts(&lines.collect::<Vec<_>>().join("\n"));
    assert_eq!((said.len(), said.values().sum::<i64>()), (5, 137), "{}", session.stdout);
    assert_eq!(table(&traced.results), said, "{}", traced.finished.stderr);
    assert_nothing_lost(&traced.finished.stderr);
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
