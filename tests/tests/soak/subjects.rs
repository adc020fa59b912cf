//! The programs of the soak. Each does batches of work on request; for most of them the number of calls is known.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use nanoprobe_tests::command::{Running, run};
use nanoprobe_tests::left_out::{left_out, need_command};
use nanoprobe_tests::program::{Build, need_program, program, sources};

use crate::LIMIT;

/// How a batch is requested, and how its end is recognised.
enum Batches {
    /// A line with the number of calls; `done NUMBER` is the answer.
    Lines { calls: i64, done: usize },
    /// A client that puts load on a server, and ends by itself.
    Client {
        start: Box<dyn Fn() -> Command>,
        running: Option<Running>,
    },
}

/// A program that is traced.
pub struct Subject {
    pub name: &'static str,
    /// The module that is traced.
    pub pid: i32,
    /// The clause that counts the calls of a batch, and prints one number.
    pub counts: String,
    /// Another clause, which makes many patches and prints nothing.
    pub more: &'static str,
    /// Whether the program can handle traps besides its signals.
    pub may_trap: bool,
    batches: Batches,
    process: Running,
    folder: Option<tempfile::TempDir>,
}

/// Many sites, and no output.
const MUCH: &str = "pid$target:libc:mem*:entry,pid$target:libc:str*:return,pid$target:libc:malloc:entry { @more = sum(arg0); } \
                    END { clear(@more); trunc(@more); }";

impl Subject {
    /// Requests a batch; returns its number of calls, if that is known.
    pub fn begin_batch(&mut self) -> Option<i64> {
        match &mut self.batches {
            Batches::Lines { calls, done } => {
                *done += 1;
                self.process.write(&format!("{calls}\n"));
                Some(*calls)
            }
            Batches::Client { start, running } => {
                *running = Some(Running::start(&mut start()));
                None
            }
        }
    }

    /// Waits until the batch is done.
    pub fn end_batch(&mut self) {
        match &mut self.batches {
            Batches::Lines { done, .. } => {
                let begun = Instant::now();
                loop {
                    let printed = self.process.stdout();
                    if printed.lines().filter(|line| line.starts_with("done ")).count() >= *done {
                        return;
                    }
                    assert!(
                        self.process.is_running() && begun.elapsed() < LIMIT,
                        "{} is harmed:\n{printed}\n{}",
                        self.name,
                        self.process.stderr()
                    );
                    std::thread::sleep(Duration::from_millis(5));
                }
            }
            Batches::Client { running, .. } => {
                if let Some(client) = running.take() {
                    let finished = client.finish_within(LIMIT).success();
                    let said = format!("{}{}", finished.stdout, finished.stderr);
                    assert!(!said.contains("rror"), "{}: {said}", self.name);
                }
            }
        }
    }

    pub fn is_alive(&mut self) -> bool {
        self.process.is_running() && std::path::Path::new(&format!("/proc/{}/mem", self.pid)).exists()
    }

    /// Ends the program, which reports whether its own results were right.
    pub fn finish(mut self) {
        match self.batches {
            Batches::Lines { .. } => {
                self.process.close_input();
                let finished = self.process.finish_within(LIMIT).success();
                assert!(finished.stdout.ends_with("OK\n"), "{}: {}", self.name, finished.stdout);
            }
            Batches::Client { .. } => {
                self.process.signal(nix::sys::signal::Signal::SIGTERM);
                self.process.finish_within(LIMIT).success();
            }
        }
    }
}

/// The programs that this machine has.
pub fn all() -> Vec<Subject> {
    let mut all: Vec<Subject> = ["threads", "coroutines", "rseq"].into_iter().filter_map(of_c).collect();
    all.extend([go(), node(), jvm(), redis(), nginx()].into_iter().flatten());
    all
}

fn by_lines(name: &'static str, command: &mut Command, calls: i64, probe: &str) -> Subject {
    let mut process = Running::start(command);
    process.wait_for("working\n");
    Subject {
        name,
        pid: process.pid(),
        counts: format!("pid$target:{probe}:entry {{ @ = count(); }}"),
        more: MUCH,
        may_trap: true,
        batches: Batches::Lines { calls, done: 0 },
        process,
        folder: None,
    }
}

fn of_c(mode: &'static str) -> Option<Subject> {
    let path = program("soak.c");
    if mode == "rseq" && run(Command::new(&path).arg(mode)).stdout.contains("no rseq") {
        left_out("soak of rseq", "the C library registers no restartable sequences");
        return None;
    }
    Some(by_lines(mode, Command::new(path).arg(mode), 20_000, "a.out:soak_call"))
}

