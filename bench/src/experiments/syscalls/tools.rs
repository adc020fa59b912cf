//! Other tools that see system calls and sleeps: bpftrace, perf and strace, attached to the measured program.

use std::process::Command;
use std::time::Duration;

use crate::experiments::compare::{Attach, Method, Subject};
use crate::peers::outside::{Ending, Outside, counted};
use crate::peers::{absent, find};
use crate::report::Row;

/// How long a tool works after it has said that it attaches.
const SETTLE: Duration = Duration::from_millis(1500);

/// A method of a tool, or the row that says that the tool is missing.
type Found = Result<Method, Row>;

/// Adds the methods of the tools that are installed; yields the rows of the others.
pub fn add(methods: &mut Vec<Method>, found: Vec<Found>) -> Vec<Row> {
    let mut missing = Vec::new();
    for tool in found {
        match tool {
            Ok(method) => methods.push(method),
            Err(row) => missing.push(row),
        }
    }
    missing
}

/// Those that count one call.
pub fn counting_one() -> Vec<Found> {
    let program = "tracepoint:syscalls:sys_enter_getppid /pid == PID/ { @ = count(); }";
    vec![
        bpftrace("getppid: bpftrace", program),
        perf(
            "getppid: perf stat",
            &["stat", "-e", "syscalls:sys_enter_getppid"],
            is_counted_in_front,
        ),
    ]
}

/// Those that count all calls by name.
pub fn counting_all() -> Vec<Found> {
    let program = "tracepoint:raw_syscalls:sys_enter /pid == PID/ { @before[args->id] = count(); } \
                   tracepoint:raw_syscalls:sys_exit /pid == PID/ { @after[args->id] = count(); }";
    vec![
        bpftrace("by name: bpftrace", program),
        perf("by name: perf trace -s", &["trace", "-s"], |text| {
            counted(text, "getppid")
        }),
        tool("by name: strace -c", "strace", "apt-get install strace", |pid| {
            let mut command = Command::new("strace");
            command.args(["-f", "-c", "-p", pid]);
            // It prints "attached" for each thread.
            (command, "attached", Duration::from_millis(300), |text| {
                text.lines().any(|line| line.trim_end().ends_with("getppid"))
            })
        }),
    ]
}

/// Those that sum the time for which threads were off their processors, by stack.
pub fn sleeping() -> Vec<Found> {
    let program = "tracepoint:sched:sched_switch { if (pid == PID) { @start[tid] = nsecs; @stack[tid] = ustack; } \
                   if (@start[args->next_pid]) { @[@stack[args->next_pid]] = sum(nsecs - @start[args->next_pid]); \
                   delete(@start[args->next_pid]); } }";
    vec![bpftrace("offcpu on a server: bpftrace", program)]
}

/// A command, what it prints when it attaches, how long to wait then, and whether its output says that it fired.
type Started = (Command, &'static str, Duration, fn(&str) -> bool);

fn tool(name: &str, file: &str, install: &str, command: impl Fn(&str) -> Started + 'static) -> Found {
    if find(file).is_none() {
        return Err(absent(name, install));
    }
    let attach: Attach = Box::new(move |subject: &Subject| {
        let (command, ready, settle, check) = command(&subject.pid().to_string());
        Ok(Box::new(Outside::start(
            command,
            ready,
            settle,
            Ending::Interrupt,
            check,
        )?))
    });
    Ok(Method {
        name: name.to_owned(),
        attach,
        fresh: false,
    })
}

fn bpftrace(name: &str, program: &'static str) -> Found {
    tool(name, "bpftrace", "apt-get install bpftrace", move |pid| {
        let mut command = Command::new("bpftrace");
        command.args(["-e", &program.replace("PID", pid)]);
        // It prints "Attaching" before it attaches.
        (command, "Attaching", SETTLE, |text| text.contains("\n@"))
    })
}

fn perf(name: &str, arguments: &'static [&'static str], check: fn(&str) -> bool) -> Found {
    tool(name, "perf", "apt-get install linux-perf", move |pid| {
        let mut command = Command::new("perf");
        command.args(arguments).args(["-p", pid]);
        (command, "", SETTLE, check)
    })
}

/// `perf stat` prints the number before the event's name.
fn is_counted_in_front(text: &str) -> bool {
    let lines = text.lines().filter(|line| line.contains("sys_enter_getppid"));
    let mut numbers = lines.filter_map(|line| line.split_whitespace().next()?.replace(',', "").parse::<u64>().ok());
    numbers.any(|number| number > 0)
}
