//! Return probes that replace the return address (`-x return=address`), with calls that end in
//! every possible way.
//!
//! Each call that was entered has returned, or is counted as missed, or was still in progress when the addresses were
//! restored. So `entry = return + missed + restored`, exactly.

use std::process::Command;

use nanoprobe_tests::command::{Running, run};
use nanoprobe_tests::left_out::{left_out, need_command};
use nanoprobe_tests::live_tests;
use nanoprobe_tests::program::program;
use nanoprobe_tests::results::{said, table};
use nanoprobe_tests::text::Snapshot;
use nanoprobe_tests::tracer::{Form, Tracer, Tracing, nanoprobe, start_waiting};
use nix::sys::signal::Signal;

use crate::without_messages;

const CALLS: &str = "pid$target:a.out:call_*:entry,pid$target:a.out:call_*:return { @[probename] = count(); }";

/// The outcome of the calls of a run.
#[derive(Debug, PartialEq, Eq)]
struct Calls {
    entered: i64,
    returned: i64,
    missed: i64,
    put_back: i64,
    /// The number of returns that the program reports.
    really_returned: i64,
}

fn tracer(form: Form) -> Tracer {
    Tracer::new(form)
        .argument("-v")
        .argument("-x")
        .argument("return=address")
}

/// Attaches, and waits for the last step, in which all unwinders are hooked and addresses are being replaced.
fn attach(tracer: Tracer, pid: i32) -> Tracing {
    let mut tracing = tracer.start_on(pid);
    tracing
        .running
        .wait_until("attaching", |tracer| tracer.stderr().contains("nanoprobe: attach "));
    tracing
}

/// The sum of the numbers before a text.
fn sum_in_front_of(text: &str, sign: &str) -> i64 {
    let lines = text.lines().filter_map(|line| line.split_once(sign));
    lines
        .filter_map(|(before, _)| before.rsplit(' ').next()?.parse::<i64>().ok())
        .sum()
}

fn ended(mut target: Running, tracing: Tracing) -> Calls {
    target.wait_for("done\n");
    let stdout = target.stdout();
    let traced = tracing.interrupt().success();
    target.go();
    let finished = target.finish().success();
    assert!(finished.stdout.ends_with("OK\n"), "{}", finished.stdout);
    let rows = table(&traced.results);
    let count = |name: &str| rows.get(name).copied().unwrap_or(0);
    let calls = Calls {
        entered: count("entry"),
        returned: count("return"),
        missed: sum_in_front_of(&traced.finished.stderr, " returns missed"),
        put_back: sum_in_front_of(&traced.finished.stderr, " return addresses"),
        really_returned: said(&stdout, "returned"),
    };
    assert_eq!(calls.entered, said(&stdout, "called"), "{calls:?}");
    assert_eq!(
        calls.entered,
        calls.returned + calls.missed + calls.put_back,
        "{calls:?}"
    );
    assert!(calls.returned <= calls.really_returned, "{calls:?}");
    calls
}

/// Attaches to `calls.c` before its first call, and detaches after its last.
fn traced(form: Form, arguments: &str, options: &[&str]) -> Calls {
    let mut target = start_waiting(&program("calls.c"), arguments);
    let mut tracer = tracer(form);
    for option in options {
        tracer = tracer.argument("-x").argument(*option);
    }
    let tracing = attach(tracer.clause(CALLS), target.pid());
    target.go();
    ended(target, tracing)
}

