//! Attaching when no processor is free, and attaching that fails in the middle.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use nanoprobe_tests::command::{Running, run};
use nanoprobe_tests::in_time::EndsInTime;
use nanoprobe_tests::left_out::left_out;
use nanoprobe_tests::program::program;
use nanoprobe_tests::results::{said, value};
use nanoprobe_tests::text::{Snapshot, is_complete};
use nanoprobe_tests::tracer::{Form, Tracer, nanoprobe, start_waiting};

const CALLS: &str = "20000";
const CLAUSE: &str = "pid$target:a.out:func:entry { @ = count(); }";

/// Processes that only use processors; dropping the value ends them.
struct Spinners(Vec<std::process::Child>);

impl Spinners {
    fn for_each_processor(number: usize) -> Spinners {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let spin = || {
            let mut command = Command::new("sh");
            command.args(["-c", "while :; do :; done"]).stdin(Stdio::null());
            command.spawn().expect("a shell")
        };
        Spinners((0..number * processors).map(|_| spin()).collect())
    }
}

impl Drop for Spinners {
    fn drop(&mut self) {
        for spinner in &mut self.0 {
            let _ = spinner.kill();
            let _ = spinner.wait_in_time();
        }
    }
}

/// Attaches, lets the program do its work, and compares the count.
#[track_caller]
fn is_counted(form: Form, mut target: Running) {
    let tracing = Tracer::new(form).clause(CLAUSE).attach(target.pid());
    target.go();
    let finished = target.finish().success();
    let traced = tracing.finish();
    assert_eq!(traced.finished.code(), 0, "{}", traced.finished.stderr);
    assert_eq!(
        value(&traced.results),
        said(&finished.stdout, "calls"),
        "{}",
        traced.finished.stderr
    );
}

#[test]
fn beside_twenty_busy_processes_a_processor() {
    let _spinners = Spinners::for_each_processor(20);
    for form in [Form::Default, Form::Trap] {
        is_counted(form, start_waiting(&program("looper.c"), CALLS));
    }
}

/// The target gets a processor only if no other process wants one.
#[test]
fn of_the_lowest_priority_beside_busy_processes() {
    let target = start_waiting(&program("looper.c"), CALLS);
    // SAFETY: takes three numbers.
    let lowered = unsafe { libc::setpriority(libc::PRIO_PROCESS, target.pid().cast_unsigned(), 19) };
    assert_eq!(lowered, 0);
    let _spinners = Spinners::for_each_processor(3);
    is_counted(Form::Default, target);
}

/// A control group with little processor time; dropping the value removes it.
struct Group(PathBuf);

impl Group {
    /// Two milliseconds in each tenth of a second.
    fn with_quota() -> std::io::Result<Group> {
        let name = format!("nanoprobe-test-{}", std::process::id());
        let (root, files): (&str, &[(&str, &str)]) = if Path::new("/sys/fs/cgroup/cpu").is_dir() {
            let files = &[("cpu.cfs_period_us", "100000"), ("cpu.cfs_quota_us", "2000")];
            ("/sys/fs/cgroup/cpu", files)
        } else {
            ("/sys/fs/cgroup", &[("cpu.max", "2000 100000")])
        };
        let folder = Path::new(root).join(name);
        std::fs::create_dir(&folder)?;
        let group = Group(folder);
        for (file, text) in files {
            std::fs::write(group.0.join(file), text)?;
        }
        Ok(group)
    }

