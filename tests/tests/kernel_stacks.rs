//! `stack()`: the kernel's stack at samples and switches, of programs that are in known system calls.

use std::process::Command;

use nanoprobe_tests::command::{Running, run};
use nanoprobe_tests::left_out::{has_another_user, is_root_of_the_machine, left_out, need_command};
use nanoprobe_tests::program::program;
use nanoprobe_tests::results::{function_of, said, stacks, table};
use nanoprobe_tests::tracer::{
    Form, Traced, Tracer, assert_nothing_lost, nanoprobe, start_waiting, start_waiting_as, wait_until_tracing,
};

/// The rate of the samples.
const RATE: i64 = 997;
/// What nanoprobe says where the kernel refuses its stacks.
const REFUSAL: &str = "the kernel does not show its stacks";
/// Functions of the kernel that every read() calls. Some kernels have not all of them.
const READ: [&str; 3] = ["__x64_sys_read", "ksys_read", "vfs_read"];

/// Whether the kernel shows its stacks, and their names. If not, reports that the test is left out.
fn shows_stacks() -> bool {
    let names = std::fs::read_to_string("/proc/kallsyms").unwrap_or_default();
    let are_shown = names
        .lines()
        .any(|line| line.ends_with(" vfs_read") && !line.starts_with("0000000000000000"));
    let mut trial = Command::new(nanoprobe());
    trial.args(["-q", "-n", "BEGIN { exit(0); } profile-97 { stack(); }"]);
    let reason = if !is_root_of_the_machine() {
        "they need the machine's root"
    } else if !are_shown {
        "it hides its names here (kptr_restrict)"
    } else if run(&mut trial).stderr.contains(REFUSAL) {
        "perf_event_open is not allowed here"
    } else {
        return true;
    };
    left_out("stacks of the kernel", reason);
    false
}

/// The number in a file of /proc/sys/kernel.
fn setting(name: &str) -> i32 {
    let text = std::fs::read_to_string(format!("/proc/sys/kernel/{name}")).unwrap_or_default();
    text.trim().parse().unwrap_or(0)
}

/// Traces the program while it runs, and returns how long it has worked, in ms.
fn traced(tracer: Tracer, what: &str) -> (Traced, i64) {
    let mut target = start_waiting(&program("in_kernel.c"), what);
    let tracing = tracer.trace(target.pid());
    target.go();
    let worked = said(&target.finish().success().stdout, "worked_ms");
    let traced = tracing.finish().success();
    assert_nothing_told(&traced);
    (traced, worked)
}

/// Nothing was lost, and all names were there.
fn assert_nothing_told(traced: &Traced) {
    let stderr = &traced.finished.stderr;
    assert_nothing_lost(stderr);
    assert!(
        !stderr.contains("lost") && !stderr.contains("the kernel hides"),
        "{stderr}"
    );
}

/// How many of the stacks have one of these functions.
fn with_any(stacks: &[(Vec<String>, i64)], functions: &[&str]) -> i64 {
    let has = |frames: &[String]| frames.iter().any(|frame| functions.contains(&function_of(frame)));
    let found = stacks.iter().filter(|(frames, _)| has(frames));
    found.map(|(_, count)| count).sum()
}

/// Samples of a program that reads are in the functions of that call, as many as its own clock says.
fn assert_reading(results: &str, worked: i64) {
    let found = stacks(results);
    let all: i64 = found.iter().map(|(_, count)| count).sum();
    let reading = with_any(&found, &READ);
    assert!(reading * 10 >= all * 9, "{reading} of {all}: {results}");
    let percent = reading * 100 * 1000 / (RATE * worked.max(1));
    assert!((55..=115).contains(&percent), "{reading} samples in {worked} ms");
    for (frames, _) in &found {
        assert!(
            frames.iter().all(|frame| frame.contains('`')),
            "a frame without a name: {frames:?}"
        );
    }
}

#[test]
fn samples_of_a_process_have_the_kernels_stack() {
    if !shows_stacks() {
        return;
    }
    let clause = "profile-997 /pid == $target && arg0/ { @[stack()] = count(); }";
    let tracer = Tracer::new(Form::Default).argument("-q").clause(clause);
    let (traced, worked) = traced(tracer, "reads 700");
    assert_reading(&traced.results, worked);
}

