//! Static probes: every kind of operand, semaphores, several sites of one probe, programs that have them.

use std::process::Command;

use nanoprobe_tests::command::{Running, run};
use nanoprobe_tests::left_out::{left_out, need_command};
use nanoprobe_tests::live_tests;
use nanoprobe_tests::program::{Build, need_program, program};
use nanoprobe_tests::text::Snapshot;
use nanoprobe_tests::tracer::{Form, Tracer, assert_nothing_lost, nanoprobe, start_waiting, start_waiting_as};
use nix::sys::signal::Signal;

/// Traces the program from its start, and returns the clause's output.
#[track_caller]
fn printed(form: Form, clause: &str, arguments: &str) -> String {
    let tracer = Tracer::new(form).argument("-q").clause(clause);
    let traced = tracer.command(&program("statics.c"), arguments).run().complete();
    assert_nothing_lost(&traced.finished.stderr);
    traced.results
}

/// The distinct lines.
fn distinct(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().filter(|line| !line.is_empty()).collect();
    lines.dedup();
    lines
}

#[track_caller]
fn restore(pid: i32) {
    run(Command::new(nanoprobe()).args(["restore", &pid.to_string()])).success();
}

/// Waits until the program's semaphore is raised, and then kills the tracer.
#[track_caller]
fn kill(mut tracing: nanoprobe_tests::tracer::Tracing) {
    tracing.running.signal(Signal::SIGKILL);
    tracing.running.wait_until("being dead", |running| {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", running.pid())).unwrap_or_default();
        stat.is_empty() || stat.contains(") Z ")
    });
    tracing.finish();
}

#[test]
fn args_that_cannot_be_read_or_are_not_there_are_refused() {
    for (clause, tag) in [
        ("test$target:::unreadable { trace(args[1]); }", "D_ARGS_TYPE"),
        ("test$target:::guarded { trace(args[1]); }", "D_ARGS_IDX"),
        ("test$target:::nobody { trace(args[0]); }", "D_ARGS_TYPE"),
        ("*t$target:::guarded { trace(args[1]); }", "D_ARGS_IDX"),
        // The description also means functions.
        ("*$target:::guarded { trace(args[0]); }", "D_ARGS_NONE"),
        // The operand has a sign at one site, and none at the other.
        ("test$target:::counted-here { trace(args[0]); }", "D_ARGS_TYPE"),
    ] {
        let finished = run(Command::new(nanoprobe())
            .args(["-n", clause, "-c"])
            .arg(program("statics.c")));
        assert_ne!(finished.status.code(), Some(0), "{clause}");
        assert!(
            finished.stderr.contains(&format!("[{tag}]")),
            "{clause}: {}",
            finished.stderr
        );
    }
}

#[test]
fn static_probes_are_listed_as_dtrace_names_them() {
    let finished = run(Command::new(nanoprobe())
        .args(["-l", "-n", "test$target:::", "-c"])
        .arg(program("statics.c")));
    let lines: Vec<Vec<&str>> = finished
        .stdout
        .lines()
        // The program may also print something before it is ended.
        .filter(|line| line.contains(" test"))
        .map(|line| line.split_whitespace().collect())
        .collect();
    let found: Vec<String> = lines.iter().map(|fields| fields[2..].join(" ")).collect();
    let expected = [
        "counted counted-here",
        "guarded guarded",
        "kinds kinds",
        "kinds2 kinds2",
        "memory memory",
        "unreadable unreadable",
    ];
    assert_eq!(found, expected.map(|names| format!("statics {names}")), "{finished:?}");
    assert!(
        lines
            .iter()
            .all(|fields| fields[1].starts_with("test") && fields[1].len() > 4),
        "{finished:?}"
    );
}

#[test]
fn a_provider_without_the_process_number_gets_a_hint() {
    let tracer = Tracer::new(Form::Default)
        .clause("test:::kinds")
        .command(&program("statics.c"), "1");
    let stderr = tracer.run().finished.stderr;
    assert!(stderr.contains("write test$target"), "{stderr}");
}

