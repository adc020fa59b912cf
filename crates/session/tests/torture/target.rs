//! The program: starting it, giving it commands, attaching to it, examining it.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use nanoprobe_tests::in_time::{EndsInTime, InTime, TimeLimit};

use nanoprobe_export::AggregateTable;
use nanoprobe_lang::options::{Options, StopPolicy};
use nanoprobe_lang::program::AggregationId;
use nanoprobe_lang::{MacroValues, Source, compile};
use nanoprobe_patch::TargetAddress;
use nanoprobe_session::{Acquired, Attached, Compiled, Patch, Prepared, Tracing};
use nanoprobe_target::Process;

use crate::{Functions, Way};

/// How long the spinners are waited for between two changes.
pub const TURN: Duration = Duration::from_micros(400);

fn program(functions: Functions) -> &'static Path {
    static PROGRAMS: [OnceLock<(tempfile::TempDir, PathBuf)>; 2] = [const { OnceLock::new() }; 2];
    let options: &[&str] = match functions {
        Functions::Common => &[],
        // Below such a program there is nothing that a displacement could lead to.
        Functions::Neighbours => &["-no-pie", "-DNEIGHBOURS"],
    };
    let (_, path) = PROGRAMS[functions as usize].get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("torture");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/torture.c");
        let mut command = Command::new("cc");
        command
            .args(["-O1", "-pthread"])
            .args(options)
            .arg("-o")
            .args([&path, &source]);
        assert!(command.status_in_time().unwrap().success());
        (folder, path)
    });
    path
}

/// The program, with its ends of the pipes.
pub struct Target {
    child: Child,
    pub input: ChildStdin,
    output: BufReader<ChildStdout>,
    process: Process,
    spinners: u32,
    /// The address where the program's spinners count.
    counts: TargetAddress,
    /// Where each parked thread is to arrive, and the thread.
    pub arrivals: Vec<(u64, i32)>,
    pub text: Vec<(TargetAddress, Vec<u8>)>,
    /// The aggregations of the session's probes.
    aggregated: AggregateTable,
}