#[test]
fn samples_of_the_whole_system_have_the_kernels_stack() {
    if !shows_stacks() {
        return;
    }
    let mut target = start_waiting(&program("in_kernel.c"), "reads 700");
    let clause = format!(
        "profile-997 /pid == {} && arg0/ {{ @[stack()] = count(); }}",
        target.pid()
    );
    let mut tracing = Tracer::new(Form::Default).argument("-qv").clause(&clause).start();
    wait_until_tracing(&mut tracing.running);
    target.go();
    let worked = said(&target.finish().success().stdout, "worked_ms");
    let traced = tracing.interrupt();
    assert_nothing_told(&traced);
    assert_reading(&traced.results, worked);
}

/// A program that makes no call is interrupted in its own code, where the kernel has no stack.
#[test]
fn a_sample_in_the_program_has_no_stack_of_the_kernel() {
    if !shows_stacks() {
        return;
    }
    let clause = "profile-997 /pid == $target && arg1/ { @[stack()] = count(); @all = count(); }
                  END { printa(\"%k end %@d\\n\", @); printa(\"all %@d\\n\", @all); }";
    let tracer = Tracer::new(Form::Default).argument("-q").clause(clause);
    let (traced, _) = traced(tracer, "computes 300");
    assert!(!traced.results.contains('`'), "{}", traced.results);
    assert!(said(&traced.results, "all") > 100, "{}", traced.results);
}

/// One stack with both: the kernel's frames lie on top of those of the function that has made the call.
#[test]
fn a_flame_graph_has_the_kernels_frames_on_top() {
    if !shows_stacks() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let (folded, picture) = (folder.path().join("folded"), folder.path().join("picture.svg"));
    let clause = "profile-997 /pid == $target && arg0/ { @[stack(), ustack()] = count(); }";
    let mut tracer = Tracer::new(Form::Default).argument("-q");
    for (flag, path) in [("--folded", &folded), ("--flamegraph", &picture)] {
        tracer = tracer.argument(flag).argument(path.as_os_str());
    }
    let (traced, _) = traced(tracer.clause(clause), "reads 500");
    let text = std::fs::read_to_string(&folded).expect("folded stacks");
    let (mut whole, mut all) = (0, 0);
    for line in text.lines() {
        let (frames, count) = line.rsplit_once(' ').expect(line);
        let count: i64 = count.parse().expect(line);
        let is_kernels = |frame: &&str| frame.starts_with("kernel`");
        let frames: Vec<&str> = frames.split(';').collect();
        let first = frames.iter().position(is_kernels).expect(line);
        let (below, above) = frames.split_at(first);
        assert!(above.iter().all(is_kernels), "{line}");
        all += count;
        let reads = above.iter().any(|frame| READ.contains(&function_of(frame)));
        if reads && below.contains(&"in_kernel`reads") && below.contains(&"in_kernel`main") {
            whole += count;
        }
    }
    assert!(all > 100 && whole * 10 >= all * 9, "{whole} of {all}: {text}");
    let picture = std::fs::read_to_string(&picture).expect("a picture");
    assert!(picture.contains("kernel`vfs_read"), "{}", traced.finished.stderr);
}

/// The text between two lines that the END clause prints.
fn part<'t>(text: &'t str, from: &str, to: &str) -> &'t str {
    let (_, rest) = text.split_once(from).unwrap_or_else(|| panic!("no {from} in {text}"));
    rest.split_once(to).map_or(rest, |(part, _)| part)
}