live_tests! {
    /// `args[]` have the size and the sign of each operand, if all sites of the probe agree.
    fn args_are_typed_by_the_notes(form) {
        let clause = r#"test$target:::kinds { printf("%u %d %u %u %d; %d %d %d\n", args[1], args[2], args[3], args[5], args[7],
            sizeof (args[0]), sizeof (args[5]), sizeof (args[2])); }"#;
        assert_eq!(distinct(&printed(form, clause, "3")), ["222 -34 188 4294967293 -292; 8 4 1"]);
        let clause = r#"test$target:::counted-here /args[1] < -10/ { printf("%d %d\n", args[1], arg0); }"#;
        assert_eq!(distinct(&printed(form, clause, "8")), ["-12 6", "-14 7"]);
    }

    /// Two sites with different operands, one of them in the red zone.
    fn arguments_have_their_values_at_every_site(form) {
        let clause = "test$target:::counted-here { printf(\"%d %d %s\\n\", arg0, arg1, copyinstr(arg2)); }";
        let expected = (0..12).map(|i| format!("{i} {} {}\n", -2 * i, if i % 2 == 0 { "even" } else { "odd" }));
        assert_eq!(printed(form, clause, "12").trim_end(), expected.collect::<String>().trim_end());
    }

    fn every_kind_of_operand(form) {
        let ten = |name: &str| {
            let arguments: Vec<String> = (0..10).map(|index| format!("arg{index}")).collect();
            format!("test$target:::{name} {{ printf(\"{}\\n\", {}); }}", "%d ".repeat(10), arguments.join(", "))
        };
        let kinds = printed(form, &ten("kinds"), "50");
        let rax = 0x8012_3456_789a_bcde_u64 as i64;
        assert_eq!(distinct(&kinds), [format!("{rax} 222 -34 188 -3 4294967293 4660 -292 119 65 ")]);
        assert_eq!(kinds.lines().filter(|line| !line.is_empty()).count(), 50);
        let kinds2 = printed(form, &ten("kinds2"), "50");
        assert_eq!(distinct(&kinds2), ["-9 -10 -11 -12 -13 -14 -15 -16 -77 2147483647 "]);
        let memory = printed(form, &ten("memory"), "50");
        let unaligned = 0x001e_ffff_ffec_0000_u64;
        assert_eq!(distinct(&memory), [format!("-20 4294967276 30 -20 16706 65 -40 30 {unaligned} 2 ")]);
    }

    /// The program has only the symbols that the loader needs; `table` is not among them.
    fn a_program_without_symbols(form) {
        let Some(stripped) = need_program("statics.c", Build::Stripped) else { return };
        let clause = "test$target:::memory { @[arg0, arg9] = count(); } test$target:::memory { @lost = sum(arg6); }";
        let traced = Tracer::new(form).clause(clause).command(&stripped, "20").run().complete();
        assert!(traced.results.contains("-20                2               20"), "{}", traced.results);
        assert!(!traced.results.contains("-800"), "{}", traced.results);
        assert!(traced.finished.stderr.contains("1 place could not be probed"), "{}", traced.finished.stderr);
    }

    fn an_argument_that_cannot_be_read_is_refused_with_its_reason(form) {
        for (index, reason) in [
            (1, "arg1 cannot be read here: 8f@%xmm0 is a floating-point value"),
            (2, "arg2 cannot be read here: 8@%fs:0: it is relative to a segment"),
            (4, "arg4 cannot be read here: 8@nobody(%rip): the file has no symbol nobody"),
        ] {
            let clause = format!("test$target:::unreadable {{ @lost = sum(arg{index}); }} test$target:::unreadable {{ @ = sum(arg0 + arg3 + arg7); }}");
            let tracer = Tracer::new(form).argument("-v").clause(&clause);
            let traced = tracer.command(&program("statics.c"), "10").run().complete();
            assert!(traced.finished.stderr.contains(reason), "{}", traced.finished.stderr);
            // The other clause is not affected: 0 + ... + 9, and 1 each; arg7 does not exist.
            assert!(traced.results.lines().any(|line| line.trim() == "55"), "{}", traced.results);
        }
    }

    /// Descriptions match by either spelling, by globs, without a provider, and by function. Other names do not
    /// match.
    fn descriptions_match(form) {
        for (description, hits) in [
            ("test$target:::counted__here", 100),
            ("test$target:statics:counted:counted-here", 100),
            ("test$target:a.out:count*:*-here", 100),
            ("tes*:::guarded", 100),
            ("counted-here", 100),
            ("test$target::kinds*:", 200),
        ] {
            let clause = format!("{description} {{ @ = count(); }}");
            let tracer = Tracer::new(form).clause(&clause).command(&program("statics.c"), "100");
            let traced = tracer.run().complete();
            let counted: i64 = traced.results.trim().parse().unwrap_or(-1);
            assert_eq!(counted, hits, "{description}: {}", traced.finished.stderr);
        }
    }

    fn keys_of_probes_of_several_providers_stay_apart(form) {
        let clause = "test$target:::kinds*,pid$target:a.out:kinds:entry { @[probeprov == \"x\", probeprov, probefunc, probename] = count(); }
                      test$target:::kinds,pid$target:a.out:kinds:entry { @provider[probeprov] = count(); }";
        let traced = Tracer::new(form).clause(clause).command(&program("statics.c"), "10").run().complete();
        let lines: Vec<Vec<&str>> = traced.results.lines().map(|line| line.split_whitespace().collect()).collect();
        let of_provider = |name: &str| lines.iter().filter(|fields| fields.len() == 2 && fields[0].starts_with(name) && fields[1] == "10").count();
        assert_eq!((of_provider("test"), of_provider("pid")), (1, 1), "{}", traced.results);
        assert_eq!(lines.iter().filter(|fields| fields.len() == 5 && fields[4] == "10").count(), 3, "{}", traced.results);
    }

    fn a_semaphore_is_raised_while_we_look(form) {
        let clause = "test$target:::guarded { @ = sum(arg0); }";
        let traced = Tracer::new(form).clause(clause).command(&program("statics.c"), "100").run().complete();
        assert!(traced.finished.stdout.contains("seen 100\n"), "{}", traced.finished.stdout);
        assert_eq!(traced.results.trim(), "4950");
        // Tracing probes with other names does not raise the semaphore.
        let clause = "test$target:::counted-here { @ = count(); }";
        let traced = Tracer::new(form).clause(clause).command(&program("statics.c"), "100").run().complete();
        assert!(traced.finished.stdout.contains("seen 0\nsemaphore 0\n"), "{}", traced.finished.stdout);
    }

    /// A static program runs as soon as its probes are in place, reads its semaphore at once, and has soon ended.
    fn a_static_program_finds_it_raised_at_its_start(form) {
        let Some(program) = need_program("statics.c", Build::Static) else { return };
        for _ in 0..10 {
            let clause = "test$target:::guarded { @ = count(); }";
            let traced = Tracer::new(form).clause(clause).command(&program, "1").run().complete();
            assert!(traced.finished.stdout.contains("seen 1\n"), "{}", traced.finished.stdout);
            assert_eq!(traced.results.trim(), "1");
        }
    }

    fn a_semaphore_is_lowered_at_the_end(form) {
        let mut target = start_waiting(&program("statics.c"), "100 hold");
        let snapshot = Snapshot::take(target.pid());
        let tracing = Tracer::new(form).clause("test$target:::guarded { @ = count(); }").attach(target.pid());
        target.go();
        target.wait_for("worked\n");
        let traced = tracing.interrupt();
        assert_eq!(traced.results.trim(), "100");
        snapshot.assert_restored(target.pid());
        target.go();
        let finished = target.finish().success();
        assert!(finished.stdout.contains("seen 100\n"), "{}", finished.stdout);
        assert!(finished.stdout.contains("semaphore 0\n"), "{}", finished.stdout);
    }

    fn restore_lowers_it_after_a_kill(form) {
        let mut target = start_waiting(&program("statics.c"), "100 hold");
        let snapshot = Snapshot::take(target.pid());
        let tracing = Tracer::new(form).clause("test$target:::guarded { @ = count(); }").attach(target.pid());
        target.go();
        target.wait_for("worked\n");
        kill(tracing);
        restore(target.pid());
        snapshot.assert_restored(target.pid());
        target.go();
        let finished = target.finish().success();
        assert!(finished.stdout.contains("seen 100\nworked\nsemaphore 0\n"), "{}", finished.stdout);
    }

    /// A child has a copy of the raised semaphore. The end of the tracing lowers the parent's. `restore` lowers the
    /// child's, and leaves alone the parent's semaphore and the arena's entries about the parent's mappings, although
    /// both share the arena.
    fn a_child_s_is_its_own(form) {
        for killed in [false, true] {
            let mut target = start_waiting(&program("statics.c"), "10 fork");
            let snapshot = Snapshot::take(target.pid());
            let tracing = Tracer::new(form).clause("test$target:::guarded { @ = count(); }").attach(target.pid());
            target.go();
            target.wait_until("having a child", |target| child_of(target).is_some());
            let child = child_of(&target).expect("a child");
            if killed {
                kill(tracing);
            } else {
                tracing.interrupt();
            }
            restore(child);
            snapshot.assert_restored(child);
            if killed {
                restore(target.pid());
            }
            snapshot.assert_restored(target.pid());
            target.go();
            let finished = target.finish().success();
            assert!(finished.stdout.contains("child semaphore 0\nsemaphore 0\n"), "killed {killed}: {}", finished.stdout);
        }
    }

    fn an_ordinary_user_has_them_too(form) {
        let mut target = start_waiting_as(&program("statics.c"), "100 hold", true);
        let tracing = Tracer::new(form).as_ordinary_user().clause("test$target:::guarded { @ = count(); }").attach(target.pid());
        target.go();
        target.wait_for("worked\n");
        assert_eq!(tracing.interrupt().results.trim(), "100");
        target.go();
        assert!(target.finish().success().stdout.contains("semaphore 0\n"));
    }

    /// libstdc++'s own probes, if it has some: one throw for each call of __cxa_throw, with the same arguments.
    fn exceptions_of_cpp(form) {
        let Some(program) = need_program("exceptions.cpp", Build::Usual) else { return };
        let clause = "libstdcxx$target:::throw { @[\"throws\"] = count(); @objects[\"probe\"] = sum(arg0 & 0xffff); }
                      pid$target:libstdc*:__cxa_throw:entry { @[\"calls\"] = count(); @objects[\"entry\"] = sum(arg0 & 0xffff); }";
        let traced = Tracer::new(form).argument("-Z").clause(clause).command(&program, "").run().success();
        let of = |name: &str| -> Vec<String> {
            let lines = traced.results.lines().filter(|line| line.split_whitespace().next() == Some(name));
            lines.filter_map(|line| Some(line.split_whitespace().nth(1)?.to_owned())).collect()
        };
        if of("throws").is_empty() {
            return left_out("libstdc++'s static probes", "this libstdc++ has none");
        }
        assert_eq!(of("throws"), of("calls"), "{}", traced.results);
        assert_eq!(of("probe"), of("entry"), "{}", traced.results);
    }

    /// The interpreter prepares its arguments only while a semaphore is raised. CPython 3.11 has its
    /// function-return for calls from C only, and its function-entry only where a generator is closed.
    fn functions_of_python(form) {
        let Some(python) = need_command("python's static probes", "python3") else { return };
        let list = run(Command::new(nanoprobe()).args(["-l", "-n", "python$target:::function-entry", "-c"]).arg(&python));
        if !list.stdout.contains("function-entry") {
            return left_out("python's static probes", "this python3 has none");
        }
        let script = tempfile::Builder::new().suffix(".py").tempfile().expect("a file");
        let text = "import gc\ndef closed():\n    yield 1\ndef called(n):\n    return n + 1\ndef main():\n    list(map(called, range(321)))\n    for n in range(17):\n        g = closed()\n        next(g)\n        g.close()\n    gc.disable()\n    gc.collect()\n    gc.collect(0)\nmain()\nprint('OK')\n";
        std::fs::write(script.path(), text).expect("the script");
        let clause = "python$target:::function-entry /copyinstr(arg1) == \"closed\"/ { @entries[copyinstr(arg1)] = count(); }
                      python$target:::function-return /copyinstr(arg1) == \"called\"/ { @[\"return\", arg2] = count(); }
                      python$target:::gc-start { @gc[arg0] = count(); }";
        let traced = Tracer::new(form).clause(clause).command(&python, &script.path().display().to_string()).run().complete();
        let rows: Vec<Vec<&str>> = traced.results.lines().map(|line| line.split_whitespace().collect()).collect();
        let entries = rows.iter().find(|row| row.len() == 2 && row[0] == "closed").map(|row| row[1].parse::<u32>());
        assert!(entries.is_some_and(|entries| entries.is_ok_and(|entries| entries >= 17)), "{}", traced.results);
        assert!(rows.contains(&vec!["return", "5", "321"]), "{}", traced.results);
        let collections = |generation: &str| rows.iter().find(|row| row.len() == 2 && row[0] == generation).map(|row| row[1].to_owned());
        assert!(collections("0").is_some() && collections("2").is_some(), "{}", traced.results);
    }
}

fn child_of(target: &Running) -> Option<i32> {
    let stdout = target.stdout();
    let line = stdout.lines().find_map(|line| line.strip_prefix("child "))?;
    line.parse().ok()
}
