//! Probes that are turned off while the tracing goes on (`-x maxcost`) leave the text of forked children, too.

use std::collections::BTreeMap;

use nanoprobe_tests::command::Running;
use nanoprobe_tests::live_tests;
use nanoprobe_tests::program::program;
use nanoprobe_tests::results::said_by_processes;
use nanoprobe_tests::text::{Snapshot, read};
use nanoprobe_tests::tracer::{Form, Traced, Tracer, Tracing, assert_nothing_lost, start_waiting};
use nix::sys::ptrace;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{Pid, getpgid};

/// The first argument is the number of the call in its process, the second one the number of the process. So the
/// greatest first argument is the number of calls until the last one that was counted.
const CLAUSE: &str = "#pragma D option quiet
    pid$target:a.out:hot:entry { @calls[arg1] = count(); @last[arg1] = max(arg0); }
    END { printa(\"calls %d %@d\\n\", @calls); printa(\"last %d %@d\\n\", @last); }";
/// The first bytes of the function, of which each patch changes at least one.
const BYTES: usize = 8;
/// Processes that call until the end of the input. Each has two threads.
const CALLERS: usize = 4;
/// The number of a caller's second thread is greater by so much.
const OF_THREADS: usize = 100;

/// Holds the first thread of one of the target's children, as a debugger does.
fn hold(target: &mut Running, pid: i32) -> Pid {
    let pid = Pid::from_raw(pid);
    // The tracer may hold it just now.
    let is_seized = |_: &Running| ptrace::seize(pid, ptrace::Options::empty()).is_ok();
    target.wait_until("seizing a child", is_seized);
    ptrace::interrupt(pid).expect("interrupting");
    loop {
        match waitpid(pid, None).expect("waiting") {
            // A trap's signal, which the process needs.
            WaitStatus::Stopped(_, signal) => ptrace::cont(pid, signal).expect("handing the signal on"),
            WaitStatus::PtraceEvent(..) => return pid,
            other => panic!("{other:?}"),
        }
    }
}

/// All that were forked by a process, or by its children, and so on.
fn descendants(pid: i32) -> Vec<i32> {
    children(pid)
        .into_iter()
        .flat_map(|child| descendants(child).into_iter().chain([child]))
        .collect()
}

/// The living processes of a group, without its first one.
fn group(leader: i32) -> Vec<i32> {
    let all = std::fs::read_dir("/proc").expect("/proc").flatten();
    let numbers = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let is_in = |pid: &i32| getpgid(Some(Pid::from_raw(*pid))) == Ok(Pid::from_raw(leader));
    numbers.filter(|pid| *pid != leader).filter(is_in).collect()
}

fn children(pid: i32) -> Vec<i32> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    let children: Vec<i32> = text.split_whitespace().filter_map(|child| child.parse().ok()).collect();
    children
        .into_iter()
        .flat_map(|child| descendants(child).into_iter().chain([child]))
        .collect()
}

/// A tree that waits, the address of its function, and the bytes there.
fn tree(arguments: &str) -> (Running, u64, Vec<u8>) {
    let target = start_waiting(&program("hottree.c"), arguments);
    let stdout = target.stdout();
    let address = stdout
        .lines()
        .find_map(|line| line.strip_prefix("hot "))
        .expect("the address");
    let address = u64::from_str_radix(address, 16).expect("a number");
    let original = read(target.pid(), address, BYTES).expect("the function");
    (target, address, original)
}

fn bounded(form: Form) -> Tracer {
    ["follow=fork", "maxcost=0.2%"]
        .into_iter()
        .fold(Tracer::new(form).clause(CLAUSE), |tracer, option| {
            tracer.argument("-x").argument(option)
        })
}

fn wait_until_off(tracing: &mut Tracing) {
    let is_off = |tracer: &Running| tracer.stderr().contains("hot:entry is off");
    tracing.running.wait_until("the probe being off", is_off);
}

/// Checks what was counted against what each process says, after the end of all.
fn check_counts(traced: &Traced, said: &BTreeMap<String, i64>) -> BTreeMap<String, i64> {
    assert_nothing_lost(&traced.finished.stderr);
    let rows = |kind: &str| -> BTreeMap<String, i64> {
        let rows = traced
            .results
            .lines()
            .filter_map(|line| line.strip_prefix(kind)?.trim().split_once(' '));
        rows.map(|(process, value)| (process.to_owned(), value.parse().expect("a number")))
            .collect()
    };
    let (calls, last) = (rows("calls"), rows("last"));
    assert_eq!(calls, last, "every call was counted up to the last one");
    for (process, calls) in &calls {
        assert!(calls <= &said[process], "{process}: {calls} of {}", said[process]);
    }
    calls
}

live_tests! {
    /// Only the children call. Those that are forked while the probe is turned off have none, either.
    fn a_probe_over_budget_leaves_the_whole_tree(form) {
        let (mut target, address, original) = tree("");
        let mut tracing = bounded(form).trace(target.pid());
        assert_ne!(read(target.pid(), address, BYTES), Some(original.clone()));
        target.go();
        wait_until_off(&mut tracing);
        for _ in 0..20 {
            for process in descendants(target.pid()).into_iter().chain([target.pid()]) {
                // It may have ended since.
                if let Some(text) = read(process, address, BYTES) {
                    assert_eq!(text, original, "process {process}");
                }
            }
        }
        let lines = target.stdout().lines().count();
        target.wait_until("processes that were forked later", |target| target.stdout().lines().count() > lines + 60);
        target.close_input();
        let stdout = target.finish().success().stdout;
        assert!(stdout.contains("OK\n"), "{stdout}");
        let said = said_by_processes(&stdout);
        let calls = check_counts(&tracing.finish().success(), &said);
        for process in (1..=CALLERS).flat_map(|process| [process, process + OF_THREADS]) {
            assert!(calls[&process.to_string()] > 0, "{process}: {calls:?}");
        }
        let late = said.keys().filter(|process| !calls.contains_key(*process)).count();
        assert!(late >= 20, "{late} were forked without the probe");
    }

    /// The end takes out the rest: the agent, and the shims.
    fn a_tree_without_the_probe_is_restored_at_the_end(form) {
        let (mut target, address, _) = tree("");
        let snapshot = Snapshot::take(target.pid());
        let mut tracing = bounded(form).trace(target.pid());
        target.go();
        wait_until_off(&mut tracing);
        let callers = descendants(target.pid());
        tracing.interrupt().success();
        let mut restored = 0;
        for process in callers.into_iter().chain([target.pid()]) {
            if read(process, address, BYTES).is_some() {
                snapshot.assert_restored(process);
                restored += 1;
            }
        }
        assert!(restored > CALLERS, "{restored}");
        target.close_input();
        assert!(target.finish().success().stdout.contains("OK\n"));
    }

    /// A debugger holds a child, which is tried again.
    fn a_child_that_is_held_loses_the_probe_later(form) {
        let (mut target, address, original) = tree("");
        let mut tracing = bounded(form).trace(target.pid());
        target.go();
        let first = target.pid();
        let grandchild = || children(first).into_iter().flat_map(children).next();
        target.wait_until("a grandchild", |_| grandchild().is_some());
        let held = grandchild().expect("a caller lives until the end of the input");
        let pid = hold(&mut target, held);
        let was_off = read(held, address, BYTES) == Some(original.clone());
        wait_until_off(&mut tracing);
        assert_eq!(read(held, address, BYTES) == Some(original.clone()), was_off, "nobody can change it");
        ptrace::detach(pid, None).expect("letting it go");
        let is_original = |_: &Running| read(held, address, BYTES).as_ref() == Some(&original);
        target.wait_until("the held child having the original text", is_original);
        target.close_input();
        let said = said_by_processes(&target.finish().success().stdout);
        check_counts(&tracing.finish().success(), &said);
    }

    /// Nobody but the children has the probe.
    fn a_probe_of_children_alone_is_bounded(form) {
        let (mut target, address, original) = tree("orphans");
        let mut tracing = bounded(form).trace(target.pid());
        target.go();
        wait_until_off(&mut tracing);
        let orphans = group(target.pid());
        assert_eq!(orphans.len(), CALLERS);
        for process in orphans {
            assert_eq!(read(process, address, BYTES), Some(original.clone()), "process {process}");
        }
        target.close_input();
        // The tracing ends with the last process.
        let traced = tracing.finish().success();
        let said = said_by_processes(&target.finish().success().stdout);
        let calls = check_counts(&traced, &said);
        assert_eq!((calls.len(), said.len()), (2 * CALLERS, 2 * CALLERS));
        assert_eq!(traced.finished.stderr.matches("maxcost: ").count(), 1, "{}", traced.finished.stderr);
    }
}
