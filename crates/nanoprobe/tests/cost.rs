//! The cost of probes, and the limit on it, for a program with one function that is called all the time, and another
//! that is called rarely.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use nanoprobe_tests::LIMIT;
use nanoprobe_tests::in_time::{EndsInTime, InTime, TimeLimit};

/// Calls hot() with 1, 2, 3, ..., and cold() after each five thousand, from the first line of its
/// input to the second. Prints the address of hot(), and at the end how often both were called.
const PROGRAM: &str = r#"
#include <poll.h>
#include <stdio.h>
#include <unistd.h>
__attribute__((noipa)) long hot(long number) { return number; }
__attribute__((noipa)) long cold(long number) { return number; }
int main(void)
{
	char byte;
	printf("%p\n", (void *)hot);
	fflush(stdout);
	if (read(0, &byte, 1) != 1)
		return 1;
	long hots = 0, colds = 0;
	struct pollfd input = { .fd = 0, .events = POLLIN };
	while (poll(&input, 1, 0) == 0)
		for (int i = 0; i < 20; i++) {
			for (int j = 0; j < 5000; j++)
				hot(++hots);
			cold(++colds);
		}
	printf("%ld %ld\n", hots, colds);
	return 0;
}
"#;

/// Calls paced() some 20,000 times a second, on any machine, until its input ends.
const PACED: &str = r#"
#include <poll.h>
#include <stdio.h>
__attribute__((noipa)) long paced(long number) { return number; }
int main(void)
{
	puts("begun");
	fflush(stdout);
	struct pollfd input = { .fd = 0, .events = POLLIN };
	while (poll(&input, 1, 1) == 0)
		for (int i = 0; i < 20; i++)
			paced(i);
	return 0;
}
"#;

/// Makes a thousand calls of getppid() for each poll(), until its input ends. Prints how many.
const CALLING: &str = r#"
#include <poll.h>
#include <stdio.h>
#include <unistd.h>
int main(void)
{
	long calls = 0;
	puts("begun");
	fflush(stdout);
	struct pollfd input = { .fd = 0, .events = POLLIN };
	while (poll(&input, 1, 0) == 0)
		for (int i = 0; i < 1000; i++, calls++)
			getppid();
	printf("%ld\n", calls);
	return 0;
}
"#;

struct Program {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    hot: u64,
    _folder: tempfile::TempDir,
}

