//! A part of the program's text that is mapped a second time: hits there count, and no misses are reported.

use nanoprobe_tests::live_tests;
use nanoprobe_tests::program::program;
use nanoprobe_tests::results::table;
use nanoprobe_tests::tracer::{Tracer, start_waiting};

live_tests! {
    fn both_are_counted(form) {
        let mut target = start_waiting(&program("remapped.c"), "100 10");
        let clause = "pid$target:a.out::entry { @[probefunc] = count(); }";
        let tracing = Tracer::new(form).clause(clause).trace(target.pid());
        target.go();
        let finished = target.finish().success();
        assert!(finished.stdout.ends_with("OK\n"), "{}", finished.stdout);
        let traced = tracing.finish().success();
        let rows = table(&traced.results);
        assert_eq!((rows["builtin"], rows["behind_it"]), (110, 10), "{rows:?}");
        let stderr = &traced.finished.stderr;
        assert!(!stderr.contains("somebody else"), "{stderr}");
    }
}
