//! A differential fuzzer of relocation. Random sequences of instructions are run natively, and
//! patched by each tactic with points that count and call. Then the whole state is compared:
//! registers, flags, x87 and vectors, memory, the stack with its red zone, the end of the run (for
//! a fault, everything that a signal handler sees), and how often each point fired.
//!
//! ```text
//!   main          workers (processes), each with every n-th sequence; a worker that dies is started again behind it
//!   generate      sequences: all instructions, real code with bits changed, branches
//!   case          one sequence from some states, in all ways, at all entries
//!   tactics       the ways: a row each
//!   executor      one run
//!   agent         the agent's own image, whose signal handlers are what a patched run traps into
//! ```
//!
//! `cargo test -p nanoprobe-equivalence` runs up to two million cases. For more:
//!
//! ```text
//!   cargo run --release -p nanoprobe-equivalence -- --cases 100000000
//! ```
//!
//! A failure prints its seed and the number of its sequence; `--seed S --only N` runs that sequence again, and `--seed
//! S --from N` the sequences around it.

mod access;
mod agent;
mod case;
mod confine;
mod difference;
mod executor;
mod generate;
mod last_words;
mod memory;
mod minimise;
mod random;
mod report;
mod sequence;
mod state;
mod stubs;
mod tactics;

use std::io::Write;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use case::Bench;
use clap::Parser;
use executor::End;
use generate::{Generator, KINDS, Opcodes, RealCode};
use last_words::end_of;
use random::Random;
use report::{Shared, Totals};
use sequence::{Sequence, Terminator};
use tactics::ROWS;

/// Random instruction sequences, natively and patched, compared.
#[derive(Parser)]
struct Arguments {
    /// The number of cases. A case is one run of a sequence from one state, patched in one way.
    #[arg(long, env = "NANOPROBE_CASES", default_value_t = 2_000_000)]
    cases: u64,
    /// The seed of the random numbers.
    #[arg(long, env = "NANOPROBE_SEED", default_value_t = 1)]
    seed: u64,
    /// The number of processes.
    #[arg(long, default_value_t = 2)]
    jobs: u64,
    /// Ends after this many seconds, however many cases were run.
    #[arg(long)]
    seconds: Option<u64>,
    /// The first sequence that is checked.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Check only this sequence.
    #[arg(long)]
    only: Option<u64>,
    /// Print the refusals.
    #[arg(long)]
    refusals: bool,
}

/// How often an executor may be killed from outside.
const KILLED_MAX: u64 = 3;
/// Failures after which a worker stops.
const FAILURES_MAX: u64 = 5;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if !has_fsgsbase() {
        println!("left out: rdfsbase is not enabled");
        return ExitCode::SUCCESS;
    }
    let jobs = if arguments.only.is_some() {
        1
    } else {
        arguments.jobs.max(1)
    };
    let shared: Vec<&'static Shared> = (0..jobs).map(|_| share()).collect();
    let mut died = 0;
    let mut wild = 0;
    let mut killed = 0;
    let mut workers: Vec<(libc::pid_t, usize)> = (0..jobs as usize)
        .map(|worker| {
            (
                start(&arguments, arguments.from + worker as u64, jobs, shared[worker]),
                worker,
            )
        })
        .collect();
    while !workers.is_empty() {
        let mut status = 0;
        // SAFETY: both are ours, and zeros are a siginfo. First read its status, then reap it.
        let (pid, information) = unsafe {
            let mut information: libc::siginfo_t = std::mem::zeroed();
            libc::waitid(libc::P_ALL, 0, &mut information, libc::WEXITED | libc::WNOWAIT);
            (libc::waitpid(information.si_pid(), &mut status, 0), information)
        };
        let Some(at) = workers.iter().position(|(worker, _)| *worker == pid) else {
            continue;
        };
        let (_, worker) = workers.swap_remove(at);
        if status == 0 {
            continue;
        }
        let (index, patched) = (
            shared[worker].index.load(Relaxed),
            shared[worker].patched.swap(0, Relaxed),
        );
        // An executor cannot send itself this signal. The sender is the kernel's out-of-memory killer, or another
        // process.
        if libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGKILL && killed < KILLED_MAX {
            killed += 1;
            println!(
                "seed {}, sequence {index}: the executor was killed from outside; once more: {}\n{}",
                arguments.seed,
                end_of(&information, status),
                shared[worker].last_words
            );
            workers.push((start(&arguments, index, jobs, shared[worker]), worker));
            continue;
        }
        if patched == 1 {
            died += 1;
            println!(
                "seed {}, sequence {index}: the executor died while patched: {}\n{}",
                arguments.seed,
                end_of(&information, status),
                shared[worker].last_words
            );
        } else {
            wild += 1;
            println!(
                "seed {}, sequence {index}: the executor died natively: {}\n{}",
                arguments.seed,
                end_of(&information, status),
                shared[worker].last_words
            );
        }
        if arguments.only.is_none() && died < FAILURES_MAX && wild < 100 {
            let next = index + jobs;
            workers.push((start(&arguments, next, jobs, shared[worker]), worker));
        }
    }
    summary(&shared, died, wild)
}

