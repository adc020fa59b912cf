//! A test's own PostgreSQL server, and clients that speak its protocol. A tracer's counts are
//! compared with what a client has sent and received.
//!
//! ```text
//!   start-up   length, version 3.0, "user" NAME "database" NAME, NUL
//!   message    kind (1 byte), length (4, big endian, itself included), content
//!   to it      Q query | P parse, B bind, E execute, S sync | X end
//!   from it    K process, key | C done | E error | Z ready for the next | others, of no interest here
//! ```

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::sys::signal::Signal;

use crate::command::{Running, as_ordinary_user, run};
use crate::left_out::{find_command, left_out};
use crate::tracer::nanoprobe;

const USER: &str = "tester";

/// A server that listens on a socket in its own folder.
#[derive(Debug)]
pub struct Server {
    running: Running,
    folder: tempfile::TempDir,
}

/// A session of a server: a process of its own.
#[derive(Debug)]
pub struct Client {
    stream: UnixStream,
    /// The pid of the session's server process.
    pub pid: i32,
    /// The number of statements that succeeded.
    pub done: i64,
    /// The number of statements that failed.
    pub failed: i64,
}

/// A program of PostgreSQL; distributions keep the server's programs out of PATH.
pub fn find(name: &str) -> Option<PathBuf> {
    let installed = ["15", "16", "17", "18"].map(|version| format!("/usr/lib/postgresql/{version}/bin/{name}"));
    let installed = installed.into_iter().map(PathBuf::from).find(|path| path.is_file());
    installed.or_else(|| find_command(name))
}

/// `initdb` and `postgres`, if there is a server with static probes. Otherwise reports why `what` is left out.
pub fn need_programs(what: &str) -> Option<(PathBuf, PathBuf)> {
    let (Some(initdb), Some(postgres)) = (find("initdb"), find("postgres")) else {
        left_out(what, "postgres is not installed");
        return None;
    };
    let listed = run(Command::new(nanoprobe())
        .args(["-l", "-n", "postgresql*:::query-done", "-c"])
        .arg(format!("{} --version", postgres.display())));
    if !listed.stdout.contains("query-done") {
        left_out(what, "this postgres has no static probes");
        return None;
    }
    Some((initdb, postgres))
}

/// Makes a database in `data`, as an ordinary user.
///
/// # Panics
/// When `initdb` fails.
#[track_caller]
pub fn make_database(initdb: &Path, data: &Path) {
    let mut make = Command::new(initdb);
    make.args(["-N", "-A", "trust", "-U", USER, "-D"]).arg(data);
    run(&mut as_ordinary_user(&make)).success();
}

/// A folder that the ordinary user may write.
///
/// # Panics
/// When no folder can be made.
pub fn open_folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o777)).expect("its permissions");
    folder
}

impl Server {
    /// Makes a database and starts its server. If PostgreSQL is missing, reports that `what` is left out, and returns
    /// `None`.
    ///
    /// # Panics
    /// When it does not start.
    #[track_caller]
    pub fn start(what: &str) -> Option<Server> {
        Server::start_with(what, &[])
    }

    /// As [`Server::start`], with these variables in the server's environment.
    ///
    /// # Panics
    /// When it does not start.
    #[track_caller]
    pub fn start_with(what: &str, variables: &[(&str, &Path)]) -> Option<Server> {
        let (initdb, postgres) = need_programs(what)?;
        let folder = open_folder();
        let data = folder.path().join("data");
        make_database(&initdb, &data);
        let mut command = Command::new(postgres);
        command.args(["-h", "", "-p", "5432", "-F", "-D"]).arg(&data);
        command.arg("-k").arg(folder.path());
        let mut command = as_ordinary_user(&command);
        command.envs(variables.iter().copied());
        let mut server = Server {
            running: Running::start(&mut command),
            folder,
        };
        // The server reports on its standard error, in the machine's language, that it is ready. So the test tries to
        // connect instead.
        let socket = server.socket();
        server
            .running
            .wait_until("taking connections", |_| Client::connect(&socket).is_some());
        Some(server)
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join(".s.PGSQL.5432")
    }

    /// The process that takes connections.
    pub fn pid(&self) -> i32 {
        self.running.pid()
    }

