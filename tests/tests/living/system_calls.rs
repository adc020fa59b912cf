//! The provider `syscall`: every call of a program fires once before it and once after it, under its own name.

use std::collections::BTreeMap;

use nanoprobe_tests::live_tests;
use nanoprobe_tests::program::{Build, need_program, program};
use nanoprobe_tests::results::{said, table};
use nanoprobe_tests::text::{Snapshot, read};
use nanoprobe_tests::tracer::{Form, Tracer, assert_nothing_lost, start_waiting};

use crate::{assert_calls_are_counted_once, traced_from_start, traced_when_attached};

/// The calls that nothing but the program makes.
const NAMES: [&str; 13] = [
    "getppid",
    "getpgid",
    "sched_yield",
    "uname",
    "times",
    "getrusage",
    "dup2",
    "pwrite64",
    "mkdir",
    "sys_400",
    "unknown",
    "copy_file_range",
    "getsid",
];

/// The rows of several aggregations by name, each printed with a prefix of its own.
fn rows(text: &str, prefix: &str) -> BTreeMap<String, i64> {
    let lines = text.lines().filter_map(|line| line.trim().strip_prefix(prefix));
    table(&lines.map(|line| format!("  {line}\n")).collect::<String>())
}

fn arguments(form: Form) -> String {
    format!("4 {}", form.scale(2_000, 50))
}

