//! The one-liners of Gregg's "DTrace pid Provider Overhead", unchanged, with exact results.

use std::process::Command;

use nanoprobe_tests::command::Running;
use nanoprobe_tests::left_out::need_command;
use nanoprobe_tests::live_tests;
use nanoprobe_tests::program::{Build, need_program, program};
use nanoprobe_tests::results::{function_of, matched, records, said, stacks, table, value, values};
use nanoprobe_tests::text::{Snapshot, is_patched};
use nanoprobe_tests::tracer::{Form, Tracer, start_waiting};

const COUNT: &str = "pid$target:a.out:func:entry { @ = count(); }";

live_tests! {
    fn all_hundred_million_calls_are_counted(form) {
        let calls = form.scale(100_000_000, 1_000_000);
        // The default number of calls is the original's, so the command line is the original's, too.
        let arguments = if form == Form::Default { String::new() } else { calls.to_string() };
        let traced = Tracer::new(form).clause(COUNT).command(&program("looper.c"), &arguments).run().complete();
        assert_eq!(value(&traced.results), calls as i64);
        assert_eq!(matched(&traced.finished.stderr), 1);
        let stderr = &traced.finished.stderr;
        assert!(stderr.contains("nanoprobe: description 'pid$target:a.out:func:entry ' matched 1 probe\n"), "{stderr}");
        assert!(stderr.lines().any(|line| line.starts_with("nanoprobe: pid ") && line.ends_with(" has exited")), "{stderr}");
    }

    fn a_function_that_is_never_called_counts_nothing(form) {
        let clause = "pid$target:libc:strncpy:entry { @ = count(); }";
        let traced = Tracer::new(form).clause(clause).command(&program("looper.c"), "100000").run().complete();
        assert_eq!(values(&traced.results), []);
        assert!(matched(&traced.finished.stderr) >= 1);
    }

    fn strings_are_keys(form) {
        let calls = form.scale(100_000_000, 500_000);
        let clause = "pid$target:a.out:func:entry { @[copyinstr(arg0)] = count(); }";
        let looper = program("looper.c");
        let traced = Tracer::new(form).clause(clause).command(&looper, &calls.to_string()).run().complete();
        let rows = table(&traced.results);
        assert_eq!(rows.len(), 1, "{}", traced.results);
        assert_eq!(rows["hello DTrace"], calls as i64);
    }

    /// strlen is an IFUNC in glibc: the calls reach one of its implementations.
    fn strlen_is_probed_where_the_program_goes(form) {
        let mut looper = start_waiting(&program("looper.c"), "1000");
        let pid = looper.pid();
        let clause = "pid$target::strlen:entry,pid$target::strlen:return { trace(vtimestamp); }";
        let tracing = Tracer::new(form).clause(clause).attach(pid);
        looper.go();
        let target = looper.finish().success();
        assert_eq!(said(&target.stdout, "calls"), 1000);
        let traced = tracing.finish().success();
        let all = records(&traced.results);
        let of = |name: &str| all.iter().filter(|(probe, _)| probe.ends_with(name)).count();
        assert!(of(":entry") >= 1000, "{} entries", of(":entry"));
        assert_eq!(of(":entry"), of(":return"));
        // One thread: its processor time never runs backwards, and every entry is followed by its return.
        let mut last = 0;
        for (index, (probe, time)) in all.iter().enumerate() {
            let time: u64 = time.parse().unwrap_or_else(|_| panic!("{probe} recorded {time:?}"));
            assert!(time >= last, "{time} after {last}");
            last = time;
            assert_eq!(probe.ends_with(":entry"), index % 2 == 0, "record {index} is {probe}");
            assert!(probe.starts_with("strlen:"), "{probe}");
        }
    }

    fn all_functions_of_bash(form) {
        let Some(bash) = need_command("all functions of bash", "bash") else { return };
        let mut shell = Command::new(&bash);
        shell.args(["--norc", "-c", "read line; for i in {1..500}; do echo $i; done; echo OK"]);
        let mut shell = Running::start(&mut shell);
        let pid = shell.pid();
        shell.wait_until("reading", |_| is_blocked(pid));
        let clause = "pid$target:bash::entry { @[probefunc] = count(); }";
        let tracing = Tracer::new(form).clause(clause).attach(pid);
        shell.go();
        let target = shell.finish().success();
        let expected: String = (1..=500).map(|i| format!("{i}\n")).chain(["OK\n".to_owned()]).collect();
        assert_eq!(target.stdout, expected);
        let traced = tracing.finish().success();
        assert!(matched(&traced.finished.stderr) >= 1600, "{}", traced.finished.stderr);
        let rows = table(&traced.results);
        // 500 and the last one; the values come in order.
        assert_eq!(rows["echo_builtin"], 501);
        assert!(rows.len() > 50, "{} functions", rows.len());
        let in_order: Vec<i64> = traced
            .results
            .lines()
            .filter_map(|line| line.split_whitespace().nth(1)?.parse().ok())
            .collect();
        assert!(in_order.is_sorted(), "{}", traced.results);
    }

    /// A stock bash on a terminal: stripped, no frame pointers, unwound by .eh_frame.
    fn stacks_of_readline(form) {
        let Some(bash) = need_command("stacks of readline", "bash") else { return };
        let Some(script) = need_command("stacks of readline", "script") else { return };
        // script(1) gives bash a terminal; `exec` makes bash its child, whose id it prints.
        let mut shell = Command::new(script);
        shell.args(["-qec", &format!("exec env PS1='prompt> ' {} --norc --noprofile -i", bash.display()), "/dev/null"]);
        shell.env("TERM", "dumb").env_remove("PROMPT_COMMAND");
        let mut shell = Running::start(&mut shell);
        shell.wait_for("prompt> ");
        shell.write("echo pid-is-$$-\n");
        shell.wait_until("its id", |running| shell_id(&running.stdout()).is_some());
        let pid = shell_id(&shell.stdout()).expect("an id");
        let clause = "pid$target::readline_internal_char:entry { @[ustack()] = count(); }";
        let tracing = Tracer::new(form).clause(clause).attach(pid);
        shell.write("echo six*\"\"seven\n");
        shell.wait_for("six*seven");
        let traced = tracing.interrupt();
        shell.write("exit\n");
        shell.finish().success();
        let all = stacks(&traced.results);
        assert!(!all.is_empty(), "{}", traced.results);
        for (frames, _) in &all {
            let functions: Vec<&str> = frames.iter().map(|frame| function_of(frame)).collect();
            assert_eq!(functions[0], "readline_internal_char", "{frames:?}");
            for wanted in ["readline", "parse_command", "read_command", "reader_loop", "main"] {
                assert!(functions.contains(&wanted), "{wanted} is missing in {frames:#?}");
            }
            assert!(frames[0].starts_with("bash`"), "{frames:?}");
        }
    }

    /// glibc's functions have unwind tables; musl's mostly have none, so a stack ends at one of them.
    fn whole_stacks_through_libc_and_signal_frames(form) {
        let mut left_out = 0;
        for build in [Build::Usual, Build::FixedAddress, Build::Static] {
            let Some(path) = need_program("stacks.c", build) else { left_out += 1; continue };
            let clause = "pid$target:a.out:stack_deepest:entry,pid$target:a.out:stack_leaf:entry { @[ustack()] = count(); }";
            let traced = Tracer::new(form).clause(clause).command(&path, "10").run().complete();
            let all = stacks(&traced.results);
            let of = |top: &str| -> Vec<(Vec<String>, i64)> {
                all.iter().filter(|(frames, _)| function_of(&frames[0]) == top).cloned().collect()
            };
            let count = |all: &[(Vec<String>, i64)]| all.iter().map(|(_, count)| count).sum::<i64>();
            let (deepest, leaf) = (of("stack_deepest"), of("stack_leaf"));
            assert_eq!((count(&deepest), count(&leaf)), (10, 10), "{build:?}: {}", traced.results);
            // The frames are in this order, with libc's own frames between them.
            let order = ["stack_deepest", "stack_handler", "stack_inner", "stack_compare", "stack_outer", "main"];
            for (frames, _) in &deepest {
                let functions: Vec<&str> = frames.iter().map(|frame| function_of(frame)).collect();
                let mine: Vec<&str> = functions.iter().copied().filter(|name| order.contains(name)).collect();
                assert_eq!(mine, order, "{build:?}: {frames:#?}");
            }
            for (frames, _) in &leaf {
                let functions: Vec<&str> = frames.iter().map(|frame| function_of(frame)).collect();
                assert_eq!(functions[1..12], ["stack_recursive"; 11], "{build:?}: {frames:#?}");
                assert_eq!(functions[12], "main", "{build:?}: {frames:#?}");
            }
        }
        assert!(left_out < 3);
    }

    fn a_tick_ends_the_tracing(form) {
        let mut busy = start_waiting(&program("busy.c"), "2");
        busy.go();
        busy.wait_for("working\n");
        let snapshot = Snapshot::take(busy.pid());
        let clause = "pid$target:a.out:busy_work:entry { @ = count(); } profile:::tick-100ms { exit(0); }";
        let traced = Tracer::new(form).clause(clause).process(busy.pid()).run().success();
        assert!(value(&traced.results) > 0);
        snapshot.assert_restored(busy.pid());
        busy.write("stop\n");
        busy.finish().success();
    }
}

