//! Running the nanoprobe under test.

use std::ffi::{OsStr, OsString};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::command::{Finished, Running, as_ordinary_user};
use crate::in_time::InTime;
use crate::{program, text};

/// The tactics with which a test runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// The tactics that nanoprobe chooses: jumps where they fit.
    Default,
    /// `-x tactic=trap`.
    Trap,
}

impl Form {
    /// Chooses one of two numbers of hits. A trap costs a thousand times as much as a jump. So where a test only needs
    /// many hits, it makes fewer of them with traps.
    pub fn scale(self, by_default: u64, by_traps: u64) -> u64 {
        match self {
            Form::Default => by_default,
            Form::Trap => by_traps,
        }
    }
}

/// The path of the command: `NANOPROBE`, or built from this workspace in this profile. `cargo test -p` of another crate
/// does not build the command: a test of an old command would prove nothing.
///
/// # Panics
/// When it cannot be built.
pub fn nanoprobe() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| {
        if let Some(path) = std::env::var_os("NANOPROBE") {
            return PathBuf::from(path);
        }
        let path = program::profile_folder().join("nanoprobe");
        if is_older_than_its_sources(&path) {
            let folder = program::profile_folder();
            let target = folder.parent().expect("a target folder");
            let mut build = Command::new(env!("CARGO"));
            build.args(["build", "-p", "nanoprobe", "--target-dir"]).arg(target);
            if folder.ends_with("release") {
                build.arg("--release");
            }
            let status = build
                .current_dir(env!("CARGO_MANIFEST_DIR"))
                .status_within(8 * crate::LIMIT)
                .expect("running cargo");
            assert!(status.success() && path.is_file(), "building nanoprobe failed");
        }
        path
    })
}

/// Whether a file is missing, or some source of the workspace was changed after it was made.
fn is_older_than_its_sources(made: &Path) -> bool {
    let changed = |path: &Path| path.metadata().and_then(|metadata| metadata.modified()).ok();
    let Some(made) = changed(made) else { return true };
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut folders: Vec<PathBuf> = ["crates", "agent", "tools"].map(|room| workspace.join(room)).into();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                // Tests are no part of the command.
                if !path.ends_with("tests") {
                    folders.push(path);
                }
            } else if changed(&path).is_some_and(|changed| changed > made) {
                return true;
            }
        }
    }
    false
}

/// A nanoprobe command line in the making. Results go to a file by `-o`, so that they do not mix
/// with the target's output.
#[derive(Debug)]
pub struct Tracer {
    arguments: Vec<OsString>,
    variables: Vec<(OsString, OsString)>,
    results: tempfile::NamedTempFile,
    ordinary_user: bool,
    wrapper: Vec<OsString>,
}

/// The output of a run of nanoprobe.
#[derive(Debug)]
pub struct Traced {
    /// Exit status, standard output (with `-c` the target's too), standard error.
    pub finished: Finished,
    /// The results, which nanoprobe wrote to the file of `-o`.
    pub results: String,
}

/// A nanoprobe that runs.
#[derive(Debug)]
pub struct Tracing {
    /// The process.
    pub running: Running,
    results: tempfile::NamedTempFile,
}

impl Tracer {
    /// A tracer with the options of a form.
    ///
    /// # Panics
    /// When there is no room for temporary files.
    pub fn new(form: Form) -> Tracer {
        let results = tempfile::Builder::new()
            .prefix("nanoprobe-test")
            .tempfile()
            .expect("a temporary file");
        // The ordinary user must be able to write the file, too.
        std::fs::set_permissions(results.path(), std::fs::Permissions::from_mode(0o666)).expect("its permissions");
        let mut arguments = vec![OsString::from("-o"), results.path().as_os_str().to_owned()];
        if form == Form::Trap {
            arguments.extend(["-x".into(), "tactic=trap".into()]);
        }
        Tracer {
            arguments,
            variables: Vec::new(),
            results,
            ordinary_user: false,
            wrapper: Vec::new(),
        }
    }

    /// Adds an argument as it is.
    pub fn argument(mut self, argument: impl Into<OsString>) -> Tracer {
        self.arguments.push(argument.into());
        self
    }

