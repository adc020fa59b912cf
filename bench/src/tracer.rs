//! A nanoprobe attached to a measured program.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

/// How long a step may take before it counts as hung.
const LIMIT: Duration = Duration::from_secs(60);

/// The command that is measured.
static PATH: Mutex<Option<PathBuf>> = Mutex::new(None);

/// Sets the nanoprobe that is measured.
pub fn set_path(path: &Path) {
    *PATH.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(path.to_owned());
}

/// The command that is measured.
pub fn path() -> Result<PathBuf> {
    let path = PATH.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone();
    path.context("no nanoprobe to measure")
}

/// The output of `-V`.
pub fn version() -> String {
    let output = path().and_then(|path| Ok(Command::new(path).arg("-V").stdin(Stdio::null()).output()?));
    output.map_or("nanoprobe (absent)".to_owned(), |output| {
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    })
}

/// An attached tracer.
#[derive(Debug)]
pub struct Tracer {
    child: Child,
    stderr: PathBuf,
    stdout: PathBuf,
    _folder: tempfile::TempDir,
}

/// The output of a tracer that has ended.
#[derive(Clone, Debug)]
pub struct Ended {
    pub stdout: String,
    pub stderr: String,
}

impl Tracer {
    /// Attaches with one program text and waits until the probes are in place.
    pub fn attach(pid: u32, program: &str, options: &[&str]) -> Result<Tracer> {
        Tracer::attach_to(&pid.to_string(), program, options)
    }

    /// As [`Tracer::attach`], to a list of processes.
    pub fn attach_to(pids: &str, program: &str, options: &[&str]) -> Result<Tracer> {
        let mut arguments = vec!["-q", "-v", "-n", program, "-p", pids];
        arguments.extend(options);
        Tracer::start(&arguments, "nanoprobe: attach ")
    }

    /// Starts the command and waits until its messages contain `sign`.
    pub fn start(arguments: &[&str], sign: &str) -> Result<Tracer> {
        let folder = tempfile::tempdir()?;
        let (stdout, stderr) = (folder.path().join("stdout"), folder.path().join("stderr"));
        let child = Command::new(path()?)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(File::create(&stdout)?)
            .stderr(File::create(&stderr)?)
            .spawn()
            .context("starting nanoprobe")?;
        let mut tracer = Tracer {
            child,
            stderr,
            stdout,
            _folder: folder,
        };
        let start = Instant::now();
        while !read(&tracer.stderr).contains(sign) {
            if let Some(status) = tracer.child.try_wait()? {
                bail!(
                    "nanoprobe ended before it attached ({status}): {}",
                    last_lines(&read(&tracer.stderr))
                );
            }
            ensure!(
                start.elapsed() < LIMIT,
                "nanoprobe did not attach: {}",
                last_lines(&read(&tracer.stderr))
            );
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(tracer)
    }

    /// The tracer's own process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends Ctrl-C, and yields the output.
    pub fn detach(self) -> Result<Ended> {
        // SAFETY: the child has not been waited for, so its id is its own.
        unsafe { libc::kill(self.child.id() as i32, libc::SIGINT) };
        self.wait()
    }

    /// Waits until it ends, and yields the output.
    pub fn wait(mut self) -> Result<Ended> {
        let start = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait()? {
                break status;
            }
            ensure!(
                start.elapsed() < LIMIT,
                "nanoprobe did not end: {}",
                last_lines(&read(&self.stderr))
            );
            std::thread::sleep(Duration::from_millis(1));
        };
        let ended = Ended {
            stdout: read(&self.stdout),
            stderr: read(&self.stderr),
        };
        ensure!(
            status.success(),
            "nanoprobe ended with {status}: {}",
            last_lines(&ended.stderr)
        );
        Ok(ended)
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

impl Ended {
    /// Milliseconds of `nanoprobe: VERB A ms, stopped B ms`: `(A, B)`.
    pub fn times(&self, verb: &str) -> Result<(f64, f64)> {
        let start = format!("nanoprobe: {verb} ");
        let line = self.stderr.lines().find(|line| line.starts_with(&start));
        let line = line.with_context(|| format!("nanoprobe did not say how long {verb} took"))?;
        let numbers: Vec<f64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        match numbers[..] {
            [all, stopped, ..] => Ok((all, stopped)),
            _ => bail!("cannot read {line:?}"),
        }
    }

    /// The sum of all reported drops and misses.
    pub fn lost(&self) -> u64 {
        let lines = self
            .stderr
            .lines()
            .filter(|line| line.contains("drop") || line.contains("missed"));
        lines
            .filter_map(|line| line.split_whitespace().find_map(|word| word.parse::<u64>().ok()))
            .sum()
    }

    /// The one value of an aggregation without keys.
    pub fn value(&self) -> Result<u64> {
        let values: Vec<u64> = self
            .stdout
            .lines()
            .filter_map(|line| line.trim().parse().ok())
            .collect();
        match values[..] {
            [value] => Ok(value),
            _ => bail!("one value expected, {} found", values.len()),
        }
    }
}

/// The text of a file that may still grow.
fn read(path: &PathBuf) -> String {
    let mut bytes = Vec::new();
    // The output of a drained ring can be very long, so only its start is searched.
    if let Ok(file) = File::open(path) {
        let _ = file.take(1 << 20).read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(3)..].join(" | ")
}
