//! Tools that attach to a running program, and can be measured as nanoprobe is: bpftrace, perf, Frida.

use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::outside::{Ending, Outside, counted};
use super::{absent, find};
use crate::experiments::compare::{Attach, Attached, Method, Subject};
use crate::kernel::Defined;
use crate::report::Row;

const FRIDA: &str = include_str!("frida.py");

/// The methods of each tool, or the row that says that the tool is missing.
pub fn tools() -> Vec<Result<Vec<Method>, Row>> {
    vec![bpftrace(), perf(), frida()]
}

fn method(name: &str, attach: impl Fn(&Subject) -> Result<Outside> + 'static) -> Method {
    let attach: Attach = Box::new(move |subject| Ok(Box::new(attach(subject)?)));
    Method {
        name: name.to_owned(),
        attach,
        fresh: false,
    }
}

fn bpftrace() -> Result<Vec<Method>, Row> {
    if find("bpftrace").is_none() {
        return Err(absent("bpftrace", "apt-get install bpftrace"));
    }
    const PROGRAMS: [(&str, &str); 4] = [
        ("count: bpftrace", "uprobe:PROGRAM:FUNCTION { @ = count(); }"),
        (
            "entry and return, latency: bpftrace",
            "uprobe:PROGRAM:FUNCTION { @t[tid] = nsecs; } \
             uretprobe:PROGRAM:FUNCTION /@t[tid]/ { @h = hist(nsecs - @t[tid]); delete(@t[tid]); }",
        ),
        (
            "string key: bpftrace",
            "uprobe:PROGRAM:FUNCTION { @[str(arg0)] = count(); }",
        ),
        ("stack: bpftrace", "uprobe:PROGRAM:FUNCTION { @[ustack] = count(); }"),
    ];
    let all = PROGRAMS.iter().map(|(name, program)| {
        method(name, move |subject| {
            let program = program
                .replace("PROGRAM", &subject.program.display().to_string())
                .replace("FUNCTION", subject.function);
            let mut command = Command::new("bpftrace");
            command.args(["-p", &subject.pid().to_string(), "-e", &program]);
            // bpftrace prints "Attaching" before it attaches.
            let settle = Duration::from_millis(1500);
            Outside::start(command, "Attaching", settle, Ending::Interrupt, |text| {
                text.contains("\n@")
            })
        })
    });
    Ok(all.collect())
}

/// An event of tracefs, and perf that uses it.
struct Perf {
    // The order matters: perf ends before its event is removed.
    outside: Option<Outside>,
    _event: Defined,
    /// For `perf record`, the file of its records.
    records: Option<tempfile::TempDir>,
}

impl Attached for Perf {
    fn end(mut self: Box<Self>) -> Result<u64> {
        if let Some(outside) = self.outside.take() {
            let said = outside.finish()?;
            let fired = match &self.records {
                // The file's header alone has some kilobytes.
                Some(folder) => std::fs::metadata(folder.path().join("data"))?.len() > 1 << 16,
                None => counted_in_front(&said),
            };
            ensure!(
                fired,
                "perf did not say that it fired: {}",
                super::outside::last_line(&said)
            );
        }
        Ok(0)
    }
}

/// `perf stat` prints the number before the event's name.
fn counted_in_front(text: &str) -> bool {
    let lines = text.lines().filter(|line| line.contains(":probe"));
    let mut numbers = lines.filter_map(|line| line.split_whitespace().next()?.replace(',', "").parse::<u64>().ok());
    numbers.any(|number| number > 0)
}

fn perf() -> Result<Vec<Method>, Row> {
    if find("perf").is_none() {
        return Err(absent("perf", "apt-get install linux-perf"));
    }
    let attach = |records: bool| -> Attach {
        Box::new(move |subject| {
            let event = Defined::new(&subject.program, subject.offset)?;
            let mut command = Command::new("perf");
            let records = if records { Some(tempfile::tempdir()?) } else { None };
            match &records {
                Some(folder) => command.args(["record", "-q", "-o"]).arg(folder.path().join("data")),
                None => command.arg("stat"),
            };
            command.args(["-e", &event.name(), "-p", &subject.pid().to_string()]);
            let settle = Duration::from_millis(700);
            let outside = Outside::start(command, "", settle, Ending::Interrupt, |_| true)?;
            Ok(Box::new(Perf {
                outside: Some(outside),
                _event: event,
                records,
            }))
        })
    };
    Ok(vec![
        Method {
            name: "count: perf stat".to_owned(),
            attach: attach(false),
            fresh: false,
        },
        Method {
            name: "record: perf record".to_owned(),
            attach: attach(true),
            fresh: false,
        },
    ])
}

/// The command that attaches Frida to one function of a process, or to all (`*`), in one of the ways of frida.py.
pub fn frida_command(pid: u32, function: &str, way: &str) -> Command {
    let mut command = python();
    command.args(["-c", FRIDA, &pid.to_string(), function, way]);
    command
}

/// Whether Frida's bindings are installed.
pub fn has_frida() -> bool {
    let found = python().args(["-c", "import frida"]).output();
    found.is_ok_and(|output| output.status.success())
}

/// The Python that has Frida's bindings: `NANOPROBE_PYTHON`, or `python3`.
fn python() -> Command {
    Command::new(std::env::var_os("NANOPROBE_PYTHON").unwrap_or_else(|| "python3".into()))
}

/// Frida's ways without JavaScript at a hit: its own C listener.
pub fn frida_in_c() -> Result<Vec<Method>, Row> {
    let mut all = frida()?;
    all.retain(|method| method.name.ends_with("Frida, C"));
    Ok(all)
}

fn frida() -> Result<Vec<Method>, Row> {
    if !has_frida() {
        return Err(absent("Frida", "pip install frida"));
    }
    const WAYS: [(&str, &str); 6] = [
        ("count: Frida, C", "c"),
        ("entry and return, clock read: Frida, C", "c-both"),
        ("count: Frida, JavaScript", "js"),
        ("entry and return, clock read: Frida, JavaScript", "js-both"),
        ("string key: Frida, JavaScript", "js-string"),
        ("stack: Frida, JavaScript", "js-stack"),
    ];
    let all = WAYS.iter().map(|(name, way)| {
        let method = method(name, move |subject| {
            let command = frida_command(subject.pid(), subject.function, way);
            let check: fn(&str) -> bool = |text| counted(text, "hits");
            Outside::start(command, "ready", Duration::from_millis(100), Ending::EndOfInput, check)
        });
        // Frida leaves its agent in the process, and has ended programs when it was attached a second time.
        Method { fresh: true, ..method }
    });
    Ok(all.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn perf_stat_s_number_stands_in_front() {
        assert!(counted_in_front("\n        1,234      nanoprobe_bench:probe\n"));
        assert!(!counted_in_front("\n            0      nanoprobe_bench:probe\n"));
        assert!(!counted_in_front("\n  <not counted>      nanoprobe_bench:probe\n"));
    }
}