    /// Runs pgbench's own script so often, each time with a new connection and with this text.
    ///
    /// # Panics
    /// When it fails.
    #[track_caller]
    pub fn pgbench_connecting(&self, pgbench: &Path, script: &str, times: u32) {
        let file = self.folder.path().join("script.sql");
        std::fs::write(&file, script).expect("a script");
        let mut command = Command::new(pgbench);
        command.args(["-C", "-n", "-c", "1", "-t", &times.to_string(), "-U", USER, "-h"]);
        command.arg(self.folder.path()).arg("-f").arg(&file).arg("postgres");
        let finished = run(&mut command).success();
        let done = format!("actually processed: {times}/{times}");
        assert!(finished.stdout.contains(&done), "{}", finished.stdout);
    }

    /// A new session.
    ///
    /// # Panics
    /// When the server refuses.
    #[track_caller]
    pub fn connect(&self) -> Client {
        Client::connect(&self.socket()).expect("a session")
    }

    /// Ends the server and its sessions.
    ///
    /// # Panics
    /// If it fails to end.
    #[track_caller]
    pub fn stop(self) {
        // `setpriv` is replaced by the server. SIGINT asks the server to end without waiting for clients.
        self.running.signal(Signal::SIGINT);
        self.running.finish().success();
    }
}

impl Client {
    fn connect(socket: &Path) -> Option<Client> {
        let stream = UnixStream::connect(socket).ok()?;
        stream.set_read_timeout(Some(crate::LIMIT)).ok()?;
        let mut client = Client {
            stream,
            pid: 0,
            done: 0,
            failed: 0,
        };
        let mut start = 196_608_u32.to_be_bytes().to_vec();
        for word in ["user", USER, "database", "postgres", ""] {
            start.extend_from_slice(word.as_bytes());
            start.push(0);
        }
        let length = start.len() as u32 + 4;
        client.stream.write_all(&length.to_be_bytes()).ok()?;
        client.stream.write_all(&start).ok()?;
        client.take_answers().ok()?;
        (client.pid > 0).then_some(client)
    }

    fn send(&mut self, kind: u8, content: &[u8]) {
        let mut message = vec![kind];
        message.extend_from_slice(&(content.len() as u32 + 4).to_be_bytes());
        message.extend_from_slice(content);
        self.stream.write_all(&message).expect("sending");
    }

    /// Reads up to "ready for the next".
    fn take_answers(&mut self) -> std::io::Result<()> {
        loop {
            let mut head = [0; 5];
            self.stream.read_exact(&mut head)?;
            let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]);
            let mut content = vec![0; length.saturating_sub(4) as usize];
            self.stream.read_exact(&mut content)?;
            match (head[0], content.first_chunk::<4>()) {
                (b'K', Some(pid)) => self.pid = i32::from_be_bytes(*pid),
                (b'C', _) => self.done += 1,
                (b'E', _) => self.failed += 1,
                (b'Z', _) => return Ok(()),
                _ => {}
            }
        }
    }

    /// A query by the simple protocol.
    ///
    /// # Panics
    /// When the session has ended.
    #[track_caller]
    pub fn query(&mut self, text: &str) {
        self.send(b'Q', &[text.as_bytes(), b"\0"].concat());
        self.take_answers().expect("the answer");
    }

    /// Sends a query that is parsed, but not executed.
    ///
    /// # Panics
    /// When the session has ended.
    #[track_caller]
    pub fn prepare(&mut self, text: &str) {
        self.send(b'P', &[b"\0", text.as_bytes(), b"\0\0\0"].concat());
        self.send(b'S', &[]);
        self.take_answers().expect("the answer");
    }

    /// A query by the extended protocol, as most libraries send theirs: parsed, bound to no parameters, executed.
    ///
    /// # Panics
    /// When the session has ended.
    #[track_caller]
    pub fn execute(&mut self, text: &str) {
        self.send(b'P', &[b"\0", text.as_bytes(), b"\0\0\0"].concat());
        self.send(b'B', &[0; 8]);
        self.send(b'E', &[0; 5]);
        self.send(b'S', &[]);
        self.take_answers().expect("the answer");
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.stream.write_all(&[b'X', 0, 0, 0, 4]);
    }
}
