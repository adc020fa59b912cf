//! Libraries loaded later, code before main, static programs, other C libraries, other languages.

use nanoprobe_tests::left_out::left_out;
use nanoprobe_tests::live_tests;
use nanoprobe_tests::program::{Build, need_program, program, try_program};
use nanoprobe_tests::results::{said, table, value};
use nanoprobe_tests::text::Snapshot;
use nanoprobe_tests::tracer::{Tracer, assert_nothing_lost, start_waiting, wait_until_armed};

use crate::traced_from_start;

live_tests! {
    fn a_library_is_probed_when_it_appears(form) {
        let plugin = try_program("plugin.c", Build::Library).expect("a shared library");
        let arguments = format!("{} 20 1000", plugin.display());
        let clause = "pid$target:plugin.so:plugin_function:entry,pid$target:plugin.so:plugin_constructed:entry
                      { @[probefunc] = count(); }";
        let right = crate::unprobed(&program("dlopen.c"), &arguments).success();
        let traced =
            Tracer::new(form).argument("-Z").clause(clause).command(&program("dlopen.c"), &arguments).run().complete();
        assert_eq!(crate::without_messages(&traced.finished.stdout), right.stdout);
        let rows = table(&traced.results);
        assert_eq!(rows["plugin_function"], said(&right.stdout, "calls"));
        assert_eq!(rows["plugin_constructed"], said(&right.stdout, "constructed"));
    }

    /// Our calls of the C library's IFUNC resolvers go through the linker, which already has its probes.
    fn our_own_calls_are_no_hits(form) {
        let of_linker = "pid$target:ld-linux*::entry { @[probefunc] = count(); }";
        let of_both = format!("{of_linker} pid$target:libc::entry {{ @all = count(); }} END {{ trunc(@all); }}");
        let counts = |clause: &str| {
            let traced = Tracer::new(form).argument("-q").clause(clause).command(&program("numbers.c"), "").run().complete();
            assert!(!traced.finished.stderr.contains("missed"), "{}", traced.finished.stderr);
            table(&traced.results)
        };
        assert_eq!(counts(&of_both), counts(of_linker));
    }

    /// A stopped tracer reports the libraries that it has missed.
    fn a_library_that_the_program_did_not_wait_for_is_reported(form) {
        let plugin = try_program("plugin.c", Build::Library).expect("a shared library");
        let mut target = start_waiting(&program("dlopen.c"), &format!("{} 3 10", plugin.display()));
        let clause = "pid$target:plugin.so:plugin_function:entry,pid$target:libc:puts:entry { @[probefunc] = count(); }";
        let mut tracing = Tracer::new(form).argument("-Z").clause(clause).start_on(target.pid());
        wait_until_armed(&mut tracing.running, target.pid());
        tracing.running.signal(nix::sys::signal::Signal::SIGSTOP);
        target.go();
        target.finish().success();
        tracing.running.signal(nix::sys::signal::Signal::SIGCONT);
        let traced = tracing.finish();
        assert_eq!(traced.finished.code(), 0, "{}", traced.finished.stderr);
        let told = "the program continued before the probes of a new library were placed";
        assert!(traced.finished.stderr.contains(told), "{}", traced.finished.stderr);
    }

    /// Without -Z a description that matches nothing is an error, and the target stays unchanged.
    fn a_library_that_is_not_there_is_an_error(form) {
        let mut looper = start_waiting(&program("looper.c"), "10");
        let snapshot = Snapshot::take(looper.pid());
        let clause = "pid$target:plugin.so:plugin_function:entry { @ = count(); }";
        let traced = Tracer::new(form).clause(clause).process(looper.pid()).run();
        assert_eq!(traced.finished.code(), 1);
        let stderr = &traced.finished.stderr;
        assert!(stderr.contains("plugin.so:plugin_function:entry"), "{stderr}");
        assert!(stderr.contains("does not match any probes"), "{stderr}");
        snapshot.assert_identical(looper.pid());
        looper.go();
        looper.finish().success();
    }

    /// The C library arrives when the command is running already, together with the first clause that reads stacks.
    /// Away from a function's entry, this needs the unwinding tables of all modules.
    fn stacks_are_whole_where_only_a_late_library_looks_at_them(form) {
        let clause = "pid$target:libc:qsort:return { @callers[usym(ucaller)] = count(); @stacks[ustack(3)] = count(); }
                      END { printa(\"%A %@d\\n\", @callers); printa(\"%k\", @stacks); }";
        let traced = Tracer::new(form).argument("-q").clause(clause).command(&program("stacks.c"), "7").run().complete();
        let lines: Vec<&str> = traced.results.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        let [caller, innermost, outer, main, ..] = lines[..] else { panic!("{}", traced.results) };
        assert!(caller.ends_with("`stack_outer 7"), "{}", traced.results);
        assert!(innermost.contains("`qsort+0x") && outer.contains("`stack_outer+0x"), "{}", traced.results);
        assert!(main.contains("`main+0x"), "{}", traced.results);
    }

    fn constructors_are_traced(form) {
        let clause = "pid$target:a.out:before_main:entry,pid$target:a.out:after_main:entry,pid$target:a.out:main:entry
                      { printf(\"%s %d\\n\", probefunc, probefunc == \"main\" ? 0 : arg0); }";
        let program = program("entry.c");
        let right = crate::unprobed(&program, "").success();
        let traced = Tracer::new(form).argument("-q").clause(clause).command(&program, "").run().complete();
        assert_eq!(crate::without_messages(&traced.finished.stdout), right.stdout);
        let lines: Vec<&str> = traced.results.lines().filter(|line| !line.is_empty()).collect();
        let order = ["before_main 1", "before_main 2", "before_main 3", "main 0", "after_main 4", "after_main 5"];
        assert_eq!(lines, order);
    }

    fn the_first_instruction_is_traced(form) {
        let clause = "pid$target:a.out:_start:entry { @ = count(); }";
        for build in [Build::Usual, Build::FixedAddress, Build::Static, Build::StaticPie] {
            let Some(path) = need_program("staticprog.c", build) else { continue };
            let traced = Tracer::new(form).clause(clause).command(&path, "10").run().complete();
            assert_eq!(value(&traced.results), 1, "{build:?}");
        }
    }

    fn every_kind_of_link(form) {
        for build in
            [Build::FixedAddress, Build::Static, Build::StaticPie, Build::Musl, Build::MuslStatic]
        {
            let Some(path) = need_program("staticprog.c", build) else { continue };
            let clause = "pid$target:a.out:static_work:entry,pid$target:a.out:static_work:return { @[probename] = count(); }
                          pid$target:a.out:static_work:entry /copyinstr(arg0) == \"static\"/ { @[\"text\"] = count(); }";
            let arguments = form.scale(100_000, 1000).to_string();
            let traced = traced_from_start(form, clause, &path, &arguments);
            let rows = table(&traced.results);
            let calls = said(&traced.finished.stdout, "calls");
            assert_eq!((rows["entry"], rows["return"], rows["text"]), (calls, calls, calls), "{build:?}");

            let mut target = start_waiting(&path, &arguments);
            let tracing = Tracer::new(form).clause("pid$target:a.out:static_work:entry { @ = count(); }").attach(target.pid());
            target.go();
            let finished = target.finish().success();
            assert_eq!(value(&tracing.finish().success().results), said(&finished.stdout, "calls"), "{build:?}");
        }
    }

    /// Everything in a static program, its C library and startup code included.
    fn all_of_a_static_program(form) {
        for build in [Build::Static, Build::StaticPie, Build::MuslStatic] {
            let Some(path) = need_program("staticprog.c", build) else { continue };
            let clause = "pid$target:a.out::entry,pid$target:a.out::return { @ = count(); }";
            let traced = traced_from_start(form, clause, &path, "200");
            assert!(value(&traced.results) > 800, "{build:?}");
        }
    }

    fn go(form) {
        let Some(path) = need_program("goprog.go", Build::Go) else { return };
        let clause = "pid$target:a.out:main.counted:entry { @ = count(); }";
        let traced = traced_from_start(form, clause, &path, "");
        assert_eq!(value(&traced.results), said(&traced.finished.stdout, "calls"));
    }

    fn gettimeofday_is_probed_in_the_vdso_or_libc(form) {
        let mut busy = start_waiting(&program("busy.c"), "2");
        let snapshot = Snapshot::take(busy.pid());
        let clause = "pid$target::*gettimeofday:entry { @[probemod] = count(); }";
        let tracing = Tracer::new(form).clause(clause).trace(busy.pid());
        busy.go();
        busy.wait_for("working\n");
        let traced = crate::others::after_some_work(&mut busy, tracing);
        let rows = table(&traced.results);
        assert!(rows.values().sum::<i64>() > 0, "{rows:?}");
        if !rows.keys().any(|module| module.contains("vdso")) {
            left_out("the vDSO", &format!("gettimeofday went through {rows:?}"));
        }
        snapshot.assert_restored(busy.pid());
        busy.write("stop\n");
        assert_nothing_lost(&traced.finished.stderr);
        busy.finish().success();
    }
}