impl Target {
    pub fn start(functions: Functions, spinners: u32, parked: bool) -> Target {
        let mut command = Command::new(program(functions));
        command
            .args([spinners.to_string(), u8::from(parked).to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        // SAFETY: no preconditions. It cannot fail in a way that matters.
        let nice = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
        // SAFETY: a system call, and nothing else. If the test was started with a nice value, the spinners get it,
        // too: the policy of [`run_whenever_ready`] would reset it for children.
        unsafe {
            command.pre_exec(move || {
                libc::setpriority(libc::PRIO_PROCESS, 0, nice);
                Ok(())
            })
        };
        let mut child = command.spawn_in_group().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let process = Process::open(i32::try_from(child.id()).unwrap()).unwrap();
        let mut target = Target {
            process,
            spinners,
            counts: TargetAddress(0),
            child,
            input,
            output: BufReader::new(output),
            arrivals: Vec::new(),
            text: Vec::new(),
            aggregated: AggregateTable::new(),
        };
        for line in target.until("ready") {
            if let Some(address) = line.strip_prefix("counts ") {
                target.counts = TargetAddress(u64::from_str_radix(address, 16).unwrap());
            }
            if let Some(rest) = line.strip_prefix("arrival ") {
                let (address, tid) = rest.split_once(' ').unwrap();
                let arrival = (u64::from_str_radix(address, 16).unwrap(), tid.parse().unwrap());
                target.arrivals.push(arrival);
            }
        }
        target.text = target.executable();
        target
    }

    fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap()
    }

    /// All private executable memory of the program.
    pub fn executable(&self) -> Vec<(TargetAddress, Vec<u8>)> {
        let map = self.process.map().unwrap();
        let mappings = map
            .mappings()
            .iter()
            .filter(|mapping| mapping.permissions.execute && mapping.path().is_some());
        mappings
            .map(|mapping| {
                let mut bytes = vec![0; (mapping.end.0 - mapping.start.0) as usize];
                self.process.memory().read(mapping.start, &mut bytes).unwrap();
                (mapping.start, bytes)
            })
            .collect()
    }

    /// How often each spinner has executed the patched functions.
    pub fn counted(&self) -> Vec<u64> {
        let at = |index: u32| TargetAddress(self.counts.0 + 8 * u64::from(index));
        let count = |index| self.process.memory().read_u64(at(index)).unwrap();
        (0..self.spinners).map(count).collect()
    }

    /// Waits until every spinner has executed the patched functions, but not for long: on a busy machine a spinner may
    /// be without a processor for milliseconds. Yields whether they have.
    pub fn executes(&self) -> bool {
        let before = self.counted();
        let begun = Instant::now();
        while begun.elapsed() < TURN {
            std::thread::sleep(TURN / 8);
            if self.called_since(&before) {
                return true;
            }
        }
        false
    }

    /// Whether every spinner has counted more than in `before`.
    pub fn called_since(&self, before: &[u64]) -> bool {
        self.counted().iter().zip(before).all(|(now, then)| now > then)
    }

    pub fn until(&mut self, last: &str) -> Vec<String> {
        let _limit = TimeLimit::new(self.pid(), "its next lines are waited for");
        let mut lines = Vec::new();
        while lines.last().is_none_or(|line| line != last) {
            let mut line = String::new();
            let read = self.output.read_line(&mut line).unwrap();
            assert!(!line.starts_with("FAILED"), "{line} after {lines:?}");
            assert!(read > 0, "ended after {lines:?}: {:?}", self.child.wait_in_time());
            lines.push(line.trim_end().to_owned());
        }
        lines
    }

    #[track_caller]
    pub fn ask(&mut self, order: &str, answer: &str) {
        writeln!(self.input, "{order}").unwrap();
        self.until(answer);
    }

    pub fn attach(&self, way: &Way, stop: StopPolicy) -> Attached {
        let &Way {
            text,
            tactic,
            form,
            functions,
        } = way;
        let macros = MacroValues {
            target: Some(i64::from(self.pid())),
            ..MacroValues::default()
        };
        let sources = [Source::new("test", text)];
        let mut options = Options::default();
        options.tracing.tactic = tactic.map(str::to_owned);
        options.tracing.trap = form.map(str::to_owned);
        options.tracing.stop = stop;
        let program = compile(&sources, &macros).unwrap();
        let compiled = Compiled::new(program, options).unwrap();
        let prepared = Prepared::new(compiled, Acquired::running(self.pid()).unwrap()).unwrap();
        let (session, _) = prepared.begin().unwrap();
        if let Some(tactic) = tactic {
            let fits = |patch: &&Patch| patch.tactic.name() == tactic && !patch.sites.is_empty();
            assert!(
                session.patches().iter().any(|patch| fits(&patch)),
                "nothing to do for {tactic}"
            );
        }
        if functions == Functions::Neighbours {
            let by_neighbour = |patch: &&Patch| patch.tactic.name() == "evict" && patch.built.host.is_some();
            let guests = session.patches().iter().filter(by_neighbour).count();
            let hosts = session
                .patches()
                .iter()
                .filter(|patch| patch.built.carries.is_some())
                .count();
            assert_eq!((guests, hosts), (6, 6));
        }
        session
    }

    /// The count of an aggregation up to now.
    pub fn hits(&mut self, tracing: &mut Tracing, number: u32) -> u64 {
        let new = tracing.take_aggregations().unwrap();
        let program = tracing.known().program();
        self.aggregated.add(program, new);
        let rows = self.aggregated.rows(program, AggregationId(number));
        rows.iter().flat_map(|row| row.words.first()).sum()
    }

    /// Takes the probes back: the text is as before, the probes have counted, the program ends well.
    pub fn end(mut self, session: Attached) {
        let (mut ended, detached) = session.end().unwrap();
        assert_eq!((detached.left_bytes, detached.foreign), (0, 0));
        assert!(self.executable() == self.text, "the text differs");
        assert!(self.hits(ended.tracing_mut(), 0) > 0, "no probe has fired");
        writeln!(self.input, "stop").unwrap();
        self.until("OK");
        assert!(self.child.wait_in_time().unwrap().success());
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        // If all went well, the program has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
