//! The measured program, its batches, and the configurations compared on it.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::kernel::{self, Kind};
use crate::report::{KERNEL_REFERENCE, Row};
use crate::statistics::{self, Measured, median};
use crate::tracer::{self, Tracer};
use crate::{interrupt, programs};

/// The number of batches whose median is a sample.
const BATCHES: usize = 5;
/// The number of samples that are taken without the probe before and after, and with it.
const SAMPLES: usize = 3;

/// Keeps this process, and the tracers that it starts, off the last processor, where the measured program runs.
pub fn leave_the_last_processor() {
    // SAFETY: the set is a plain bit set of ours; the calls read and write only it.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        let processors = libc::sysconf(libc::_SC_NPROCESSORS_ONLN).max(1) as usize;
        for processor in 0..processors.saturating_sub(1).max(1) {
            libc::CPU_SET(processor, &mut set);
        }
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set);
    }
}

/// Lets a command, and all that it starts, use all processors again.
pub fn on_all_processors(command: &mut Command) -> &mut Command {
    use std::os::unix::process::CommandExt as _;
    let everywhere = || {
        // SAFETY: as above. In the new process only this system call is made.
        unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            for processor in 0..libc::CPU_SETSIZE as usize {
                libc::CPU_SET(processor, &mut set);
            }
            libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set);
        }
        Ok(())
    };
    // SAFETY: the closure allocates nothing, and takes no lock.
    unsafe { command.pre_exec(everywhere) }
}

/// A measured program that runs: `loop batches THREADS FUNCTION`.
pub struct Looping {
    child: Child,
    _stdin: ChildStdin,
    batches: Receiver<f64>,
    threads: usize,
}

impl Looping {
    pub fn start(threads: usize, function: usize) -> Result<Looping> {
        Looping::start_program("loop", threads, function)
    }

    /// Starts the program NAME, which takes the same arguments as `loop` and prints its batches in the same way.
    pub fn start_program(name: &str, threads: usize, function: usize) -> Result<Looping> {
        let mut command = Command::new(programs::compile(name)?);
        command.args(["batches", &threads.to_string(), &function.to_string()]);
        Looping::spawn(command, threads)
    }

    /// A program that is started by this command and prints batches of this many threads.
    pub fn spawn(mut command: Command, threads: usize) -> Result<Looping> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("starting the measured program")?;
        let stdin = child.stdin.take().context("its input")?;
        let stdout = child.stdout.take().context("its output")?;
        let (sender, batches) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let Some(cost) = line.split(' ').nth(2).and_then(|word| word.parse().ok()) else {
                    continue;
                };
                if sender.send(cost).is_err() {
                    break;
                }
            }
        });
        Ok(Looping {
            child,
            _stdin: stdin,
            batches,
            threads,
        })
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether the program still runs.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// The median of the batches that begin from now on.
    pub fn median_from_now(&self) -> Result<f64> {
        let samples = self.samples_from_now()?;
        median(&samples).context("no batch")
    }

    /// Medians of the batches that begin from now on: earlier ones are discarded.
    pub fn samples_from_now(&self) -> Result<Vec<f64>> {
        while self.batches.try_recv().is_ok() {}
        let mut taken = Vec::new();
        // The current batch covers both times; one more warms the caches.
        for index in 0..(SAMPLES * BATCHES + 2) * self.threads {
            interrupt::check()?;
            let cost = self
                .batches
                .recv_timeout(Duration::from_secs(30))
                .ok()
                .context("the measured program ended, or hangs")?;
            if index >= 2 * self.threads {
                taken.push(cost);
            }
        }
        let medians = taken.chunks(BATCHES * self.threads).map(median);
        medians.collect::<Option<Vec<f64>>>().context("no batch")
    }
}

impl Drop for Looping {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// One configuration.
struct Configuration {
    name: &'static str,
    reach: Option<f64>,
    /// The measured function: 0 begins with push, 1 with a 5-byte nop, 2 with `sub rsp, 8` and a call.
    function: usize,
    how: How,
}

enum How {
    Nanoprobe {
        program: &'static str,
        options: &'static [&'static str],
    },
    Kernel(Kind),
}

const fn nanoprobe(name: &'static str, reach: Option<f64>, program: &'static str) -> Configuration {
    Configuration {
        name,
        reach,
        function: 0,
        how: How::Nanoprobe { program, options: &[] },
    }
}