    fn take(&self, pid: i32) -> std::io::Result<()> {
        std::fs::write(self.0.join("cgroup.procs"), pid.to_string())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

#[test]
fn in_a_control_group_with_a_small_quota() {
    let group = Group::with_quota();
    let target = start_waiting(&program("looper.c"), CALLS);
    match group.and_then(|group| group.take(target.pid()).map(|()| group)) {
        Ok(group) => {
            is_counted(Form::Default, target);
            drop(group);
        }
        Err(error) => {
            left_out("attaching in a control group with a quota", &error.to_string());
            is_counted(Form::Default, target);
        }
    }
}

fn maps(pid: i32) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/maps")).expect("a map")
}

/// However few mappings a process may still make, attaching succeeds, or names the limit and leaves nothing.
#[test]
fn a_process_that_may_map_little_more_is_traced_or_left_as_it_was() {
    let limit = std::fs::read_to_string("/proc/sys/vm/max_map_count").unwrap_or_default();
    if !limit.trim().parse().is_ok_and(|limit: u64| limit < 1 << 19) {
        left_out(
            "attaching to a process at its limit of mappings",
            "vm.max_map_count is large here",
        );
        return;
    }
    for left in [0, 1, 2, 3, 5, 8, 12, 64] {
        let mut target = start_waiting(&program("crowded.c"), &left.to_string());
        let before = maps(target.pid()).lines().count();
        let tracing = Tracer::new(Form::Default)
            .clause("pid$target:::entry { @ = count(); }")
            .attach_or_end(target.pid());
        let works = maps(target.pid()).contains("memfd:nanoprobe");
        assert!(if works { left > 0 } else { left < 64 }, "{left} left");
        if !works {
            let said = tracing.finish().finished.stderr;
            assert!(said.contains("vm.max_map_count"), "{left} left: {said}");
            assert_eq!(maps(target.pid()).lines().count(), before, "{left} left");
            target.go();
            target.finish().success();
            continue;
        }
        target.go();
        target.finish().success();
        let traced = tracing.finish().success();
        assert!(value(&traced.results) >= 1000, "{}", traced.finished.stderr);
    }
}

/// Another tracer comes in the middle and stays, so neither attaching nor the removal is possible. The error reports
/// both, and the remains. These are then removed as the error says.
#[test]
fn memory_that_a_failed_removal_leaves_is_reported_and_repaired() {
    let is_left = fails_and_is_repaired(
        "early",
        "pid$target:::entry { @ = count(); }",
        "nanoprobe's memory stays mapped",
    );
    assert!(is_left, "attached in spite of another tracer");
}

/// The other tracer comes when the first probes (those that replaced return addresses need) are already in the text,
/// and the others are being planned.
#[test]
fn probes_that_a_failed_removal_leaves_are_reported_and_repaired() {
    let clause = "pid$target:::entry,pid$target:::return { @ = count(); }";
    // On a busy machine the other tracer may come when everything is in place.
    let is_left = (0..20).any(|_| fails_and_is_repaired("armed", clause, "still runs with nanoprobe's probes"));
    assert!(is_left, "the other tracer was never there in time");
}

/// Whether attaching failed because another tracer came. Then the message says so, and names the `left` code, which is
/// removed.
#[track_caller]
fn fails_and_is_repaired(when: &str, clause: &str, left: &str) -> bool {
    let mut running = Running::start(Command::new(program("grabbed.c")).arg(when));
    running.wait_for("ready\n");
    let snapshot = Snapshot::take(running.pid());
    let before = maps(running.pid());
    let pid = running.pid();
    let mut tracing = Tracer::new(Form::Default).clause(clause).process(pid).start();
    let mut is_late = false;
    while tracing.running.is_running() && !is_late {
        is_late = is_complete(pid);
        std::thread::sleep(Duration::from_millis(1));
    }
    let release = |running: &mut Running| {
        running.write("x");
        running.wait_for("released\n");
    };
    if is_late {
        release(&mut running);
        tracing.interrupt();
    } else {
        let traced = tracing.finish();
        let said = &traced.finished.stderr;
        assert_ne!(traced.finished.code(), 0, "{said}");
        assert!(running.stdout().contains("grabbed"), "{said}");
        for part in [
            "traces it",
            "undoing the changes made before that failed as well",
            left,
            "`nanoprobe restore`",
        ] {
            assert!(said.contains(part), "{part}: {said}");
        }
        assert!(maps(pid).contains("memfd:nanoprobe"));
        release(&mut running);
        run(Command::new(nanoprobe()).args(["restore", &pid.to_string()])).success();
    }
    let of = |map: &str| map.lines().filter(|line| !line.contains("[heap]")).count();
    assert_eq!(of(&maps(pid)), of(&before));
    assert!(!maps(pid).contains("memfd:nanoprobe"));
    snapshot.assert_restored(pid);
    running.write("x");
    assert!(running.finish().success().stdout.ends_with("fine\n"));
    !is_late
}
