//! Servers, and a client that sends them the same requests in every run.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;

use nanoprobe_tests::LIMIT;
use nanoprobe_tests::left_out::need_command;
use nanoprobe_tests::program::{Build, need_program};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::Subject;
use super::programs::BY_GO;

const REQUESTS: usize = 20;
const REQUEST: &str = "GET /hello.c HTTP/1.0\r\n\r\n";

pub fn subjects(folder: &Path) -> Vec<Subject> {
    [nginx(folder), go()].into_iter().flatten().collect()
}

/// A port that nobody listens on.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("its address").port()
}

/// Connects as soon as somebody listens.
fn connect(port: u16) -> TcpStream {
    let start = std::time::Instant::now();
    loop {
        match TcpStream::connect(("127.0.0.1", port)) {
            Ok(stream) => return stream,
            Err(error) => assert!(start.elapsed() < LIMIT, "port {port}: {error}"),
        }
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
}

/// The answers to all requests, one after the other, without the lines that name the time.
fn answers(port: u16) -> String {
    let mut all = String::new();
    for _ in 0..REQUESTS {
        let mut stream = connect(port);
        stream.write_all(REQUEST.as_bytes()).expect("a request");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        all.extend(
            answer
                .lines()
                .filter(|line| !line.starts_with("Date:"))
                .map(|line| format!("{line}\n")),
        );
    }
    assert!(all.matches("200 OK").count() == REQUESTS, "{all}");
    all
}

/// One process that waits by epoll.
fn nginx(folder: &Path) -> Option<Subject> {
    let program = need_command("counts of strace", "nginx")?;
    let (port, here) = (free_port(), folder.display());
    let paths: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|name| format!("{name}_temp_path {here}/nginx_{name}; "))
        .concat();
    let text = format!(
        "daemon off; master_process off; pid {here}/nginx.pid; error_log stderr crit;\n\
         events {{ worker_connections 64; }}\n\
         http {{ access_log off; {paths} server {{ listen 127.0.0.1:{port}; root {here}; }} }}\n"
    );
    let file = folder.join("nginx.conf");
    std::fs::write(&file, text).expect("a file");
    let pid = folder.join("nginx.pid");
    let client = move || {
        let answers = answers(port);
        let number = std::fs::read_to_string(&pid).expect("its number");
        kill(Pid::from_raw(number.trim().parse().expect("a number")), Signal::SIGQUIT).expect("it runs");
        answers
    };
    let (program, file) = (program.to_str()?, file.to_str()?);
    // A request may have come when its connection is accepted, or come later.
    let varies: &[&str] = &["epoll_wait", "epoll_ctl", "recvfrom"];
    Some(Subject {
        client: Box::new(client),
        ..Subject::new(&[program, "-e", "stderr", "-c", file], varies)
    })
}

/// A static server.
fn go() -> Option<Subject> {
    let program = need_program("goserve.go", Build::Go)?;
    let (port, requests) = (free_port(), REQUESTS.to_string());
    Some(Subject {
        client: Box::new(move || answers(port)),
        ..Subject::new(&[program.to_str()?, &port.to_string(), &requests], BY_GO)
    })
}
