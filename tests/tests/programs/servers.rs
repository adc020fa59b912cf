//! Servers under load, on loopback ports of their own: redis-server under redis-benchmark, nginx under wrk.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;

use nanoprobe_tests::command::{Running, run};
use nanoprobe_tests::left_out::need_command;
use nanoprobe_tests::live_tests;
use nanoprobe_tests::results::matched;
use nanoprobe_tests::text::Snapshot;
use nanoprobe_tests::tracer::{Tracer, assert_nothing_lost};

use crate::{all_of, assert_counted};

/// A port of the loopback interface that was free a moment ago.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a loopback port");
    listener.local_addr().expect("its address").port()
}

/// One request, and the answer up to the end of the connection, which the request asks for.
fn ask(port: u16, request: &str) -> Vec<u8> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
    stream
        .set_read_timeout(Some(nanoprobe_tests::LIMIT))
        .expect("a time limit");
    stream.write_all(request.as_bytes()).expect("sending");
    let mut answer = Vec::new();
    let mut buffer = [0; 65536];
    while let Ok(count @ 1..) = stream.read(&mut buffer) {
        answer.extend_from_slice(&buffer[..count]);
    }
    answer
}

fn wait_for_port(server: &mut Running, port: u16) {
    server.wait_until("listening", |_| TcpStream::connect(("127.0.0.1", port)).is_ok());
}

/// Commands with known answers: strings, hashes, sorted sets, scripts, expiry, transactions.
const REDIS_WORK: &str = "FLUSHALL\r\nSET a 41\r\nINCR a\r\nAPPEND a x\r\nRPUSH list 3 1 2\r\nSORT list\r\nHSET h f v g w\r\n\
HGET h g\r\nZADD z 1 one 2 two 3 three\r\nZRANGEBYSCORE z 2 3\r\nEVAL \"return redis.call('get',KEYS[1])..ARGV[1]\" 1 a y\r\n\
MULTI\r\nSET t 1\r\nINCRBY t 9\r\nEXEC\r\nSETRANGE a 5 z\r\nGET a\r\nPFADD p a b c\r\nPFCOUNT p\r\nSINTER nothing list2\r\nGET list\r\n\
BITCOUNT a\r\nDBSIZE\r\nQUIT\r\n";