    /// Adds variables to nanoprobe's environment, which the command of `-c` inherits. For an ordinary user they are not
    /// set.
    pub fn environment(mut self, variables: &[(&str, &Path)]) -> Tracer {
        let owned = variables
            .iter()
            .map(|(name, value)| (OsString::from(name), value.as_os_str().to_owned()));
        self.variables.extend(owned);
        self
    }

    /// Adds `-n CLAUSE`.
    pub fn clause(self, clause: &str) -> Tracer {
        self.argument("-n").argument(clause)
    }

    /// Adds `-c "PROGRAM ARGUMENTS"`.
    pub fn command(self, program: &Path, arguments: &str) -> Tracer {
        let line = format!("{} {arguments}", program.display());
        self.argument("-c").argument(line.trim())
    }

    /// Adds `-p PID`.
    pub fn process(self, pid: i32) -> Tracer {
        self.argument("-p").argument(pid.to_string())
    }

    /// Runs as an ordinary user when we are root.
    pub fn as_ordinary_user(mut self) -> Tracer {
        self.ordinary_user = true;
        self
    }

    /// Runs nanoprobe by way of another command: setpriv(1), prlimit(1) and the like, with their arguments.
    pub fn under(mut self, command: &[&str]) -> Tracer {
        self.wrapper = command.iter().map(OsString::from).collect();
        self
    }

    /// Starts the tracer.
    pub fn start(self) -> Tracing {
        let words: Vec<&OsStr> = self
            .wrapper
            .iter()
            .map(OsString::as_os_str)
            .chain([nanoprobe().as_os_str()])
            .collect();
        let (first, others) = words.split_first().expect("the command itself");
        let mut command = Command::new(first);
        command.args(others).args(&self.arguments).envs(self.variables);
        if self.ordinary_user {
            command = as_ordinary_user(&command);
        }
        Tracing {
            running: Running::start(&mut command),
            results: self.results,
        }
    }

    /// Starts the tracer on a running process.
    pub fn start_on(self, pid: i32) -> Tracing {
        self.process(pid).start()
    }

    /// Starts the tracer on a running process, and returns when its probes are in place.
    ///
    /// # Panics
    /// When it ends first.
    #[track_caller]
    pub fn attach(self, pid: i32) -> Tracing {
        let mut tracing = self.process(pid).start();
        wait_until_armed(&mut tracing.running, pid);
        tracing
    }

    /// Starts the tracer on a running process, and returns when it traces: everything is in place, semaphores too,
    /// and an interrupt now ends the tracing instead of cancelling the attach. `-v` reports this moment.
    ///
    /// # Panics
    /// When it ends first.
    #[track_caller]
    pub fn trace(self, pid: i32) -> Tracing {
        let mut tracing = self.argument("-v").process(pid).start();
        wait_until_tracing(&mut tracing.running);
        tracing
    }

    /// Starts the tracer on a running process. Returns when its probes are in place, or when it has ended because
    /// attaching was refused.
    ///
    /// # Panics
    /// When neither happens.
    #[track_caller]
    pub fn attach_or_end(self, pid: i32) -> Tracing {
        let mut tracing = self.start_on(pid);
        let armed = || text::is_complete(pid) && text::is_patched(pid) && text::ptracer(pid) == Some(0);
        let start = std::time::Instant::now();
        while tracing.running.is_running() && !armed() {
            assert!(start.elapsed() < crate::LIMIT, "hung: {}", tracing.running.stderr());
            std::thread::sleep(Duration::from_millis(2));
        }
        tracing
    }

    /// Runs the tracer to its end.
    ///
    /// # Panics
    /// When it hangs.
    #[track_caller]
    pub fn run(self) -> Traced {
        let mut tracing = self.start();
        tracing.running.close_input();
        tracing.finish()
    }
}

impl Tracing {
    /// Results so far.
    pub fn results(&self) -> String {
        std::fs::read_to_string(self.results.path()).unwrap_or_default()
    }

    /// Waits until the results are as they should be.
    ///
    /// # Panics
    /// When they never are.
    #[track_caller]
    pub fn wait_for_results(&mut self, what: &str, are_there: impl Fn(&str) -> bool) {
        let path = self.results.path().to_owned();
        let is_so = |_: &Running| std::fs::read_to_string(&path).is_ok_and(|text| are_there(&text));
        self.running.wait_until(what, is_so);
    }

