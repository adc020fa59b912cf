//! A service manager: it receives what a service tells it (sd_notify(3)).

use std::os::unix::net::UnixDatagram;
use std::process::Command;
use std::time::{Duration, Instant};

use nanoprobe_tests::command::Running;
use nanoprobe_tests::tracer::nanoprobe;
use nix::sys::signal::Signal;

/// The time between two signs of life that the manager wants, twice.
const WATCHDOG: Duration = Duration::from_millis(400);

/// A service, and the manager that has started it.
pub struct Service {
    pub running: Running,
    socket: UnixDatagram,
    /// All that the service has told, line by line.
    told: Vec<String>,
    _folder: tempfile::TempDir,
}

impl Service {
    /// Starts `nanoprobe --service`.
    pub fn start(arguments: &[&str]) -> Service {
        Service::start_by(&mut Command::new(nanoprobe()), arguments)
    }

    /// Starts it by a command whose next argument is one of nanoprobe's.
    pub fn start_by(command: &mut Command, arguments: &[&str]) -> Service {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("notify");
        let socket = UnixDatagram::bind(&path).expect("a socket");
        socket
            .set_read_timeout(Some(Duration::from_millis(10)))
            .expect("a limit");
        command
            .env("NOTIFY_SOCKET", &path)
            .env("WATCHDOG_USEC", WATCHDOG.as_micros().to_string())
            .arg("--service")
            .args(arguments);
        Service {
            running: Running::start(command),
            socket,
            told: Vec::new(),
            _folder: folder,
        }
    }

    /// What was told up to now.
    pub fn told(&mut self) -> &[String] {
        let mut bytes = [0; 4096];
        while let Ok(length) = self.socket.recv(&mut bytes) {
            let text = String::from_utf8_lossy(&bytes[..length]).into_owned();
            self.told.extend(text.lines().map(str::to_owned));
        }
        &self.told
    }

    /// How often a line was told.
    pub fn times(&mut self, line: &str) -> usize {
        self.told().iter().filter(|told| *told == line).count()
    }

    /// Waits until the service has told a line that contains this text.
    #[track_caller]
    pub fn wait_for(&mut self, text: &str) {
        let start = Instant::now();
        while !self.told().iter().any(|line| line.contains(text)) {
            assert!(
                start.elapsed() < nanoprobe_tests::LIMIT && self.running.is_running(),
                "{text:?} was not told: {:?}\n{}",
                self.told,
                self.running.stderr()
            );
        }
    }

    /// Waits until so many processes were traced since the start.
    #[track_caller]
    pub fn wait_for_processes(&mut self, count: usize) {
        self.wait_for(&format!("; {count} since the start"));
    }

    /// Ends the service as its manager does. Yields its standard output and its messages.
    #[track_caller]
    pub fn end(mut self) -> (String, String) {
        assert_eq!(self.times("STOPPING=1"), 0);
        self.running.signal(Signal::SIGTERM);
        let socket = self.socket;
        let finished = self.running.finish();
        assert_eq!(finished.code(), 0, "{}", finished.stderr);
        let mut bytes = [0; 4096];
        let mut last = String::new();
        while let Ok(length) = socket.recv(&mut bytes) {
            last += &String::from_utf8_lossy(&bytes[..length]);
        }
        assert!(last.contains("STOPPING=1"), "{last}");
        (finished.stdout, finished.stderr)
    }

    /// Kills the service.
    pub fn kill(self) {
        self.running.signal(Signal::SIGKILL);
        self.running.finish();
    }
}