fn summary(shared: &[&Shared], died: u64, wild: u64) -> ExitCode {
    let sum = |of: &dyn Fn(&Shared) -> &AtomicU64| shared.iter().map(|one| of(one).load(Relaxed)).sum::<u64>();
    for (index, row) in ROWS.iter().enumerate() {
        println!("cases {}: {}", row.name, sum(&|one| &one.cases[index]));
    }
    for (index, kind) in KINDS.iter().enumerate() {
        println!("sequences of {kind}: {}", sum(&|one| &one.sequences[index]));
    }
    println!("cases that ended by a fault: {}", sum(&|one| &one.faults));
    println!("traps redirected: {}", sum(&|one| &one.traps));
    println!("sites emulated: {}", sum(&|one| &one.emulated));
    println!("sites stepped: {}", sum(&|one| &one.stepped));
    println!("points that call functions: {}", sum(&|one| &one.functions));
    println!("points behind: {}", sum(&|one| &one.behind));
    println!("native runs left out, endless or odd: {}", sum(&|one| &one.endless));
    println!("natively unstable: {}", sum(&|one| &one.unstable));
    println!("points refused: {}", sum(&|one| &one.refused));
    println!("executors that died natively: {wild}");
    let failures = died + sum(&|one| &one.failures);
    let cases: u64 = (0..ROWS.len()).map(|index| sum(&|one| &one.cases[index])).sum();
    println!("cases: {cases}\nfailures: {failures}");
    if failures == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn has_fsgsbase() -> bool {
    const HWCAP2_FSGSBASE: u64 = 2;
    // SAFETY: no preconditions.
    unsafe { libc::getauxval(libc::AT_HWCAP2) & HWCAP2_FSGSBASE != 0 }
}

fn share() -> &'static Shared {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping, larger than the structure, of zeros: atomics all.
    unsafe {
        let found = libc::mmap(std::ptr::null_mut(), 4096, protection, flags, -1, 0);
        assert_ne!(found, libc::MAP_FAILED, "mmap: {}", std::io::Error::last_os_error());
        &*found.cast::<Shared>()
    }
}

/// Forks a worker, which begins with the sequence `from`.
fn start(arguments: &Arguments, from: u64, jobs: u64, shared: &'static Shared) -> libc::pid_t {
    // SAFETY: this process has one thread.
    let pid = unsafe { libc::fork() };
    if pid != 0 {
        return pid;
    }
    // SAFETY: no preconditions.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    work(arguments, from, jobs, shared);
    std::process::exit(0);
}

fn work(arguments: &Arguments, from: u64, jobs: u64, shared: &'static Shared) {
    let started = std::time::Instant::now();
    last_words::speak_into(&shared.last_words);
    let mut bench = Bench::new();
    let mut generator = Generator {
        opcodes: Opcodes::new(),
        real: RealCode::read(),
    };
    if let Err(error) = confine::confine() {
        println!("left out: system calls cannot be filtered: {error}");
        return;
    }
    leave_out_unknown(&mut bench, &mut generator);
    let mut totals = Totals::new(shared);
    let share = arguments.cases.div_ceil(jobs);
    let mut index = arguments.only.unwrap_or(from);
    let is_late = || {
        arguments
            .seconds
            .is_some_and(|seconds| started.elapsed().as_secs() >= seconds)
    };
    while !is_late() && shared.cases.iter().map(|cases| cases.load(Relaxed)).sum::<u64>() < share {
        shared.index.store(index, Relaxed);
        let mut random = Random::new(arguments.seed, index);
        let (sequence, kind) = generator.sequence(&mut random);
        let seed = random.next();
        if let Err(failure) = bench.check(&sequence, seed, &mut totals) {
            let failure = minimise::minimise(&mut bench, sequence, seed, failure);
            let text = failure.describe().unwrap_or_default();
            // The text is written at once, because the other workers write, too.
            let text = format!("seed {}, sequence {index} ({}):\n{text}\n", arguments.seed, KINDS[kind]);
            let _ = std::io::stdout().lock().write_all(text.as_bytes());
            if shared.failures.fetch_add(1, Relaxed) + 1 >= FAILURES_MAX {
                break;
            }
        }
        totals.publish(kind);
        if arguments.only.is_some() {
            break;
        }
        index += jobs;
    }
    if arguments.refusals {
        for (reason, count) in &totals.refusals {
            println!("refused {count} times: {reason}");
        }
    }
}

/// Codes unknown to this processor end every sequence, so nearly all of them are left out.
fn leave_out_unknown(bench: &mut Bench, generator: &mut Generator) {
    let mut random = Random::new(0, 0);
    let codes = generator.opcodes.codes().to_vec();
    let mut known = std::collections::HashSet::new();
    for (position, code) in codes.into_iter().enumerate() {
        let runs = (0..6).any(|_| {
            let Some(generated) = generator.opcodes.of(code, &mut random) else {
                return false;
            };
            let sequence = Sequence {
                items: vec![generated.item],
                terminator: Terminator::Jump,
                padding: Vec::new(),
                branchy: false,
                loose_counts: false,
                words_popped: 0,
            };
            !matches!(bench.try_natively(&sequence, &mut random), End::Fault(fault) if fault.signal == libc::SIGILL)
        });
        if runs || position % 50 == 0 {
            known.insert(code);
        }
    }
    generator.opcodes.retain(|code| known.contains(code));
}