    /// Waits until the tracer has ended.
    ///
    /// # Panics
    /// When it hangs.
    #[track_caller]
    pub fn finish(self) -> Traced {
        self.finish_within(crate::LIMIT)
    }

    /// Waits until the tracer has ended, for longer than usual.
    ///
    /// # Panics
    /// When it takes longer.
    #[track_caller]
    pub fn finish_within(self, limit: Duration) -> Traced {
        let finished = self.running.finish_within(limit);
        let results = std::fs::read_to_string(self.results.path()).unwrap_or_default();
        Traced { finished, results }
    }

    /// Interrupts the tracer as Ctrl-C does, and waits until it has ended.
    ///
    /// # Panics
    /// When it hangs, or exits with an error.
    #[track_caller]
    pub fn interrupt(self) -> Traced {
        self.running.signal(Signal::SIGINT);
        let traced = self.finish();
        assert_eq!(
            traced.finished.code(),
            0,
            "after an interrupt: {}",
            traced.finished.stderr
        );
        traced
    }
}

impl Traced {
    /// Asserts exit status 0, and returns itself.
    ///
    /// # Panics
    /// With the outputs.
    #[track_caller]
    pub fn success(self) -> Traced {
        let Finished { status, stdout, stderr } = &self.finished;
        assert!(
            status.success(),
            "{status}\n--- stdout\n{stdout}\n--- stderr\n{stderr}\n--- results\n{}",
            self.results
        );
        self
    }

    /// Also asserts that the target of `-c` has found its own results right, and that nanoprobe has reported no losses.
    ///
    /// # Panics
    /// With the outputs.
    #[track_caller]
    pub fn complete(self) -> Traced {
        let traced = self.success();
        let Finished { stdout, stderr, .. } = &traced.finished;
        assert!(
            stdout.lines().any(|line| line == "OK"),
            "the target did not end well:\n{stdout}\n{stderr}"
        );
        assert_nothing_lost(stderr);
        traced
    }
}

/// Asserts that no drop, miss or error was reported.
///
/// # Panics
/// With the report.
#[track_caller]
pub fn assert_nothing_lost(stderr: &str) {
    for sign in ["drop", "missed", "error on enabled probe"] {
        assert!(!stderr.contains(sign), "nanoprobe reports losses:\n{stderr}");
    }
}

/// Waits until a tracer has made all changes to the text of a process, and has released it.
///
/// # Panics
/// When the tracer ends first, or neither happens.
#[track_caller]
pub fn wait_until_armed(tracer: &mut Running, pid: i32) {
    tracer.wait_until("arming its probes", |_| {
        text::is_complete(pid) && text::is_patched(pid) && text::ptracer(pid) == Some(0)
    });
}

/// Waits until a tracer with `-v` says that everything is in place.
///
/// # Panics
/// When it ends first.
#[track_caller]
pub fn wait_until_tracing(tracer: &mut Running) {
    tracer.wait_until("tracing", |tracer| {
        tracer
            .stderr()
            .lines()
            .any(|line| line.starts_with("nanoprobe: attach "))
    });
}

/// Whether a tracer has installed its handler for a request to end. Before that it has done nothing, and the signal
/// kills it like any program.
pub fn is_prepared(tracer: &Running) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{}/status", tracer.pid())).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = caught.and_then(|caught| u64::from_str_radix(caught.trim(), 16).ok());
    caught.is_some_and(|caught| caught & 1 << (libc::SIGINT - 1) != 0 && caught & 1 << (libc::SIGTERM - 1) != 0)
}

/// Starts a test program with `--wait`, and waits for its `ready`.
///
/// # Panics
/// When it does not get ready.
#[track_caller]
pub fn start_waiting(program: &Path, arguments: &str) -> Running {
    start_waiting_as(program, arguments, false)
}

/// [`start_waiting`], as an ordinary user when asked and we are root.
///
/// # Panics
/// When it does not get ready.
#[track_caller]
pub fn start_waiting_as(program: &Path, arguments: &str, ordinary_user: bool) -> Running {
    let mut command = Command::new(program);
    command.arg("--wait").args(arguments.split_whitespace());
    if ordinary_user {
        command = as_ordinary_user(&command);
    }
    let mut running = Running::start(&mut command);
    running.wait_for("ready\n");
    running
}