impl Program {
    fn start() -> Program {
        let folder = tempfile::tempdir().expect("a folder");
        let (source, path) = (folder.path().join("busy.c"), folder.path().join("busy"));
        std::fs::write(&source, PROGRAM).expect("writing");
        let status = Command::new("cc")
            .args(["-O1", "-o"])
            .arg(&path)
            .arg(&source)
            .status_in_time();
        assert!(status.expect("running cc").success());
        let mut child = Command::new(path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn_in_group()
            .expect("starting the program");
        let input = child.stdin.take();
        let mut output = BufReader::new(child.stdout.take().expect("its output"));
        let _limit = TimeLimit::new(child.id().cast_signed(), "its first line is waited for");
        let mut line = String::new();
        output.read_line(&mut line).expect("its first line");
        let hot = u64::from_str_radix(line.trim().trim_start_matches("0x"), 16).expect("an address");
        Program {
            child,
            input,
            output,
            hot,
            _folder: folder,
        }
    }

    fn pid(&self) -> String {
        self.child.id().to_string()
    }

    fn say_go(&mut self) {
        let input = self.input.as_mut().expect("its input");
        input.write_all(b"x").expect("writing");
    }

    /// The bytes of hot() as they are now in memory: `mov` and `ret`.
    fn text(&self) -> [u8; 4] {
        let mut memory = File::open(format!("/proc/{}/mem", self.pid())).expect("its memory");
        let mut bytes = [0; 4];
        memory.seek(SeekFrom::Start(self.hot)).expect("seeking");
        memory.read_exact(&mut bytes).expect("reading");
        bytes
    }

    /// Ends the program; yields how often hot() and cold() were called.
    fn finish(mut self) -> (u64, u64) {
        drop(self.input.take());
        let _limit = TimeLimit::new(self.child.id().cast_signed(), "its last line is waited for");
        let mut line = String::new();
        self.output.read_line(&mut line).expect("its last line");
        assert!(self.child.wait_in_time().expect("its end").success());
        let mut numbers = line.split_whitespace().map(|word| word.parse().expect("a number"));
        (numbers.next().expect("hot"), numbers.next().expect("cold"))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn nanoprobe() -> Command {
    Command::new(env!("CARGO_BIN_EXE_nanoprobe"))
}

/// Waits until a file holds a text.
fn wait_for(path: &PathBuf, text: &str, child: &mut Child) -> String {
    let start = Instant::now();
    loop {
        let said = std::fs::read_to_string(path).unwrap_or_default();
        if said.contains(text) {
            return said;
        }
        assert!(child.try_wait().expect("waiting").is_none(), "it ended: {said}");
        assert!(start.elapsed() < LIMIT, "{text} expected: {said}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Builds a program.
fn built(folder: &tempfile::TempDir, name: &str, text: &str) -> PathBuf {
    let (source, path) = (folder.path().join(format!("{name}.c")), folder.path().join(name));
    std::fs::write(&source, text).expect("writing");
    let built = Command::new("cc")
        .args(["-O1", "-o"])
        .arg(&path)
        .arg(&source)
        .status_in_time();
    assert!(built.expect("running cc").success());
    path
}

/// Starts a program whose first line is `begun`.
fn begun(path: &PathBuf) -> Child {
    let mut command = Command::new(path);
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn_in_group().expect("starting the program");
    let mut line = [0; 6];
    let _limit = TimeLimit::new(child.id().cast_signed(), "its first line is waited for");
    let output = child.stdout.as_mut().expect("its output");
    output.read_exact(&mut line).expect("its first line");
    child
}

/// Ends a program that prints a number; yields the number.
fn number_of(mut program: Child) -> u64 {
    drop(program.stdin.take());
    let _limit = TimeLimit::new(program.id().cast_signed(), "its last line is waited for");
    let mut text = String::new();
    let output = program.stdout.as_mut().expect("its output");
    output.read_to_string(&mut text).expect("its last line");
    assert!(program.wait_in_time().expect("its end").success());
    text.trim().parse().expect("a number")
}

/// System calls share their places, so all of them are turned off.
#[test]
fn system_calls_over_budget_are_turned_off() {
    let folder = tempfile::tempdir().expect("a folder");
    let (errors, results) = (folder.path().join("errors"), folder.path().join("results"));
    let program = begun(&built(&folder, "calling", CALLING));
    let text = "syscall::getppid:entry { @ = count(); } syscall::getppid:return { @returns = count(); }";
    let mut tracer = nanoprobe()
        .args([
            "-q",
            "-x",
            "maxcost=0.1%",
            "-n",
            text,
            "-p",
            &program.id().to_string(),
            "-o",
        ])
        .arg(&results)
        .stderr(File::create(&errors).expect("a file"))
        .spawn_in_group()
        .expect("starting nanoprobe");
    let said = wait_for(&errors, "maxcost: syscall::: is off", &mut tracer);
    assert!(said.contains("% of a processor, all may take 0.1 %"), "{said}");
    std::thread::sleep(Duration::from_millis(300));
    let calls = number_of(program);
    assert!(tracer.wait_in_time().expect("its end").success());
    let results = std::fs::read_to_string(results).expect("results");
    let counts: Vec<u64> = results
        .split_whitespace()
        .map(|word| word.parse().expect("a number"))
        .collect();
    assert_eq!(counts.len(), 2, "{results}");
    assert!(
        counts.iter().all(|count| (1..calls).contains(count)),
        "{results} of {calls}"
    );
}

#[test]
fn cost_estimates_system_calls_by_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = begun(&built(&folder, "calling", CALLING));
    let text = "syscall::getppid:entry, syscall::poll:return { @[ustack()] = count(); }";
    let output = nanoprobe()
        .args(["cost", "-n", text, "-p", &program.id().to_string()])
        .output_in_time()
        .expect("running nanoprobe");
    number_of(program);
    let (stdout, stderr) = (
        String::from_utf8_lossy(&output.stdout).into_owned(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    );
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    let words = |probe: &str| -> Vec<f64> {
        let line = stdout.lines().find(|line| line.ends_with(probe));
        let line = line.unwrap_or_else(|| panic!("{probe} in {stdout}"));
        let numbers = line.split_whitespace().take(2);
        numbers
            .map(|word| word.replace(',', "").parse().expect("a number"))
            .collect()
    };
    let (calls, polls) = (
        words("syscall:vmlinux:getppid:entry"),
        words("syscall:vmlinux:poll:return"),
    );
    assert!((900.0..1100.0).contains(&(calls[0] / polls[0])), "{stdout}");
    assert!(calls[1] > 0.0 && polls[1] > 0.0, "{stdout}");
}

#[test]
fn a_probe_over_budget_is_turned_off_and_its_counts_are_exact_up_to_then() {
    let mut program = Program::start();
    let original = program.text();
    let folder = tempfile::tempdir().expect("a folder");
    let (errors, results) = (folder.path().join("errors"), folder.path().join("results"));
    // Arguments are 1, 2, 3, ...: the greatest one seen is the number of calls seen.
    let text = "pid$target:busy:hot:entry { @hot[\"calls\"] = count(); @last[\"last\"] = max(arg0); }
                pid$target:busy:cold:entry { @cold[\"cold\"] = count(); }";
    // A processor that only calls hot() without a probe, a nanosecond each, calls cold() 200,000
    // times a second. That is a fifth of the limit.
    let mut tracer = nanoprobe()
        .args(["-q", "-v", "-x", "maxcost=0.2%", "-n", text, "-p", &program.pid(), "-o"])
        .arg(&results)
        .stderr(File::create(&errors).expect("a file"))
        .spawn_in_group()
        .expect("starting nanoprobe");
    wait_for(&errors, "nanoprobe: attach ", &mut tracer);
    assert_ne!(program.text(), original, "it was patched");
    program.say_go();
    let said = wait_for(&errors, "busy:hot:entry is off", &mut tracer);
    assert!(said.contains("% of a processor, all may take 0.2 %"), "{said}");
    assert!(!said.contains("cold:entry is off"), "{said}");
    assert_eq!(program.text(), original, "off means the original bytes");
    // The program goes on without the probe for a while.
    std::thread::sleep(Duration::from_millis(300));
    let (hots, colds) = program.finish();
    assert!(tracer.wait_in_time().expect("its end").success());
    let said = std::fs::read_to_string(errors).expect("messages");
    assert!(!said.contains("cold:entry is off"), "{said}");
    let results = std::fs::read_to_string(results).expect("results");
    let value = |name: &str| -> u64 {
        let line = results.lines().find(|line| line.trim_start().starts_with(name));
        let line = line.unwrap_or_else(|| panic!("{name} in {results}"));
        line.split_whitespace()
            .nth(1)
            .and_then(|word| word.parse().ok())
            .expect("a number")
    };
    assert!(value("calls") > 0 && value("calls") < hots, "{results} of {hots}");
    assert_eq!(
        value("calls"),
        value("last"),
        "every call was counted up to the last one"
    );
    assert_eq!(value("cold"), colds);
    assert!(
        !results.contains("entry"),
        "what we count ourselves is not printed: {results}"
    );
}

/// Each of four processes is below the limit, and all together are above it.
#[test]
fn the_limit_is_for_all_processes_together() {
    const PROCESSES: usize = 4;
    let folder = tempfile::tempdir().expect("a folder");
    let path = built(&folder, "paced", PACED);
    let start = || begun(&path);
    // Traps, whose cost is some percent of a processor.
    let trace = |programs: &[Child], limit: &str, errors: &PathBuf| {
        let pids: Vec<String> = programs.iter().map(|program| program.id().to_string()).collect();
        nanoprobe()
            .args(["-q", "-x", "tactic=trap", "-x", limit, "-p", &pids.join(",")])
            .args([
                "-n",
                "pid$target:a.out:paced:entry { @[pid] = count(); }",
                "-o",
                "/dev/null",
            ])
            .stderr(File::create(errors).expect("a file"))
            .spawn_in_group()
            .expect("starting nanoprobe")
    };
    let end = |programs: Vec<Child>, mut tracer: Child| {
        for mut program in programs {
            drop(program.stdin.take());
            assert!(program.wait_in_time().expect("its end").success());
        }
        assert!(tracer.wait_in_time().expect("its end").success());
    };
    let errors = folder.path().join("errors");
    let one = vec![start()];
    let mut tracer = trace(&one, "maxcost=0.01%", &errors);
    let said = wait_for(&errors, "paced:entry is off", &mut tracer);
    end(one, tracer);
    let (_, share) = said.split_once(" ns = ").expect("the share");
    let share: f64 = share
        .split(' ')
        .next()
        .and_then(|share| share.parse().ok())
        .expect("a number");
    let programs: Vec<Child> = (0..PROCESSES).map(|_| start()).collect();
    let mut tracer = trace(&programs, &format!("maxcost={:.2}%", share * 2.5), &errors);
    let is_off = "paced:entry in process ";
    wait_for(&errors, is_off, &mut tracer);
    // Some more looks.
    std::thread::sleep(Duration::from_secs(1));
    end(programs, tracer);
    let said = std::fs::read_to_string(errors).expect("messages");
    let off = said.matches(is_off).count();
    assert!((1..PROCESSES).contains(&off), "of {share} %: {said}");
}

#[test]
fn cost_estimates_a_program_without_running_it() {
    let mut program = Program::start();
    let original = program.text();
    program.say_go();
    let text = "pid$target:busy:hot:entry, pid$target:busy:cold:entry { @[ustack()] = count(); }
                pid$target:busy:hot:entry { exit(3); }";
    let output = nanoprobe()
        .args(["cost", "-x", "maxcost=0.01%", "-n", text, "-p", &program.pid()])
        .output_in_time()
        .expect("running nanoprobe");
    assert_eq!(program.text(), original, "nothing is left behind");
    program.finish();
    let (stdout, stderr) = (
        String::from_utf8_lossy(&output.stdout).into_owned(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    );
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    let rate = |function: &str| -> f64 {
        let line = stdout
            .lines()
            .find(|line| line.contains(&format!(":busy:{function}:entry")));
        let line = line.unwrap_or_else(|| panic!("{function} in {stdout}"));
        let number = line.split_whitespace().next().expect("a number").replace(',', "");
        number.parse().expect("a number")
    };
    // There is one call of cold() for five thousand calls of hot().
    let ratio = rate("hot") / rate("cold");
    assert!((4500.0..5500.0).contains(&ratio), "{stdout}");
    assert!(stdout.contains("all of 2 probes hit"), "{stdout}");
    assert!(
        stderr.contains("this would take more than 0.01 % of a processor"),
        "{stderr}"
    );
}

#[test]
fn cost_without_a_process_says_what_it_needs() {
    let output = nanoprobe()
        .args(["cost", "-n", "BEGIN"])
        .output_in_time()
        .expect("running nanoprobe");
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("nanoprobe cost -n '...' -p PID"));
}