fn go() -> Option<Subject> {
    let path = need_program("soak.go", Build::Go)?;
    let mut subject = by_lines("go", &mut Command::new(path), 20_000, "a.out:main.soakCall");
    subject.more = "pid$target:a.out:runtime.m*:entry { @more = count(); } END { trunc(@more); }";
    Some(subject)
}

fn node() -> Option<Subject> {
    let path = need_command("soak of node", "node")?;
    let mut command = Command::new(path);
    let mut subject = by_lines(
        "node",
        command.arg(sources().join("soak.js")),
        5000,
        "a.out:uv_fs_access",
    );
    subject.more = "pid$target:a.out:uv_*:entry { @more = count(); } END { trunc(@more); }";
    Some(subject)
}

fn jvm() -> Option<Subject> {
    let path = need_command("soak of the JVM", "java")?;
    need_command("soak of the JVM", "javac")?;
    let mut command = Command::new(path);
    let source = sources().join("Soak.java");
    Some(by_lines("jvm", command.arg(source), 5000, "libjvm:JVM_TotalMemory"))
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a loopback port");
    listener.local_addr().expect("its address").port()
}

fn server(name: &'static str, command: &mut Command, port: u16, client: Box<dyn Fn() -> Command>) -> Subject {
    let mut process = Running::start(command);
    process.wait_until("listening", |_| TcpStream::connect(("127.0.0.1", port)).is_ok());
    Subject {
        name,
        pid: process.pid(),
        counts:
            "pid$target:libc:read:entry,pid$target:libc:write*:entry,pid$target:libc:epoll_wait:entry { @ = count(); }"
                .into(),
        more: MUCH,
        may_trap: true,
        batches: Batches::Client {
            start: client,
            running: None,
        },
        process,
        folder: None,
    }
}

fn redis() -> Option<Subject> {
    let path = need_command("soak of redis", "redis-server")?;
    let benchmark = need_command("soak of redis", "redis-benchmark")?;
    let folder = tempfile::tempdir().expect("a temporary folder");
    let port = free_port();
    let mut command = Command::new(path);
    command.args([
        "--port",
        &port.to_string(),
        "--bind",
        "127.0.0.1",
        "--save",
        "",
        "--appendonly",
        "no",
        "--dir",
    ]);
    let client = Box::new(move || {
        let mut command = Command::new(&benchmark);
        command.args([
            "-h",
            "127.0.0.1",
            "-p",
            &port.to_string(),
            "-c",
            "8",
            "-q",
            "-n",
            "400",
            "-t",
            "set,get,lpush,lrange_100",
        ]);
        command
    });
    let mut subject = server("redis", command.arg(folder.path()), port, client);
    subject.folder = Some(folder);
    Some(subject)
}

fn nginx() -> Option<Subject> {
    let path = need_command("soak of nginx", "nginx")?;
    let wrk = need_command("soak of nginx", "wrk")?;
    let folder = tempfile::tempdir().expect("a temporary folder");
    let port = free_port();
    let configuration = format!(
        "daemon off; master_process off; pid nginx.pid; error_log error.log; events {{ worker_connections 128; }}\n\
         http {{ access_log access.log; client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi;\n\
         uwsgi_temp_path uwsgi; scgi_temp_path scgi; server {{ listen 127.0.0.1:{port}; root .; gzip on; }} }}\n"
    );
    std::fs::write(folder.path().join("nginx.conf"), configuration).expect("the configuration");
    std::fs::write(folder.path().join("text.txt"), "all work and no play\n".repeat(400)).expect("a page");
    let mut command = Command::new(path);
    command
        .arg("-p")
        .arg(folder.path())
        .arg("-c")
        .arg(folder.path().join("nginx.conf"));
    let client = Box::new(move || {
        let mut command = Command::new(&wrk);
        command.args([
            "-t",
            "1",
            "-c",
            "8",
            "-d",
            "1s",
            "--timeout",
            "60s",
            &format!("http://127.0.0.1:{port}/text.txt"),
        ]);
        command
    });
    let mut subject = server("nginx", &mut command, port, client);
    assert!(ask(port).contains("200 OK"));
    subject.folder = Some(folder);
    Some(subject)
}

fn ask(port: u16) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
    stream.set_read_timeout(Some(LIMIT)).expect("a time limit");
    stream.write_all(b"GET /text.txt HTTP/1.0\r\n\r\n").expect("sending");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}
