//! nginx under a service: its workers are replaced by a reload, and itself by an upgrade.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use nanoprobe_tests::command::run;
use nanoprobe_tests::left_out::need_command;
use nanoprobe_tests::results::value;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::manager::Service;

const ROUND: usize = 25;

/// Connects so often, each time for one request.
fn ask(port: u16) {
    for _ in 0..ROUND {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_read_timeout(Some(nanoprobe_tests::LIMIT)).unwrap();
        let request = "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.contains("200 OK") && answer.ends_with("index\n"), "{answer}");
    }
}

fn configuration(folder: &Path, port: u16) {
    let user = if nix::unistd::geteuid().is_root() {
        "user root;"
    } else {
        ""
    };
    let text = format!(
        "worker_processes 1; pid nginx.pid; error_log error.log; {user}
         events {{ worker_connections 64; }}
         http {{ access_log access.log; client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi;
                uwsgi_temp_path uwsgi; scgi_temp_path scgi;
                server {{ listen 127.0.0.1:{port}; root .; }} }}\n"
    );
    std::fs::write(folder.join("nginx.conf"), text).unwrap();
    std::fs::write(folder.join("index.html"), "index\n").unwrap();
}

fn children(pid: i32) -> Vec<i32> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    text.split_whitespace().filter_map(|child| child.parse().ok()).collect()
}

/// Daemons that do not outlive the test.
struct Masters(Vec<i32>);

impl Masters {
    fn signal(&self, signal: Signal) {
        for pid in &self.0 {
            let _ = kill(Pid::from_raw(*pid), signal);
        }
    }
}

impl Drop for Masters {
    fn drop(&mut self) {
        self.signal(Signal::SIGTERM);
    }
}

#[track_caller]
fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < nanoprobe_tests::LIMIT, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn every_connection_is_counted_over_a_reload_and_an_upgrade() {
    let Some(nginx) = need_command("nginx under a service", "nginx") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    configuration(folder.path(), port);
    let mut command = Command::new(&nginx);
    command
        .arg("-p")
        .arg(folder.path())
        .arg("-c")
        .arg(folder.path().join("nginx.conf"));
    // A daemon: otherwise it takes its starter for an older nginx, and ignores the request of an upgrade.
    run(&mut command).success();
    let pid_of = |name: &str| -> Option<i32> {
        std::fs::read_to_string(folder.path().join(name))
            .ok()?
            .trim()
            .parse()
            .ok()
    };
    wait_until("a master with a worker", || {
        pid_of("nginx.pid").is_some_and(|pid| children(pid).len() == 1)
    });
    let master = pid_of("nginx.pid").unwrap();
    let mut masters = Masters(vec![master]);
    let worker = children(master)[0];
    // The connections up to here are accepted before the tracing.
    ask(port);
    let exe = std::fs::canonicalize(&nginx).unwrap();
    // Of this nginx only: there may be others.
    let text = "pid$target:libc:accept4:return / (int)arg1 >= 0 / { @ = count(); }";
    let mut service = Service::start(&["-v", "--exe", exe.to_str().unwrap(), "-n", text]);
    let is_traced = |service: &mut Service, pid: i32| {
        let sign = format!("process {pid} (nginx) is traced");
        service
            .running
            .wait_until(&sign, |running| running.stderr().contains(&sign));
    };
    is_traced(&mut service, master);
    is_traced(&mut service, worker);
    ask(port);
    // The new worker is forked, and has its probes from its first instruction.
    masters.signal(Signal::SIGHUP);
    wait_until("a new worker", || {
        !children(master).contains(&worker) && children(master).len() == 1
    });
    ask(port);
    // The new master executes the file, and is found; so is its worker.
    masters.signal(Signal::SIGUSR2);
    wait_until("a new master with a worker", || {
        pid_of("nginx.pid").is_some_and(|pid| pid != master && children(pid).len() == 1)
    });
    let upgraded = pid_of("nginx.pid").unwrap();
    let new_worker = children(upgraded)[0];
    is_traced(&mut service, upgraded);
    is_traced(&mut service, new_worker);
    ask(port);
    masters.signal(Signal::SIGQUIT);
    masters.0[0] = upgraded;
    wait_until("the end of the old master", || {
        !Path::new(&format!("/proc/{master}")).exists()
    });
    ask(port);
    let (stdout, stderr) = service.end();
    for pid in [upgraded, new_worker] {
        let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
        assert!(!maps.contains("nanoprobe"), "{maps}");
    }
    ask(port);
    masters.signal(Signal::SIGQUIT);
    assert_eq!(value(&stdout), 4 * ROUND as i64, "{stderr}");
}
