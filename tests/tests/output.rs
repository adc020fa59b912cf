//! The command's output and exit status are those of dtrace(1).
//!
//! Blanks at the ends of lines do not matter here; everything else in the expected texts is exact.

use std::process::Command;

use nanoprobe_tests::command::{Finished, run};
use nanoprobe_tests::live_tests;
use nanoprobe_tests::program::{copy_program, program};
use nanoprobe_tests::results::{records, values};
use nanoprobe_tests::tracer::{Form, Tracer, nanoprobe, start_waiting};

fn command(arguments: &[&str]) -> Finished {
    run(Command::new(nanoprobe()).args(arguments))
}

fn trimmed(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    lines.join("\n").trim_matches('\n').to_owned()
}

/// The output of `-q -n CLAUSE` for numbers.c.
#[track_caller]
fn about_numbers(form: Form, clause: &str) -> String {
    let traced = Tracer::new(form)
        .argument("-q")
        .clause(clause)
        .command(&program("numbers.c"), "")
        .run()
        .complete();
    trimmed(&traced.results)
}

const NUMBERED: &str = "pid$target:a.out:numbered:entry";

live_tests! {
    fn aggregating_functions(form) {
        for (function, right) in [
            ("count()", 69),
            ("sum(arg0)", 2070),
            ("min(arg0)", -4),
            ("max(arg0)", 64),
            ("avg(arg0)", 30),
            // The standard deviation of the whole population: sqrt((69^2 - 1) / 12) = 19.9...
            ("stddev(arg0)", 19),
            ("sum((int)arg2)", -2070),
            ("max(arg3 & 0xff)", 255),
        ] {
            let found = about_numbers(form, &format!("{NUMBERED} {{ @ = {function}; }}"));
            assert_eq!(values(&found), [right], "{function}: {found}");
        }
    }

    /// Several clauses fire at one entry, or at one return, and make one level of indentation. So the level of an entry
    /// depends on the record before it, and the level of a return on the record after it.
    fn several_clauses_at_a_return_close_one_level(form) {
        let clause = "pid$target:a.out:stack_outer:entry,pid$target:a.out:stack_compare:entry { trace(1); }
                      pid$target:a.out:stack_outer:entry { trace(2); }
                      pid$target:a.out:stack_outer:return,pid$target:a.out:stack_compare:return { trace(3); }
                      pid$target:a.out:stack_outer:return { trace(4); }";
        let tracer = Tracer::new(form).argument("-F").clause(clause);
        let traced = tracer.command(&program("stacks.c"), "2").run().complete();
        // The column of the CPU is left out, because the machine may have several.
        let lines = traced.results.lines().filter_map(|line| line.get(3..)).map(str::trim_end);
        let lines: Vec<&str> = lines.filter(|line| line.contains("stack_")).collect();
        let one_call = [
            ("  -> stack_outer", 1),
            ("   | stack_outer:entry", 2),
            ("    -> stack_compare", 1),
            ("    <- stack_compare", 3),
            ("   | stack_outer:return", 3),
            ("  <- stack_outer", 4),
        ];
        let right: Vec<String> = one_call.map(|(text, value)| format!("{text:<42}{value:>12}")).into();
        assert_eq!(lines, [&right[..], &right[..]].concat(), "{}", traced.results);
    }

    fn quantize_is_drawn(form) {
        let found = about_numbers(form, &format!("{NUMBERED} {{ @ = quantize(arg0); }}"));
        let right = "
           value  ------------- Distribution ------------- count
              -8 |                                         0
              -4 |@                                        1
              -2 |@                                        2
              -1 |@                                        1
               0 |@                                        1
               1 |@                                        1
               2 |@                                        2
               4 |@@                                       4
               8 |@@@@@                                    8
              16 |@@@@@@@@@                                16
              32 |@@@@@@@@@@@@@@@@@@@                      32
              64 |@                                        1
             128 |                                         0";
        assert_eq!(found, right.trim_matches('\n'));
    }

    fn lquantize_is_drawn(form) {
        let found = about_numbers(form, &format!("{NUMBERED} {{ @ = lquantize(arg0, 0, 60, 20); }}"));
        let right = "
           value  ------------- Distribution ------------- count
             < 0 |@@                                       4
               0 |@@@@@@@@@@@@                             20
              20 |@@@@@@@@@@@@                             20
              40 |@@@@@@@@@@@@                             20
           >= 60 |@@@                                      5";
        assert_eq!(found, right.trim_matches('\n'));
    }

    /// In a static slot and under a key: the minimum of growing values grows with every clear().
    fn extremes_begin_anew_when_they_are_cleared(form) {
        let looper = start_waiting(&program("looper.c"), "100000000");
        let clause = "BEGIN { n = 1; }
            pid$target:a.out:func:entry { @slot = min(n); @keyed[tid] = min(n); n++; }
            tick-100ms { printa(\"slot %@d\\n\", @slot); printa(\"keyed %d %@d\\n\", @keyed); clear(@slot); clear(@keyed); }
            tick-100ms /n != last/ { last = n; ticks++; }
            tick-100ms /ticks > 10/ { exit(0); }";
        let tracing = Tracer::new(form).argument("-q").clause(clause).attach(looper.pid());
        let mut looper = looper;
        looper.go();
        let traced = tracing.finish().success();
        for name in ["slot", "keyed"] {
            let lines = traced.results.lines().filter(|line| line.starts_with(name));
            let found: Vec<i64> = lines.filter_map(|line| line.split(' ').next_back()?.parse().ok()).collect();
            // 0 means that no value came in that tenth of a second.
            let found: Vec<i64> = found.into_iter().filter(|value| *value != 0).collect();
            assert!(found.len() >= 2, "{}", traced.results);
            assert!(found.is_sorted_by(|left, right| left < right), "{name}: {found:?}");
        }
    }

    fn keys_are_in_order_of_value(form) {
        let found = about_numbers(form, &format!("{NUMBERED} /arg0 > 0/ {{ @[copyinstr(arg1), arg0 > 60] = sum(arg0 > 60 ? 1000 : 1); }}"));
        let rows: Vec<Vec<&str>> = found.lines().map(|line| line.split_whitespace().collect()).collect();
        // 1..60: twenty of each; 61, 62, 63, 64: (i + 6) % 3 is 1, 2, 0, 1.
        assert_eq!(rows.len(), 6, "{found}");
        assert!(rows[..3].iter().all(|row| row[1..] == ["0", "20"]), "{found}");
        assert!(rows[3..5].iter().all(|row| row[1..] == ["1", "1000"]), "{found}");
        assert_eq!(rows[5], ["green", "1", "2000"], "{found}");
    }

    fn the_default_columns(form) {
        let clause = format!("{NUMBERED} /arg0 > 61/ {{ trace(arg0); }} {NUMBERED} /arg0 == 64/ {{ trace(copyinstr(arg1)); }}");
        let traced = Tracer::new(form).clause(&clause).command(&program("numbers.c"), "").run().complete();
        let header = traced.results.lines().next().expect("a header");
        assert_eq!(header, "CPU     ID                    FUNCTION:NAME", "{}", traced.results);
        let all: Vec<(String, String)> = records(&traced.results);
        let right = ["62", "63", "64", "green"].map(|value| ("numbered:entry".to_owned(), value.to_owned()));
        assert_eq!(all, right);
    }

    fn printf_converts_as_dtrace(form) {
        let clause = format!(
            "{NUMBERED} /arg0 == -3 || arg0 == 62/
             {{ printf(\"%d|%5d|%-5d|%05d|%x|%#x|%X|%o|%u|%s|%10s|%-8s|%c|%%|%hd|%i|%+d|%lld\\n\", arg0, arg0, arg0, arg0,
                       (int)arg0, 255, 255, 8, (unsigned char)arg0, copyinstr(arg1), copyinstr(arg1), probefunc, 65,
                       (short)arg0, (int)arg2, 5, arg0); }}"
        );
        let found = about_numbers(form, &clause);
        let right = "-3|   -3|-3   |-0003|fffffffd|0xff|FF|10|253|red|       red|numbered|A|%|-3|3|+5|-3
62|   62|62   |00062|3e|0xff|FF|10|62|blue|      blue|numbered|A|%|62|-62|+5|62";
        assert_eq!(found, right);
    }

    fn printa_and_normalize(form) {
        let clause = format!(
            "{NUMBERED} {{ @n[copyinstr(arg1)] = count(); @all = sum(arg0); }}
             END {{ printa(\"%s has %@d\\n\", @n); normalize(@all, 10); printa(\"tenth %@d\\n\", @all); }}"
        );
        let found = about_numbers(form, &clause);
        let mut lines: Vec<&str> = found.lines().collect();
        lines.sort_unstable();
        assert_eq!(lines, ["blue has 23", "green has 23", "red has 23", "tenth 207"]);
    }

    fn variables_and_begin_and_end(form) {
        let clause = format!(
            "BEGIN {{ total = 100; printf(\"begin\\n\"); }}
             {NUMBERED} {{ self->last = arg0; this->square = arg0 * arg0; total += this->square; seen[copyinstr(arg1)]++; }}
             {NUMBERED} /self->last == 64/ {{ printf(\"%d %d %d\\n\", total, seen[\"red\"], seen[\"none\"]); }}
             END {{ printf(\"end %s\\n\", seen[\"blue\"] == 23 ? \"right\" : \"wrong\"); }}"
        );
        let squares: i64 = (-4..=64).map(|i| i * i).sum();
        let found = about_numbers(form, &clause);
        assert_eq!(found, format!("begin\n{} 23 0\nend right", squares + 100));
    }

    fn the_arguments_and_environment_of_the_start(form) {
        let clause = "BEGIN, pid$target:a.out:main:entry
                      {
                          this->argv = (uintptr_t *)copyin(curpsinfo->pr_argv, 8 * curpsinfo->pr_argc);
                          this->end = *(uintptr_t *)copyin(curpsinfo->pr_envp - 8, 8);
                          printf(\"%d %s %s %d\\n\", curpsinfo->pr_argc, basename(copyinstr(this->argv[0])),
                              copyinstr(this->argv[2]), this->end);
                      }
                      pid$target:a.out:main:entry /arg0 == curpsinfo->pr_argc && arg1 == curpsinfo->pr_argv/
                      { printf(\"%d\\n\", arg2 == curpsinfo->pr_envp); }";
        let tracer = Tracer::new(form).argument("-q").clause(clause);
        let traced = tracer.command(&program("numbers.c"), "one two").run().complete();
        let once = "3 numbers two 0";
        assert_eq!(trimmed(&traced.results), format!("{once}\n{once}\n1"));
    }

    fn macro_arguments(form) {
        let clause = "pid$target:a.out:numbered:entry /arg0 == $1/ { printf(\"%s %d %d\\n\", $$2, $target == pid, arg0); }";
        let tracer = Tracer::new(form).argument("-q").clause(clause).command(&program("numbers.c"), "");
        let traced = tracer.argument("17").argument("word").run().complete();
        assert_eq!(trimmed(&traced.results), "word 1 17");
    }

    fn exit_gives_the_status(form) {
        let clause = format!("{NUMBERED} /arg0 == 10/ {{ exit(17); }}");
        let traced = Tracer::new(form).clause(&clause).command(&program("numbers.c"), "").run();
        assert_eq!(traced.finished.code(), 17, "{}", traced.finished.stderr);
    }

    /// As in DTrace, a clause has an enabling for each of its descriptions.
    fn a_clause_fires_for_each_of_its_descriptions_that_matches(form) {
        let twice = format!("{NUMBERED}, pid$target:a.out:numbere*:entry");
        let clause = format!(
            "BEGIN, BEGIN {{ begun++; }} {NUMBERED} {{ @once = count(); }} {twice} {{ @counted = count(); }} \
             {twice} {{ @called = sum(1 + arg0 - arg0); }} \
             END, END {{ ended++; }} END {{ printa(\"%@d %@d %@d \", @once, @counted, @called); printf(\"%d %d\\n\", begun, ended); }}"
        );
        let found = about_numbers(form, &clause);
        let counts: Vec<i64> = found.split_whitespace().flat_map(str::parse).collect();
        assert!(matches!(counts[..], [once, counted, called, 2, 2] if once > 0 && counted == 2 * once && called == counted), "{found}");
    }

    /// After an exit() the rest of the clause runs. Further clauses of that firing do not run, and later hits do not
    /// count.
    fn exit_ends_the_firing(form) {
        let clause = format!(
            "{NUMBERED} {{ @before = count(); }} {NUMBERED} /arg0 == 10/ {{ printf(\"out \"); exit(17); printf(\"%d\\n\", arg0); }} \
             {NUMBERED} {{ @behind = count(); }} {NUMBERED} /arg0 == 10/ {{ printf(\"not here\\n\"); exit(18); }} \
             pid$target:a.out:number*:entry {{ @any = count(); }} END {{ printa(\"%@d %@d %@d\\n\", @before, @behind, @any); }}"
        );
        let tracer = Tracer::new(form).argument("-q").clause(&clause);
        let traced = tracer.command(&program("numbers.c"), "").run();
        assert_eq!(traced.finished.code(), 17, "{}", traced.finished.stderr);
        let found = trimmed(&traced.results);
        let counts: Vec<i64> = found.lines().last().unwrap_or_default().split_whitespace().flat_map(str::parse).collect();
        assert!(found.starts_with("out 10"), "{found}");
        assert!(!found.contains("not here"), "{found}");
        assert!(matches!(counts[..], [before, behind, any] if before == behind + 1 && any == behind), "{found}");
    }

    /// A speculation needs the times of its records, whatever the option says.
    fn a_program_that_speculates_is_timed_anyway(form) {
        let clause = "pid$target:a.out:numbered:entry { self->id = speculation(); } \
            pid$target:a.out:numbered:entry /self->id/ { speculate(self->id); printf(\"%d\\n\", (int)arg0); } \
            pid$target:a.out:numbered:return /self->id/ { commit(self->id); self->id = 0; }";
        let tracer = Tracer::new(form).argument("-q").argument("-x").argument("temporal=no");
        let tracer = tracer.argument("-x").argument("nspec=100").argument("-x").argument("cleanrate=1000hz");
        let traced = tracer.clause(clause).command(&program("numbers.c"), "").run().complete();
        let found = values(&traced.results);
        assert!(found.iter().copied().eq(-4..=64), "{found:?}: {}", traced.finished.stderr);
    }
}

/// With a small buffer and a stalled consumer, printed records and reported drops add up to the total.
#[test]
fn drops_are_counted_to_the_last() {
    let calls: usize = 200_000;
    let mut looper = start_waiting(&program("looper.c"), &calls.to_string());
    let clause = "pid$target:a.out:func:entry { printf(\"x\\n\"); }";
    let tracer = Tracer::new(Form::Default)
        .argument("-q")
        .argument("-x")
        .argument("bufsize=16k");
    let tracing = tracer
        .argument("-x")
        .argument("switchrate=1s")
        .clause(clause)
        .attach(looper.pid());
    looper.go();
    looper.finish().success();
    let traced = tracing.finish().success();
    let printed = traced.results.lines().filter(|line| *line == "x").count();
    let dropped: usize = traced
        .finished
        .stderr
        .lines()
        .filter(|line| line.contains("drop"))
        .filter_map(|line| line.split_whitespace().find_map(|word| word.parse::<usize>().ok()))
        .sum();
    assert!(
        dropped > 0,
        "nothing dropped with 16k for {calls} records: {}",
        traced.finished.stderr
    );
    assert_eq!(printed + dropped, calls, "{}", traced.finished.stderr);
}

#[test]
fn a_script_file_runs() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let script = folder.path().join("script.d");
    let nanoprobe = nanoprobe().canonicalize().expect("the command's path");
    let text = format!(
        "#!{} -s\n#pragma D option quiet\n/* a comment */\nBEGIN\n{{\n\tprintf(\"hello %s\\n\", $$1);\n\texit(0);\n}}\n",
        nanoprobe.display()
    );
    let written = folder.path().join("text");
    std::fs::write(&written, text).expect("writing the script");
    copy_program(&written, &script);
    let path = script.display().to_string();
    assert_eq!(command(&["-s", &path, "world"]).success().stdout, "hello world\n\n");
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("its permissions");
    assert_eq!(
        run(Command::new(&script).arg("again")).success().stdout,
        "hello again\n\n"
    );
}

#[test]
fn begin_without_a_target() {
    let finished = command(&["-n", "BEGIN { trace(\"hello\"); exit(3); }"]);
    assert_eq!(finished.code(), 3, "{}", finished.stderr);
    assert!(
        finished
            .stderr
            .contains("nanoprobe: description 'BEGIN ' matched 1 probe"),
        "{}",
        finished.stderr
    );
    let all = records(&finished.stdout);
    assert_eq!(all, [(":BEGIN".to_owned(), "hello".to_owned())], "{}", finished.stdout);
}

#[test]
fn a_tick_fires_as_often_as_asked() {
    let finished = command(&[
        "-q",
        "-n",
        "tick-10ms { printf(\"tick %d\\n\", n++); } tick-10ms /n == 5/ { exit(0); }",
    ]);
    assert_eq!(finished.success().stdout, "tick 0\ntick 1\ntick 2\ntick 3\ntick 4\n\n");
}

#[test]
fn the_version_and_help() {
    let version = command(&["-V"]).success();
    assert!(version.stdout.starts_with("nanoprobe"), "{}", version.stdout);
    let help = command(&["--help"]);
    let text = format!("{}{}", help.stdout, help.stderr);
    for flag in ["-n", "-s", "-c", "-p", "-l", "-q", "-o", "-x"] {
        assert!(text.contains(flag), "{flag} is not in the help:\n{text}");
    }
}

/// A wrong command line has status 2, as in dtrace; a program that does not compile has 1.
#[test]
fn errors_have_their_statuses() {
    assert_eq!(command(&["--no-such-flag"]).code(), 2);
    assert_eq!(command(&[]).code(), 2);
    for program in [
        "BEGIN { ",
        "BEGIN { nothing(); }",
        "BEGIN { x = \"a\" * 2; }",
        "pid$target:a:b:entry { }",
    ] {
        let finished = command(&["-n", program]);
        assert_eq!(finished.code(), 1, "{program}: {}", finished.stderr);
        assert!(
            finished.stderr.starts_with("nanoprobe: "),
            "{program}: {}",
            finished.stderr
        );
        assert_eq!(finished.stdout, "", "{program}");
    }
}

/// Missing features are refused by name, and never misread.
#[test]
fn missing_features_are_refused_by_name() {
    for (program, name) in [
        ("fbt::read:entry { @ = count(); }", "fbt"),
        ("vminfo:::maj_fault { @ = count(); }", "probes of the kernel"),
        ("io:::start { @ = count(); }", "name the process by -p"),
        ("BEGIN { system(\"echo no\"); }", "system"),
        ("BEGIN { chill(1); }", "chill"),
        ("BEGIN { panic(); }", "panic"),
    ] {
        let finished = command(&["-n", program]);
        assert_eq!(finished.code(), 1, "{program}: {}{}", finished.stdout, finished.stderr);
        assert!(finished.stderr.contains(name), "{program}: {}", finished.stderr);
    }
}

/// Mistakes in descriptions of system calls.
#[test]
fn system_calls_that_do_not_exist() {
    let finished = command(&["-n", "syscall::read:entry { @ = count(); }"]);
    assert_eq!(finished.code(), 1, "{}{}", finished.stdout, finished.stderr);
    let message = "the provider syscall is not there: name the process by -p, or start it by -c";
    assert!(finished.stderr.contains(message), "{}", finished.stderr);
    for (description, message) in [
        ("syscall::raed:entry", "did you mean read?"),
        ("syscall::no_such_call:entry", "no system call has such a name"),
        ("syscall::read:enter", "the names of their probes are entry and return"),
        ("syscall:libc:read:entry", "the module of system calls is vmlinux"),
    ] {
        let clause = format!("{description} {{ @ = count(); }}");
        let tracer = Tracer::new(Form::Default).clause(&clause);
        let traced = tracer.command(&program("tails.c"), "1").run();
        assert_eq!(traced.finished.code(), 1, "{description}");
        assert!(traced.finished.stderr.contains(message), "{}", traced.finished.stderr);
    }
}

#[test]
fn verbose_names_the_tactics() {
    let clause = "pid$target:a.out:only_ret:entry,pid$target:a.out:ten_arguments:entry { @ = count(); }";
    let tracer = Tracer::new(Form::Default).argument("-v").clause(clause);
    let traced = tracer.command(&program("tails.c"), "1").run().success();
    let text = format!("{}{}", traced.finished.stderr, traced.results);
    for function in ["only_ret", "ten_arguments"] {
        let line = text.lines().find(|line| {
            line.contains(function)
                && ["jump", "run", "trap", "pun", "evict"]
                    .iter()
                    .any(|tactic| line.contains(tactic))
        });
        assert!(line.is_some(), "no tactic for {function}:\n{text}");
    }
    for line in ["nanoprobe: attach ", "nanoprobe: detach "] {
        assert!(
            traced.finished.stderr.contains(line),
            "{line:?} is not in:\n{}",
            traced.finished.stderr
        );
    }
}

/// Attaching and detaching report how long the program was stopped: the longest stop of a thread,
/// and the stop of all of them at once.
#[test]
fn the_length_of_the_stop_is_reported() {
    for policy in ["auto", "always"] {
        let mut busy = start_waiting(&program("busy.c"), "2");
        let clause = "pid$target:a.out:busy_work:entry { @ = count(); }";
        let tracer = Tracer::new(Form::Default).argument("-v").clause(clause);
        let tracing = tracer
            .argument("-x")
            .argument(format!("stop={policy}"))
            .attach(busy.pid());
        busy.go();
        busy.wait_for("working\n");
        let said = tracing.interrupt().finished.stderr;
        for word in ["attach", "detach"] {
            let line = said
                .lines()
                .find(|line| line.starts_with(&format!("nanoprobe: {word} ")));
            let line = line.unwrap_or_else(|| panic!("{word} is not in:\n{said}"));
            let number = |before: &str| -> f64 {
                let rest = line.split_once(before).map_or("", |(_, rest)| rest);
                let number = rest.split(' ').next().unwrap_or_default();
                number.parse().unwrap_or_else(|_| panic!("{before:?} in {line}"))
            };
            let (took, longest, whole) = (number(&format!("{word} ")), number("stopped "), number("all threads "));
            assert!(0.0 < whole && whole <= longest && longest <= took, "{policy}: {line}");
        }
        busy.write("stop\n");
        busy.finish().success();
    }
}

live_tests! {
    fn a_trace_without_any_place_ends_with_an_error(form) {
        let of = |clauses: &[&str]| {
            let tracer = clauses.iter().fold(Tracer::new(form), |tracer, clause| tracer.clause(clause));
            tracer.command(&program("breakpoint.c"), "").run().finished
        };
        let returns = "pid$target:a.out:own_breakpoint:return { @ = count(); }";
        let none = of(&[returns]);
        assert_eq!(none.status.code(), Some(1), "{}", none.stderr);
        assert!(none.stderr.contains("none of the places could be probed"), "{}", none.stderr);
        assert!(none.stderr.contains("the function has its own breakpoint (int3)"), "{}", none.stderr);
        assert!(none.stdout.lines().any(|line| line == "OK"), "{}", none.stdout);
        // A directory has this name: the failure is reported, and is not an error.
        let some = of(&[returns, "pid$target:a.out:main:entry { @ = count(); }"]);
        assert_eq!(some.status.code(), Some(0), "{}", some.stderr);
        assert!(some.stderr.contains("1 place could not be probed"), "{}", some.stderr);
    }
}