live_tests! {
    fn redis(form) {
        let Some(redis) = need_command("all of redis-server", "redis-server") else { return };
        let Some(benchmark) = need_command("all of redis-server", "redis-benchmark") else { return };
        let folder = tempfile::tempdir().expect("a temporary folder");
        let port = free_port();
        let mut command = Command::new(redis);
        command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
        command.arg("--dir").arg(folder.path());
        let mut server = Running::start(&mut command);
        wait_for_port(&mut server, port);
        let right = ask(port, REDIS_WORK);
        assert!(right.starts_with(b"+OK\r\n+OK\r\n:42\r\n:3\r\n"), "{}", String::from_utf8_lossy(&right));

        let load = |requests: u64| {
            let mut command = Command::new(&benchmark);
            command.args(["-h", "127.0.0.1", "-p", &port.to_string(), "-c", "20", "-q", "-r", "1000"]);
            command.args(["-n", &requests.to_string(), "-t", "ping,set,get,incr,lpush,rpop,sadd,hset,zadd,lrange_100,mset"]);
            let finished = run(&mut command).success();
            assert!(!finished.stderr.contains("rror") && !finished.stdout.contains("rror"), "{finished:?}");
        };
        load(1000);
        let snapshot = Snapshot::take(server.pid());
        let tracing = Tracer::new(form).clause(&all_of("a.out")).attach(server.pid());
        load(form.scale(20_000, 1000));
        assert_eq!(ask(port, REDIS_WORK), right);
        let traced = tracing.interrupt();
        snapshot.assert_restored(server.pid());
        assert_eq!(ask(port, REDIS_WORK), right);
        assert!(matched(&traced.finished.stderr) >= 5000, "{}", traced.finished.stderr);
        assert_counted(&traced, 100_000);
        assert_nothing_lost(&traced.finished.stderr);
        assert!(server.is_running());
        ask(port, "SHUTDOWN NOSAVE\r\n");
        server.finish().success();
    }

    fn nginx(form) {
        let Some(nginx) = need_command("all of nginx", "nginx") else { return };
        let Some(wrk) = need_command("all of nginx", "wrk") else { return };
        let folder = tempfile::tempdir().expect("a temporary folder");
        let port = free_port();
        write_site(folder.path(), port);
        let mut command = Command::new(nginx);
        command.arg("-p").arg(folder.path()).arg("-c").arg(folder.path().join("nginx.conf"));
        let mut server = Running::start(&mut command);
        wait_for_port(&mut server, port);
        let master = server.pid();
        server.wait_until("having a worker", |_| worker_of(master).is_some());
        let worker = worker_of(master).expect("a worker");
        let requests = ["/", "/large.bin", "/absent", "/moved", "/text.txt?x=1"];
        let get = |path: &str| {
            let answer = ask(port, &format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"));
            let text = String::from_utf8_lossy(&answer).into_owned();
            text.lines().filter(|line| !line.starts_with("Date:")).collect::<Vec<_>>().join("\n")
        };
        let right: Vec<String> = requests.iter().map(|path| get(path)).collect();
        assert!(right[0].contains("200 OK") && right[2].contains("404") && right[3].contains("301"), "{right:#?}");
        let load = || {
            let mut command = Command::new(&wrk);
            command.args(["-t", "1", "-c", "16", "-d", "2s", "--latency", &format!("http://127.0.0.1:{port}/text.txt")]);
            let finished = run(&mut command).success();
            assert!(!finished.stdout.contains("Non-2xx") && !finished.stdout.contains("Socket errors"), "{}", finished.stdout);
            assert!(finished.stdout.contains("Requests/sec"), "{}", finished.stdout);
        };
        load();
        let snapshot = Snapshot::take(worker);
        let tracing = Tracer::new(form).clause(&all_of("nginx")).attach(worker);
        load();
        let probed: Vec<String> = requests.iter().map(|path| get(path)).collect();
        assert_eq!(probed, right);
        let traced = tracing.interrupt();
        snapshot.assert_restored(worker);
        load();
        assert_eq!(requests.iter().map(|path| get(path)).collect::<Vec<_>>(), right);
        assert!(matched(&traced.finished.stderr) >= 1000, "{}", traced.finished.stderr);
        assert_counted(&traced, 10_000);
        assert_nothing_lost(&traced.finished.stderr);
        // The worker is the same process as before: it did not crash and was not replaced.
        assert_eq!(worker_of(master), Some(worker));
        server.signal(nix::sys::signal::Signal::SIGQUIT);
        server.finish().success();
    }
}

fn worker_of(master: i32) -> Option<i32> {
    let children = std::fs::read_to_string(format!("/proc/{master}/task/{master}/children")).ok()?;
    children.split_whitespace().next()?.parse().ok()
}

fn write_site(folder: &Path, port: u16) {
    let configuration = format!(
        "daemon off; worker_processes 1; pid nginx.pid; error_log error.log; {}
         events {{ worker_connections 128; }}
         http {{
           access_log access.log; client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi;
           uwsgi_temp_path uwsgi; scgi_temp_path scgi;
           server {{ listen 127.0.0.1:{port}; root .; gzip on; server_tokens off;
                     location /moved {{ return 301 /text.txt; }} }}
         }}\n",
        if nix::unistd::geteuid().is_root() {
            "user root;"
        } else {
            ""
        }
    );
    std::fs::write(folder.join("nginx.conf"), configuration).expect("the configuration");
    std::fs::write(folder.join("index.html"), "<html>index</html>\n").expect("a page");
    std::fs::write(folder.join("text.txt"), "text\n".repeat(100)).expect("a page");
    let large: Vec<u8> = (0..300_000_u32).map(|i| b'a' + (i * 7 % 26) as u8).collect();
    std::fs::write(folder.join("large.bin"), large).expect("a page");
}