live_tests! {
    fn recursion_within_the_limit_is_seen(form) {
        let calls = traced(form, &format!("deep {}", form.scale(3000, 300)), &[]);
        assert_eq!(calls.returned, calls.really_returned);
    }

    /// The outermost calls get the instances; the deeper ones are counted as missed.
    fn recursion_beyond_the_limit_is_missed_exactly(form) {
        let calls = traced(form, "deep 250", &["maxactive=100"]);
        assert_eq!(calls, Calls { entered: 2510, returned: 1000, missed: 1510, put_back: 0, really_returned: 2510 });
    }

    fn calls_left_by_longjmp_are_recycled(form) {
        let calls = traced(form, &format!("jump {}", form.scale(2000, 200)), &["maxactive=128"]);
        assert_eq!(calls.returned, calls.really_returned);
        assert!(calls.missed > 0);
    }

    /// pthread_exit and cancellation unwind through the calls, by a library that is loaded for this.
    fn threads_end_inside(form) {
        let calls = traced(form, "ends 60", &[]);
        assert_eq!((calls.returned, calls.missed + calls.put_back), (0, 600));
    }

    fn signals_on_another_stack(form) {
        let calls = traced(form, "signals 60", &["maxactive=64"]);
        assert_eq!(calls.returned, calls.really_returned);
    }

    fn a_child_returns_through_its_parents_calls(form) {
        let calls = traced(form, "forks 20", &[]);
        assert_eq!(calls.returned, calls.really_returned);
        assert_eq!(calls.missed, 0);
    }

    fn a_child_unwinds_its_parents_calls(form) {
        let calls = traced(form, "fork_ends 10", &[]);
        assert_eq!(calls.returned, calls.really_returned);
    }

    fn coroutines_interleave(form) {
        let calls = traced(form, "coroutines 20", &[]);
        assert_eq!(calls.returned, calls.really_returned);
        assert_eq!(calls.missed, 0);
    }

    /// A call that began in one thread returns in another.
    fn coroutines_migrate(form) {
        let calls = traced(form, "migrations 20", &[]);
        assert_eq!(calls.returned, calls.really_returned);
        assert_eq!(calls.missed, 0);
    }

    fn a_backtrace_sees_the_real_addresses(form) {
        let right = run(Command::new(program("calls.c")).args(["trace", "20"])).success();
        let clause = CALLS;
        let traced = tracer(form).clause(clause).command(&program("calls.c"), "trace 20").run().success();
        assert_eq!(without_messages(&traced.finished.stdout), right.stdout);
        let calls = self::traced(form, "trace 20", &[]);
        assert_eq!(calls.entered, 200);
    }

    fn exceptions_pass_through(form) {
        let arguments = form.scale(1000, 50).to_string();
        let right = run(Command::new(program("exceptions.cpp")).arg(&arguments)).success();
        let clause = "pid$target:a.out::entry,pid$target:a.out::return { @[probefunc, probename] = count(); }";
        let traced = tracer(form).clause(clause).command(&program("exceptions.cpp"), &arguments).run().success();
        assert_eq!(without_messages(&traced.finished.stdout), right.stdout);
        let rows = table(&traced.results);
        assert_eq!(rows["frame_outer entry"], said(&right.stdout, "outer_entries"));
        assert_eq!(rows["frame_bottom entry"], said(&right.stdout, "bottom_entries"));
        // Returns of functions through which no exception passes are seen.
        assert_eq!(rows["frame_bottom return"], said(&right.stdout, "bottom_returns"));
    }

    /// Both forms see the same calls with the same values, except tail calls: a function that makes
    /// one returns the callee's value.
    fn both_forms_agree(form) {
        let names = ["plain", "switched", "with_cold_part", "recursive", "returns_nothing", "ten_arguments", "variadic"];
        let probes: Vec<String> = names.iter().map(|name| format!("pid$target:a.out:{name}:return")).collect();
        let clause = format!("{} {{ @[probefunc] = count(); @s[probefunc, \"sum\"] = sum(arg1); }}", probes.join(","));
        let of = |option: &str| {
            let traced = Tracer::new(form)
                .argument("-x").argument(option)
                .clause(&clause).command(&program("tails.c"), "50").run().complete();
            table(&traced.results)
        };
        let (exits, address) = (of("return=exits"), of("return=address"));
        assert_eq!(exits["plain"], address["plain"]);
        assert!(exits["plain"] > 0);
        for name in names.iter().filter(|name| **name != "returns_nothing") {
            assert_eq!(exits[*name], address[*name], "{name}");
            assert_eq!(exits[&format!("{name} sum")], address[&format!("{name} sum")], "{name}");
        }
    }

    /// In a program that calls all the time, no call is counted before its return can be seen.
    fn attaching_to_a_busy_program_misses_no_return(form) {
        let mut busy = start_waiting(&program("busy.c"), "2");
        busy.go();
        busy.wait_for("working\n");
        for _ in 0..3 {
            let clause = "pid$target:a.out:busy_work:entry,pid$target:a.out:busy_work:return { @[probename] = count(); }";
            let tracing = attach(tracer(form).clause(clause), busy.pid());
            busy.wait_until_worked(std::time::Duration::from_millis(50));
            let traced = tracing.interrupt().success();
            let rows = table(&traced.results);
            assert_eq!(sum_in_front_of(&traced.finished.stderr, " returns missed"), 0, "{}", traced.finished.stderr);
            // Two threads, each in one call at most.
            assert!(rows["entry"] > 100 && (0..=2).contains(&(rows["entry"] - rows["return"])), "{rows:?}");
        }
        busy.write("stop\n");
        busy.finish().success();
    }

    /// A thousand calls are in progress when the tracer ends; they return to their callers.
    fn detaching_restores_outstanding_return_addresses(form) {
        let mut target = start_waiting(&program("calls.c"), "wait 1000");
        let snapshot = Snapshot::take(target.pid());
        let tracing = attach(tracer(form).clause(CALLS), target.pid());
        target.go();
        target.wait_for("inside\n");
        let traced = tracing.interrupt().success();
        assert_eq!(sum_in_front_of(&traced.finished.stderr, " return addresses"), 1000);
        assert_eq!(table(&traced.results)["entry"], 1000);
        snapshot.assert_restored(target.pid());
        target.go();
        target.wait_for("done\n");
        target.go();
        let finished = target.finish().success();
        assert_eq!(said(&finished.stdout, "returned"), 1000);
    }

    /// The tracer is killed while a thousand calls are in progress: they return without it, or
    /// `restore` restores their addresses.
    fn a_killed_tracer_leaves_calls_that_return(form) {
        for restores in [false, true] {
            let mut target = start_waiting(&program("calls.c"), "wait 1000");
            let snapshot = Snapshot::take(target.pid());
            let tracing = attach(tracer(form).clause(CALLS), target.pid());
            target.go();
            target.wait_for("inside\n");
            tracing.running.signal(Signal::SIGKILL);
            drop(tracing);
            let restore = |target: &Running| {
                run(Command::new(nanoprobe()).args(["restore", &target.pid().to_string()])).success();
                snapshot.assert_restored(target.pid());
            };
            if restores {
                restore(&target);
            }
            target.go();
            target.wait_for("done\n");
            if !restores {
                restore(&target);
            }
            target.go();
            let finished = target.finish().success();
            assert_eq!(said(&finished.stdout, "returned"), 1000);
        }
    }

    /// All functions of all modules of a shell that forks, traps signals and recurses, and of an interpreter with
    /// threads, exceptions and loaded libraries. Their output is that of the unprobed run.
    fn real_programs_notice_nothing(form) {
        if form == Form::Trap {
            return left_out("real programs by their return addresses, by traps", "each return would take a signal, and minutes");
        }
        const SHELL: &str = "f() { local n=$1; if [ $n -gt 0 ]; then f $((n-1)); else echo bottom; fi; }; f 30
            trap 'echo signal' USR1; kill -USR1 $$; (exit 3); echo $?; declare -A m; for k in a b c; do m[$k]=$k$k; done
            echo ${m[@]}; for i in 1 2 3 4 5; do x=$x$(printf %d $i); done; echo $x | while read y; do echo $y; done";
        const PYTHON: &str = "import threading,json,sys
def f(n): return n if n<2 else f(n-1)+f(n-2)
r=[f(12),json.dumps({str(i):i for i in range(50)})]
t=[threading.Thread(target=lambda:r.append(f(8))) for _ in range(4)]
[x.start() for x in t];[x.join() for x in t]
try: 1/0
except Exception as e: r.append(str(e))
import decimal; r.append(str(decimal.Decimal(2).sqrt()))
print(r)";
        let folder = tempfile::tempdir().expect("a folder");
        for (interpreter, text) in [("bash", SHELL), ("python3", PYTHON)] {
            let Some(path) = need_command("every function by its return address", interpreter) else { continue };
            let script = folder.path().join(interpreter);
            std::fs::write(&script, text).expect("writing the script");
            let right = run(Command::new(&path).arg(&script)).success();
            let clause = "pid$target:::return { @[\"returns\"] = count(); }";
            let arguments = script.display().to_string();
            let traced = tracer(form).clause(clause).command(&path, &arguments).run().success();
            assert_eq!(without_messages(&traced.finished.stdout), right.stdout, "{interpreter}");
            assert!(table(&traced.results)["returns"] > 1000, "{}", traced.results);
        }
    }
}