live_tests! {
    /// A clause that only counts has no handler before a call.
    fn each_call_is_counted_once(form) {
        assert_calls_are_counted_once(form, &program("system_calls.c"), &arguments(form), &NAMES);
    }

    /// Handlers before and after the call, with their keys, results and errors.
    fn each_call_returns_once(form) {
        let clause = "#pragma D option quiet
            syscall:::entry { @before[probefunc] = sum(1); self->at = probefunc; }
            syscall:::return { @after[probefunc] = count(); }
            syscall:::return /self->at != probefunc/ { @strange[self->at, probefunc] = count(); }
            syscall::mkdir:return,syscall::dup2:return,syscall::sys_400:return
                { @failed[probefunc, arg0 == -1 && arg1 == -1 ? errno : 0] = count(); }
            syscall::getppid:return { @right[arg0 == $target ? -1 : errno, arg0 == ppid, arg1 == ppid] = count(); }
            syscall::read:entry { self->file = arg0; }
            syscall::read:return /self->file > 0/ { @reads[arg0, errno] = count(); }
            syscall::*fork:return,syscall::clone*:return /errno == 0/ { @made[arg0 > 0] = count(); }
            END {
                printa(\"before %s %@d\\n\", @before); printa(\"after %s %@d\\n\", @after);
                printa(\"strange %s.%s %@d\\n\", @strange);
                printa(\"failed %s.%d %@d\\n\", @failed); printa(\"right %d.%d.%d %@d\\n\", @right);
                printa(\"reads %d.%d %@d\\n\", @reads); printa(\"made %d %@d\\n\", @made);
            }";
        let program = program("system_calls.c");
        let (target, traced) = traced_when_attached(form, clause, &program, &arguments(form));
        assert_nothing_lost(&traced.finished.stderr);
        let (before, after) = (rows(&traced.results, "before "), rows(&traced.results, "after "));
        for name in NAMES {
            let right = said(&target.stdout, name);
            assert_eq!((before[name], after[name]), (right, right), "{name}");
        }
        let failed = rows(&traced.results, "failed ");
        for name in ["mkdir.20", "dup2.9", "sys_400.38"] {
            let (call, _) = name.split_once('.').expect("two parts");
            assert_eq!(failed[name], said(&target.stdout, call), "{failed:?}");
        }
        assert_eq!(failed.len(), 3, "{failed:?}");
        let right = rows(&traced.results, "right ");
        assert_eq!(right["0.1.1"], said(&target.stdout, "getppid"), "{right:?}");
        let reads = rows(&traced.results, "reads ");
        assert_eq!((reads["-1.4"], reads["1.0"]), (1, 1), "{reads:?}");
        assert_eq!(rows(&traced.results, "made ")["1"], said(&target.stdout, "made"));
        // A handler of a signal comes between a read and its end.
        let strange = rows(&traced.results, "strange ");
        let is_known = |pair: &String| ["rt_sigreturn.read", "execve.vfork", "execve.clone3", "execve.clone"].contains(&pair.as_str());
        assert!(strange.keys().all(is_known), "{strange:?}");
    }

    /// All six arguments, and a string at one of them.
    fn arguments_are_the_kernel_s(form) {
        let clause = "syscall::sys_400:entry
                { @[arg0, arg1, arg2, arg3, arg4, arg5] = count(); }
            syscall::mkdir:entry { @paths[copyinstr(arg0)] = count(); @modes[arg1] = count(); }
            syscall::sys_400:entry /uregs[R_RAX] == 400 && uregs[R_R10] == 4/ { @registers = count(); }
            syscall::sys_400:entry { @callers[ufunc(uregs[R_PC])] = count(); }";
        let program = program("system_calls.c");
        let (target, traced) = traced_when_attached(form, clause, &program, &arguments(form));
        assert_nothing_lost(&traced.finished.stderr);
        let each = said(&target.stdout, "mkdir");
        let words: Vec<Vec<String>> = traced
            .results
            .lines()
            .map(|line| line.split_whitespace().map(str::to_owned).collect())
            .collect();
        let has = |key: &[&str]| {
            let count = each.to_string();
            let line: Vec<&str> = key.iter().copied().chain([count.as_str()]).collect();
            assert!(words.iter().any(|words| *words == line), "{line:?}: {}", traced.results);
        };
        has(&["1", "2", "3", "4", "5", "6"]);
        has(&["/proc/self/status/no"]);
        has(&["448"]);
        has(&[]);
        has(&["libc.so.6`syscall"]);
    }

    /// `args[]` have the kernel's types. The calls that a clause lists share one table, and a call that two of its
    /// descriptions mean fires twice.
    fn arguments_have_the_kernel_s_types(form) {
        let clause = "syscall::mkdir:entry { @[stringof(args[0]), args[1]] = count(); }
            syscall::getpriority:return,syscall::mkdir:return { @failed[probefunc, args[0] == -1] = count(); }
            syscall::mkdir:entry,syscall::dup2:entry,syscall::uname:entry { @once[probefunc] = count(); }
            syscall::dup2:entry,syscall::du*2:entry,syscall::uname:entry { @twice[probefunc] = count(); }";
        let program = program("system_calls.c");
        let (target, traced) = traced_when_attached(form, clause, &program, &arguments(form));
        assert_nothing_lost(&traced.finished.stderr);
        let lines: Vec<String> = traced.results.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        let has = |line: String| assert_eq!(lines.iter().filter(|found| **found == line).count(), 1, "{line}: {lines:?}");
        let (mkdir, dup2, uname) = (said(&target.stdout, "mkdir"), said(&target.stdout, "dup2"), said(&target.stdout, "uname"));
        has(format!("/proc/self/status/no 448 {mkdir}"));
        has(format!("mkdir 1 {mkdir}"));
        has(format!("mkdir {mkdir}"));
        has(format!("dup2 {}", 2 * dup2));
        assert_eq!(lines.iter().filter(|line| **line == format!("uname {uname}")).count(), 2, "{lines:?}");
    }

    /// Static programs make their calls themselves.
    fn static_programs(form) {
        for build in [Build::Static, Build::MuslStatic] {
            let Some(program) = need_program("system_calls.c", build) else { continue };
            let clause = "syscall:::return { @[probefunc] = count(); }";
            let traced = traced_from_start(form, clause, &program, &arguments(form));
            let rows = table(&traced.results);
            for name in NAMES {
                assert_eq!(rows[name], said(&traced.finished.stdout, name), "{name} {build:?}");
            }
            assert_nothing_lost(&traced.finished.stderr);
        }
    }

    /// Calls of goroutines, on Go's small stacks, through functions that take the number.
    fn go_programs(form) {
        for build in [Build::Go, Build::GoPie] {
            let Some(program) = need_program("gocalls.go", build) else { continue };
            let clause = "syscall:::entry { @[\"counted\", probefunc] = count(); }
                          syscall:::entry /arg0 == arg0/ { @[\"handled\", probefunc] = count(); }
                          syscall:::return { @[\"returned\", probefunc] = count(); }
                          syscall::dup:return /errno == 9 && arg0 == -1/ { @[\"failed\", probefunc] = count(); }
                          syscall::sys_400:entry /arg3 == 4 && arg5 == 6/ { @[\"passed\", probefunc] = count(); }";
            let (target, traced) = traced_when_attached(form, clause, &program, &arguments(form));
            assert_nothing_lost(&traced.finished.stderr);
            let rows = table(&traced.results);
            for name in ["getppid", "dup", "getpgid", "sys_400"] {
                for seen in ["counted", "handled", "returned"] {
                    assert_eq!(rows[&format!("{seen} {name}")], said(&target.stdout, name), "{seen} {name}");
                }
            }
            assert_eq!(rows["failed dup"], said(&target.stdout, "dup"));
            assert_eq!(rows["passed sys_400"], said(&target.stdout, "sys_400"));
        }
    }

    /// Tracing ends while threads are in calls, and in the handlers around the calls.
    fn the_text_is_restored_between_calls(form) {
        let arguments = format!("4 {}", form.scale(300_000, 5_000));
        let mut target = start_waiting(&program("system_calls.c"), &arguments);
        let snapshot = Snapshot::take(target.pid());
        let clause = "syscall:::entry { @ = count(); } syscall:::return { @r[probefunc, errno] = count(); }";
        let tracing = Tracer::new(form).clause(clause).attach(target.pid());
        target.go();
        let tasks = format!("/proc/{}/task", target.pid());
        target.wait_until("the threads", |target| {
            let threads = std::fs::read_dir(&tasks).map_or(0, Iterator::count);
            threads > 4 || target.stdout().ends_with("OK\n")
        });
        let traced = tracing.interrupt();
        if target.is_running() {
            snapshot.assert_restored(target.pid());
        }
        let finished = target.finish().success();
        assert!(finished.stdout.ends_with("OK\n"), "{} {}", finished.stdout, traced.finished.stderr);
    }

    /// The calls that nanoprobe itself watches, beside returns that are seen by their return addresses. For these,
    /// shims are in the text before any probe.
    fn calls_with_shims_beside_returns(form) {
        let clause = "pid$target:a.out:run:return { @[\"run\"] = sum(1); }
            syscall::*fork:entry,syscall::clone*:entry { @[\"before\"] = sum(1); }
            syscall::*fork:return,syscall::clone*:return /errno == 0 && arg0 > 0/ { @[\"made\"] = sum(1); }
            syscall::rt_sigaction:entry,syscall::rt_sigaction:return { @[probename] = sum(1); }";
        let (target, traced) = traced_when_attached(form, clause, &program("system_calls.c"), "4 10");
        assert_nothing_lost(&traced.finished.stderr);
        let rows = table(&traced.results);
        let made = said(&target.stdout, "made");
        assert_eq!((rows["run"], rows["before"], rows["made"]), (4, made, made), "{rows:?}");
        assert_eq!(rows["entry"], rows["return"], "{rows:?}");
    }

    /// A clause on one call changes nothing at calls whose code shows that they are others.
    fn other_calls_are_left_alone(form) {
        let mut target = start_waiting(&program("call_places.c"), "");
        let stdout = target.stdout();
        let places = ["ask_parent", "ask_any", "ask_user"].map(|name| said(&stdout, name) as u64);
        let pid = target.pid();
        // The code of each of them, without the padding.
        let texts = || places.map(|address| read(pid, address, 19).expect("the text is readable"));
        let before = texts();
        let clause = "syscall::getppid:entry,syscall::getppid:return { @[probename] = count(); }";
        let tracing = Tracer::new(form).clause(clause).attach(pid);
        let changed: Vec<bool> = before.iter().zip(texts()).map(|(before, during)| *before != during).collect();
        assert_eq!(changed, [true, true, false]);
        target.go();
        let finished = target.finish().success();
        let traced = tracing.finish().success();
        let rows = table(&traced.results);
        let right = said(&finished.stdout, "getppid");
        assert_eq!((rows["entry"], rows["return"]), (right, right), "{rows:?}");
        assert_nothing_lost(&traced.finished.stderr);
    }

    /// The calls of followed children are counted for the children; a call that the vDSO makes counts, too.
    fn followed_children(form) {
        let clause = "syscall::getppid:return /arg0 == ppid/ { @[pid == $target ? \"parent\" : \"child\"] = count(); }
                      syscall::clock_gettime:entry,syscall::clock_gettime:return { @[probename] = count(); }";
        let program = program("system_calls.c");
        let tracer = Tracer::new(form).argument("-x").argument("follow=fork").clause(clause);
        let traced = tracer.command(&program, "2 50 children").run().complete();
        let rows = table(&traced.results);
        let stdout = &traced.finished.stdout;
        assert_eq!(rows["child"], said(stdout, "in_children"), "{rows:?}");
        assert_eq!(rows["parent"], said(stdout, "getppid"), "{rows:?}");
        let asked = said(stdout, "asked");
        assert_eq!((rows["entry"], rows["return"]), (asked, asked), "{rows:?}");
        assert_nothing_lost(&traced.finished.stderr);
    }
}
