//! postgres under `pgbench -C`, which connects anew for each transaction: the server forks a process for each.
//!
//! The kernel's uprobe counts one function: with one on each of postgres's nine thousand functions, bpftrace did not
//! attach within forty seconds, and took minutes to end.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::interrupt;
use crate::kernel::Everywhere;
use crate::looping::on_all_processors;
use crate::programs::file_offset;
use crate::report::Row;
use crate::tracer::Tracer;

/// 95 % of the transactions of an untraced server.
const GOAL: f64 = 1.053;
const SECONDS: &str = "4";
const LIMIT: Duration = Duration::from_secs(30);
const NAME: &str = "pgbench -C, time of a transaction, of untraced";

/// The versions that are looked for where distributions put them.
const VERSIONS: std::ops::RangeInclusive<u32> = 12..=20;

pub fn measure(rounds: usize, say: &dyn Fn(&str), rows: &mut Vec<Row>) -> Result<()> {
    let folders = VERSIONS
        .rev()
        .map(|version| PathBuf::from(format!("/usr/lib/postgresql/{version}/bin")));
    let Some(programs) = { folders }.find(|folder| folder.join("initdb").is_file() && folder.join("pgbench").is_file())
    else {
        rows.push(Row::not_measurable(NAME, "postgres and pgbench are not installed"));
        return Ok(());
    };
    say("making a database");
    let server = Server::start(&programs)?;
    let file = programs.join("postgres");
    let offset = file_offset(&file, "palloc");
    let (mut all, mut one, mut kernels): (Vec<f64>, Vec<f64>, Result<Vec<f64>>) = (vec![], vec![], Ok(vec![]));
    let mut counted = 0;
    for round in 1..=rounds {
        interrupt::check()?;
        say(&format!("round {round} of {rounds}: pgbench -C"));
        let before = server.transaction()?;
        let (with, hits) = server.traced("pid$target:postgres::entry { @ = count(); }")?;
        let between = server.transaction()?;
        all.push(with / ((before + between) / 2.0));
        counted = hits;
        let (with, _) = server.traced("pid$target:postgres:palloc:entry { @ = count(); }")?;
        let after = server.transaction()?;
        one.push(with / ((between + after) / 2.0));
        if let (Ok(samples), Ok(offset)) = (&mut kernels, &offset) {
            let with = Everywhere::attach(&file, *offset).and_then(|events| {
                let with = server.transaction()?;
                ensure!(events.hits()? > 0, "the kernel's probe did not fire");
                Ok(with)
            });
            match with {
                Ok(with) => samples.push(with / after),
                Err(error) => kernels = Err(error),
            }
        }
    }
    let note = format!("{counted} calls in {SECONDS} s");
    let name = |functions: &str, watcher: &str| format!("{NAME}: {functions}: {watcher}");
    rows.push(
        Row::of(&name("all functions", "nanoprobe"), "x", Ok(all))
            .reach(GOAL)
            .note(note),
    );
    rows.push(Row::of(&name("palloc", "nanoprobe"), "x", Ok(one)).reach(GOAL));
    rows.push(Row::of(&name("palloc", "kernel uprobe"), "x", offset.and(kernels)));
    Ok(())
}

struct Server {
    postmaster: Child,
    folder: tempfile::TempDir,
    programs: PathBuf,
}

/// A command as an ordinary user if we are root: postgres refuses root.
fn ordinary(program: &Path) -> Command {
    // SAFETY: a plain query.
    let is_root = unsafe { libc::geteuid() } == 0;
    let mut command = Command::new(if is_root { Path::new("setpriv") } else { program });
    if is_root {
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "--"]);
        command.arg(program);
    }
    on_all_processors(&mut command);
    command
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}

impl Server {
    fn start(programs: &Path) -> Result<Server> {
        let folder = tempfile::tempdir()?;
        std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777))?;
        let data = folder.path().join("data");
        let mut make = ordinary(&programs.join("initdb"));
        let made = make
            .args(["-N", "-A", "trust", "-U", "bench", "-D"])
            .arg(&data)
            .status();
        ensure!(made.context("running initdb")?.success(), "initdb failed");
        let mut command = ordinary(&programs.join("postgres"));
        command
            .args(["-h", "", "-F", "-D"])
            .arg(&data)
            .arg("-k")
            .arg(folder.path());
        let server = Server {
            postmaster: command.spawn().context("starting postgres")?,
            folder,
            programs: programs.to_owned(),
        };
        let start = Instant::now();
        while !server.pgbench(&["-i", "-q"])?.0 {
            ensure!(start.elapsed() < LIMIT, "postgres takes no connections");
            std::thread::sleep(Duration::from_millis(200));
        }
        Ok(server)
    }

    /// Whether it succeeded, and what it said.
    fn pgbench(&self, words: &[&str]) -> Result<(bool, String)> {
        let mut command = ordinary(&self.programs.join("pgbench"));
        command
            .arg("-h")
            .arg(self.folder.path())
            .args(["-U", "bench"])
            .args(words)
            .arg("postgres");
        let output = command.stdout(Stdio::piped()).output().context("running pgbench")?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        Ok((output.status.success(), said))
    }

    /// The same while a program counts calls in all processes, and its count.
    fn traced(&self, clause: &str) -> Result<(f64, u64)> {
        let tracer = Tracer::attach(self.postmaster.id(), clause, &["-x", "follow=fork"])?;
        let with = self.transaction()?;
        let ended = tracer.detach()?;
        ensure!(ended.lost() == 0, "{}", ended.stderr);
        Ok((with, ended.value()?))
    }

    /// Milliseconds of a transaction with its connection.
    fn transaction(&self) -> Result<f64> {
        let (is_good, said) = self.pgbench(&["-C", "-n", "-S", "-c", "2", "-T", SECONDS])?;
        ensure!(is_good, "pgbench failed: {said}");
        let latency = said.lines().find_map(|line| line.strip_prefix("latency average = "));
        let latency = latency.and_then(|rest| rest.split(' ').next()?.parse().ok());
        latency.with_context(|| format!("cannot read {said:?}"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // SAFETY: the child has not been waited for, so its id is its own.
        unsafe { libc::kill(self.postmaster.id().cast_signed(), libc::SIGINT) };
        let _ = self.postmaster.wait();
    }
}