/// A thread sleeps in schedule(), called by the function of its call, and comes back there.
#[test]
fn a_sleep_has_the_kernels_stack() {
    const NAPS: i64 = 20;
    if !shows_stacks() {
        return;
    }
    let clause = "sched:::off-cpu /arg0 == 0/ { @off[stack()] = count(); self->sleeps = 1; }
                  sched:::on-cpu /self->sleeps/ { @on[stack()] = count(); self->sleeps = 0; }
                  END { printf(\"off-cpu\\n\"); printa(@off); printf(\"on-cpu\\n\"); printa(@on); }";
    let tracer = Tracer::new(Form::Default).argument("-q").clause(clause);
    let (traced, _) = traced(tracer, &format!("naps {NAPS}"));
    let napping = |text: &str| {
        let is_nap = |frames: &[String]| frames.iter().any(|frame| function_of(frame).contains("nanosleep"));
        let naps: Vec<_> = stacks(text).into_iter().filter(|(frames, _)| is_nap(frames)).collect();
        let all: i64 = naps.iter().map(|(_, count)| count).sum();
        assert_eq!(
            with_any(&naps, &["schedule"]),
            all,
            "each of them is in schedule(): {text}"
        );
        all
    };
    let off = napping(part(&traced.results, "off-cpu\n", "on-cpu\n"));
    let on = napping(part(&traced.results, "on-cpu\n", "no more"));
    assert!(off >= NAPS, "{off} naps: {}", traced.results);
    assert_eq!(on, off, "{}", traced.results);
}

/// A timer ends a nap: the kernel's stack of the interrupt says so.
#[test]
fn a_waking_has_the_stack_of_the_interrupt() {
    if !shows_stacks() {
        return;
    }
    let clause = "sched:::wakeup /execname == \"<interrupt>\"/ { @[stack()] = count(); }";
    let tracer = Tracer::new(Form::Default).argument("-q").clause(clause);
    let (traced, _) = traced(tracer, "naps 50");
    let found = stacks(&traced.results);
    let all: i64 = found.iter().map(|(_, count)| count).sum();
    if all == 0 {
        return left_out("stacks of interrupts that wake threads", "the kernel shows none here");
    }
    let is_timer = |frames: &[String]| frames.iter().any(|frame| function_of(frame).contains("hrtimer"));
    let timers: i64 = found
        .iter()
        .filter(|(frames, _)| is_timer(frames))
        .map(|(_, count)| count)
        .sum();
    assert!(timers * 2 > all, "{timers} of {all}: {}", traced.results);
}

/// The number in `stack(2)`, or the option, limits the frames; in the default output of the action, too.
#[test]
fn a_stack_has_at_most_the_frames_that_are_asked_for() {
    if !shows_stacks() {
        return;
    }
    let clause = "profile-997 /pid == $target && arg0/ { @two[stack(2)] = count(); @three[stack()] = count(); }
                  profile-997 /pid == $target && arg0 && !done/ { stack(4); done = 1; }
                  END { printf(\"two\\n\"); printa(@two); printf(\"three\\n\"); printa(@three); }";
    let tracer = Tracer::new(Form::Default)
        .argument("-q")
        .argument("-x")
        .argument("stackframes=3");
    let (traced, _) = traced(tracer.clause(clause), "reads 300");
    let text = &traced.results;
    let (action, _) = text.split_once("two\n").expect("the action's stack comes first");
    let frames = action
        .lines()
        .filter(|line| line.starts_with("              kernel`"))
        .count();
    assert!((1..=4).contains(&frames), "{action}");
    for (part, most) in [
        (part(text, "two\n", "three\n"), 2),
        (part(text, "three\n", "no more"), 3),
    ] {
        let lengths: Vec<usize> = stacks(part).iter().map(|(frames, _)| frames.len()).collect();
        assert_eq!(lengths.iter().max(), Some(&most), "{part}");
    }
}

/// In JSON each frame has its address and its name.
#[test]
fn json_has_the_frames_of_the_kernel() {
    if !shows_stacks() {
        return;
    }
    let traced = Tracer::new(Form::Default)
        .argument("--json")
        .clause("profile-997 /pid == $target && arg0/ { stack(2); @[stack(1)] = count(); n++; }")
        .clause("profile-997 /n == 20/ { exit(0); }")
        .command(&program("in_kernel.c"), "reads 2000")
        .run()
        .success();
    let text = &traced.results;
    let record = text
        .lines()
        .find(|line| line.contains("\"action\":\"stack\""))
        .expect(text);
    let frame = "{\"address\":18446";
    assert!((1..=2).contains(&record.matches(frame).count()), "{record}");
    assert!(record.contains("\"symbol\":\"kernel`"), "{record}");
    let row = text
        .lines()
        .find(|line| line.contains("\"function\":\"count\""))
        .expect(text);
    assert!(row.contains("\"key\":[[{\"address\":18446"), "{row}");
}

/// `func()` names the kernel's function at `arg0`, and all of its addresses are one key.
#[test]
fn an_address_of_the_kernel_has_a_name() {
    if !shows_stacks() {
        return;
    }
    let clause = "profile-997 /pid == $target && arg0/ { @[func(arg0)] = count(); @modules[mod(arg0)] = count(); }
                  END { printa(@); printf(\"modules\\n\"); printa(@modules); }";
    let tracer = Tracer::new(Form::Default).argument("-q").clause(clause);
    let (traced, _) = traced(tracer, "reads 300");
    let (functions, modules) = traced.results.split_once("modules\n").expect("two tables");
    let (functions, modules) = (table(functions), table(modules));
    assert!(
        functions.keys().all(|name| name.starts_with("kernel`")),
        "{functions:?}"
    );
    assert_eq!(
        modules.get("kernel"),
        Some(&functions.values().sum::<i64>()),
        "{modules:?}"
    );
}

/// Where the kernel hides its addresses from us, stacks have theirs, and a message says why.
#[test]
fn hidden_names_are_told_and_stacks_show_addresses() {
    if !shows_stacks() {
        return;
    }
    let Some(setpriv) = need_command("stacks without names", "setpriv") else {
        return;
    };
    if setting("perf_event_paranoid") <= 1 {
        return left_out("stacks without names", "perf_event_paranoid shows names to anybody");
    }
    let mut target = start_waiting(&program("in_kernel.c"), "reads 300");
    let setpriv = setpriv.to_string_lossy();
    let tracing = Tracer::new(Form::Default)
        .argument("-q")
        .clause("profile-997 /pid == $target && arg0/ { @[stack()] = count(); }")
        .clause("profile-97 /pid == $target && arg0/ { @[stack()] = count(); }")
        .under(&[&setpriv, "--bounding-set", "-syslog"])
        .trace(target.pid());
    target.go();
    target.finish().success();
    let traced = tracing.finish().success();
    let stderr = &traced.finished.stderr;
    assert_eq!(
        stderr.matches("the kernel hides where its functions lie").count(),
        1,
        "{stderr}"
    );
    let found = stacks(&traced.results);
    assert!(!found.is_empty(), "{}", traced.results);
    for (frames, _) in found {
        assert!(frames.iter().all(|frame| frame.starts_with("0xffff")), "{frames:?}");
    }
}

/// A user with CAP_PERFMON sees stacks of its own processes; the names need CAP_SYSLOG, too.
#[test]
fn a_user_with_the_rights_sees_stacks() {
    /// The number of CAP_PERFMON.
    const PERFMON: i32 = 38;
    if !shows_stacks() {
        return;
    }
    let Some(setpriv) = need_command("stacks for a user with the rights", "setpriv") else {
        return;
    };
    if !has_another_user() || setting("cap_last_cap") < PERFMON {
        return left_out(
            "stacks for a user with the rights",
            "there is no other user, or no CAP_PERFMON",
        );
    }
    let mut target = start_waiting_as(&program("in_kernel.c"), "reads 300", true);
    let (setpriv, rights) = (setpriv.to_string_lossy(), "+perfmon,+syslog");
    let user = ["--reuid", "65534", "--regid", "65534", "--clear-groups"];
    let given = ["--inh-caps", rights, "--ambient-caps", rights];
    let tracing = Tracer::new(Form::Default)
        .argument("-q")
        .clause("profile-997 /pid == $target && arg0/ { @[stack()] = count(); }")
        .under(&[&[&*setpriv], &user[..], &given[..]].concat())
        .trace(target.pid());
    target.go();
    let worked = said(&target.finish().success().stdout, "worked_ms");
    let traced = tracing.finish().success();
    assert_nothing_told(&traced);
    assert_reading(&traced.results, worked);
}

fn refused(tracer: Tracer) {
    let finished = tracer.as_ordinary_user().run().finished;
    assert_eq!(finished.status.code(), Some(1), "{}", finished.stderr);
    let stderr = &finished.stderr;
    for part in [REFUSAL, "CAP_PERFMON", "perf_event_paranoid"] {
        assert!(stderr.contains(part), "{part}: {stderr}");
    }
}

/// Without the right, nothing is traced, and the message says what to do.
#[test]
fn a_user_is_told_why_not() {
    if !has_another_user() {
        return left_out("a refused stack()", "there is no other user");
    }
    if setting("perf_event_paranoid") <= 1 {
        return left_out(
            "a refused stack()",
            "perf_event_paranoid lets anybody see the kernel's stacks",
        );
    }
    let mut target: Running = start_waiting_as(&program("in_kernel.c"), "naps 1", true);
    let tracer = |clause: &str| Tracer::new(Form::Default).argument("-q").clause(clause);
    refused(tracer("profile-97 { @[stack()] = count(); }").process(target.pid()));
    refused(tracer("sched:::off-cpu { stack(); }").process(target.pid()));
    refused(tracer("profile-97 { @[execname, stack(3)] = count(); }"));
    target.go();
    target.finish().success();
}