/// A count at the entry of a function that calls at once.
const fn at_call(name: &'static str, reach: Option<f64>, options: &'static [&'static str]) -> Configuration {
    let program = "pid$target:a.out:bench_call:entry { @ = count(); }";
    Configuration {
        name,
        reach,
        function: 2,
        how: How::Nanoprobe { program, options },
    }
}

const CONFIGURATIONS: &[Configuration] = &[
    nanoprobe(
        "@ = count()",
        Some(3.0),
        "pid$target:a.out:bench_function:entry { @ = count(); }",
    ),
    nanoprobe(
        "entry and return, both counted",
        Some(7.0),
        "pid$target:a.out:bench_function:entry { @e = count(); } pid$target:a.out:bench_function:return { @r = count(); }",
    ),
    Configuration {
        name: "the same, the return address replaced",
        reach: None,
        function: 0,
        how: How::Nanoprobe {
            program: "pid$target:a.out:bench_function:entry { @e = count(); } pid$target:a.out:bench_function:return { @r = count(); }",
            options: &["-x", "return=address"],
        },
    },
    nanoprobe(
        "@[copyinstr(arg0)] = count()",
        Some(40.0),
        "pid$target:a.out:bench_function:entry { @[copyinstr(arg0)] = count(); }",
    ),
    Configuration {
        name: "trace(timestamp) into the ring",
        reach: Some(20.0),
        function: 0,
        how: How::Nanoprobe {
            program: "pid$target:a.out:bench_function:entry { trace(timestamp); }",
            options: &["-o", "/dev/null"],
        },
    },
    Configuration {
        name: "the same into a flight recorder: every record is written",
        reach: None,
        function: 0,
        how: How::Nanoprobe {
            program: "pid$target:a.out:bench_function:entry { trace(timestamp); }",
            options: &["-x", "bufpolicy=ring", "-o", "/dev/null"],
        },
    },
    // The records are discarded now and then, so that there is always room for more.
    Configuration {
        name: "speculate() and trace(timestamp), likewise",
        reach: None,
        function: 0,
        how: How::Nanoprobe {
            program: "BEGIN { spec = speculation(); }
                      pid$target:a.out:bench_function:entry { speculate(spec); trace(timestamp); }
                      tick-100ms { discard(spec); spec = speculation(); }",
            options: &[
                "-x",
                "bufpolicy=ring",
                "-x",
                "nspec=4",
                "-x",
                "specsize=1g",
                "-o",
                "/dev/null",
            ],
        },
    },
    nanoprobe(
        "@[probefunc] = count()",
        None,
        "pid$target:a.out:bench_function:entry { @[probefunc] = count(); }",
    ),
    nanoprobe(
        "@ = quantize(arg1)",
        None,
        "pid$target:a.out:bench_function:entry { @ = quantize(arg1); }",
    ),
    nanoprobe(
        "@[ustack()] = count()",
        None,
        "pid$target:a.out:bench_function:entry { @[ustack()] = count(); }",
    ),
    nanoprobe(
        "latency: self->t = timestamp ... quantize",
        None,
        "pid$target:a.out:bench_function:entry { self->t = timestamp; }
         pid$target:a.out:bench_function:return /self->t/ { @ = quantize(timestamp - self->t); self->t = 0; }",
    ),
    at_call("@ = count(), sub rsp,8; call", Some(3.0), &[]),
    at_call("the same by pun", None, &["-x", "tactic=pun"]),
    at_call("the same by a run with the call", None, &["-x", "tactic=run"]),
    Configuration {
        name: "@ = count() by trap",
        reach: None,
        function: 0,
        how: How::Nanoprobe {
            program: "pid$target:a.out:bench_function:entry { @ = count(); }",
            options: &["-x", "tactic=trap"],
        },
    },
    Configuration {
        name: KERNEL_REFERENCE,
        reach: None,
        function: 0,
        how: How::Kernel(Kind::Counted),
    },
    Configuration {
        name: "kernel uretprobe, counted (perf)",
        reach: None,
        function: 0,
        how: How::Kernel(Kind::ReturnCounted),
    },
    Configuration {
        name: "kernel uprobe, recorded (tracefs)",
        reach: None,
        function: 0,
        how: How::Kernel(Kind::Recorded),
    },
    Configuration {
        name: "kernel uretprobe, recorded (tracefs)",
        reach: None,
        function: 0,
        how: How::Kernel(Kind::ReturnRecorded),
    },
    Configuration {
        name: "kernel uprobe on a 5-byte nop, counted",
        reach: None,
        function: 1,
        how: How::Kernel(Kind::Counted),
    },
];

/// All configurations in turn, `rounds` times; the rows in their order.
pub fn measure_all(rounds: usize, say: &dyn Fn(&str)) -> Result<Vec<Row>> {
    let program = programs::compile("loop")?;
    let offsets = [
        programs::file_offset(&program, "bench_function")?,
        programs::file_offset(&program, "bench_nop")?,
        programs::file_offset(&program, "bench_call")?,
    ];
    let mut loops = [Looping::start(1, 0)?, Looping::start(1, 1)?, Looping::start(1, 2)?];
    let mut results: Vec<Result<Vec<f64>>> = CONFIGURATIONS.iter().map(|_| Ok(Vec::new())).collect();
    let mut lost = vec![0; CONFIGURATIONS.len()];
    for round in 0..statistics::most(rounds) {
        for (index, configuration) in CONFIGURATIONS.iter().enumerate() {
            // A failed configuration is not tried again, and a good one is not repeated.
            let Ok(overheads) = &mut results[index] else { continue };
            if !statistics::another(overheads, round, rounds) {
                continue;
            }
            interrupt::check()?;
            // A configuration that ends the measured program must not spoil the rows of the others.
            for (function, running) in loops.iter_mut().enumerate() {
                if !running.is_running() {
                    *running = Looping::start(1, function)?;
                }
            }
            // The functions' loops share the processor, so the others are stopped meanwhile.
            let running = &loops[configuration.function];
            let others = loops
                .iter()
                .enumerate()
                .filter(|(function, _)| *function != configuration.function);
            let _stopped: Vec<Stopped> = others.map(|(_, other)| Stopped::new(other.pid())).collect();
            say(&format!("round {}: {}", round + 1, configuration.name));
            match once(configuration, running, &program, offsets[configuration.function]) {
                Ok((samples, drops)) => {
                    overheads.extend(samples);
                    lost[index] += drops;
                }
                Err(error) => results[index] = Err(error),
            }
        }
    }
    let rows = CONFIGURATIONS
        .iter()
        .zip(results)
        .zip(lost)
        .map(|((configuration, result), lost)| {
            let measured = result.and_then(|overheads| Measured::of(&overheads).context("nothing was measured"));
            let mut row = match measured {
                Ok(measured) => Row::new(configuration.name, "ns/call", measured),
                Err(error) => Row::not_measurable(configuration.name, &format!("{error:#}")),
            };
            row.reach = configuration.reach;
            if lost > 0 {
                row.note = format!("{lost} dropped or missed, as reported");
            }
            row
        });
    Ok(rows.collect())
}

/// One paired measurement: the samples of the overhead in ns a call, and the losses that were reported.
fn once(
    configuration: &Configuration,
    running: &Looping,
    program: &std::path::Path,
    offset: u64,
) -> Result<(Vec<f64>, u64)> {
    let before = running.samples_from_now()?;
    let (with, lost) = match &configuration.how {
        How::Nanoprobe { program, options } => {
            let tracer = Tracer::attach(running.pid(), program, options)?;
            let with = running.samples_from_now()?;
            (with, tracer.detach()?.lost())
        }
        How::Kernel(kind) => {
            let probe = kernel::attach(*kind, running.pid(), program, offset)?;
            let with = running.samples_from_now()?;
            ensure!(probe.hits()? > 0, "the kernel's probe did not fire");
            (with, 0)
        }
    };
    let after = running.samples_from_now()?;
    Ok((statistics::paired_samples(&before, &with, &after), lost))
}

/// A process held by SIGSTOP for as long as this lives.
struct Stopped(u32);

impl Stopped {
    fn new(pid: u32) -> Stopped {
        // SAFETY: a signal to a child of ours that has not been waited for.
        unsafe { libc::kill(pid as i32, libc::SIGSTOP) };
        Stopped(pid)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        // SAFETY: as above.
        unsafe { libc::kill(self.0 as i32, libc::SIGCONT) };
    }
}

/// Measures the cost of a count on one thread and on as many as there are processors, and checks that no count is lost.
pub fn measure_threads(rounds: usize) -> Result<Vec<Row>> {
    let processors = crate::processors();
    let mut rows = Vec::new();
    let mut threads = 1;
    while threads <= processors.max(2) {
        let name = format!("@ = count() on {threads} threads, each");
        let running = Looping::start(threads, 0)?;
        let configuration = Configuration {
            name: "threads",
            ..nanoprobe("", None, COUNT)
        };
        let overheads: Result<Vec<Vec<f64>>> = (0..rounds)
            .map(|_| Ok(once(&configuration, &running, std::path::Path::new(""), 0)?.0))
            .collect();
        let overheads = overheads.map(|overheads| overheads.concat());
        let overheads = overheads.and_then(|overheads| Measured::of(&overheads).context("nothing was measured"));
        let note = if threads > processors {
            "more threads than processors"
        } else {
            ""
        };
        rows.push(match overheads {
            Ok(measured) => Row::new(&name, "ns/call", measured).note(note),
            Err(error) => Row::not_measurable(&name, &format!("{error:#}")),
        });
        threads *= 2;
    }
    rows.push(
        exact_counts(processors.max(2)).unwrap_or_else(|error| Row::not_measurable(EXACT, &format!("{error:#}"))),
    );
    Ok(rows)
}

const COUNT: &str = "pid$target:a.out:bench_function:entry { @ = count(); }";
const EXACT: &str = "counts lost on all processors";

/// Threads on all processors, started under the tracer, each with a known number of calls.
fn exact_counts(threads: usize) -> Result<Row> {
    let calls: u64 = 5_000_000;
    let program = programs::compile("loop")?;
    let results = tempfile::NamedTempFile::new()?;
    let mut command = Command::new(tracer::path()?);
    command.args(["-q", "-n", COUNT, "-o"]).arg(results.path());
    command.args(["-c", &format!("{} exact {threads} {calls}", program.display())]);
    let output = command.stdin(Stdio::null()).output().context("running nanoprobe")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let ended = tracer::Ended {
        stdout: std::fs::read_to_string(results.path())?,
        stderr: String::new(),
    };
    let lost = (threads as u64 * calls) as f64 - ended.value()? as f64;
    let measured = Measured {
        median: lost,
        ..Measured::default()
    };
    Ok(Row::new(EXACT, "hits", measured)
        .reach(0.0)
        .note(format!("of {}", threads as u64 * calls)))
}