/// Whether a process sleeps in a system call, by its state.
fn is_blocked(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let sleeping = stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('S'));
    let syscall = std::fs::read_to_string(format!("/proc/{pid}/syscall")).unwrap_or_default();
    // read(0, ...)
    sleeping && syscall.starts_with("0 0x0 ")
}

fn shell_id(output: &str) -> Option<i32> {
    let (_, rest) = output.rsplit_once("pid-is-")?;
    rest.split_once('-')?.0.parse().ok()
}

#[test]
fn probes_are_listed_without_touching_the_target() {
    let mut looper = start_waiting(&program("looper.c"), "10");
    let listed = Tracer::new(Form::Default)
        .argument("-l")
        .clause("pid$target:libc:str*:entry")
        .process(looper.pid())
        .run()
        .success();
    assert!(!is_patched(looper.pid()));
    let text = format!("{}{}", listed.results, listed.finished.stdout);
    let mut lines = text.lines();
    let header: Vec<&str> = lines.next().expect("a header").split_whitespace().collect();
    assert_eq!(header, ["ID", "PROVIDER", "MODULE", "FUNCTION", "NAME"]);
    let provider = format!("pid{}", looper.pid());
    let mut functions = Vec::new();
    for line in lines.filter(|line| !line.trim().is_empty()) {
        let words: Vec<&str> = line.split_whitespace().collect();
        assert!(words.len() >= 5, "{line}");
        assert!(words[0].parse::<u32>().is_ok(), "{line}");
        assert_eq!(words[1], provider, "{line}");
        assert!(words[2].starts_with("libc"), "{line}");
        assert!(words[3].starts_with("str"), "{line}");
        assert_eq!(words[4], "entry", "{line}");
        functions.push(words[3].to_owned());
    }
    for wanted in ["strlen", "strncpy", "strtok_r", "strdup"] {
        assert!(
            functions.iter().any(|name| name == wanted),
            "{wanted} is not in {functions:?}"
        );
    }
    looper.go();
    looper.finish().success();
}
