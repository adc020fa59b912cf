//! Bad pointers are errors of the clause, counted and reported, and do not affect the target (I4).

use nanoprobe_tests::live_tests;
use nanoprobe_tests::program::program;
use nanoprobe_tests::results::{said, table, value};
use nanoprobe_tests::tracer::Tracer;

use crate::unprobed;

live_tests! {
    fn i4_good_strings_are_copied_and_bad_ones_are_errors(form) {
        let program = program("strings.c");
        let right = unprobed(&program, "20").success();
        let clause = "pid$target:a.out:takes:entry { @[copyinstr(arg0)] = count(); }
                      ERROR { @errors[\"errors\"] = count(); }";
        let traced = Tracer::new(form).clause(clause).command(&program, "20").run().success();
        assert_eq!(crate::without_messages(&traced.finished.stdout), right.stdout);
        let rows = table(&traced.results);
        assert_eq!(rows["plain"], 20, "{rows:?}");
        assert_eq!(rows["page end"], 20, "{rows:?}");
        assert_eq!(rows["errors"], said(&right.stdout, "bad"), "{rows:?}");
        // Cut at strsize with its NUL: 255 of 256 bytes.
        let long = "l".repeat(255);
        assert_eq!(rows.get(&long), Some(&20), "{rows:?}");
        let stderr = &traced.finished.stderr;
        assert!(stderr.contains("error on enabled probe ID"), "{stderr}");
        assert!(stderr.contains("invalid address"), "{stderr}");
    }

    fn strsize_cuts(form) {
        let clause = "pid$target:a.out:takes:entry /arg1 == 1999/ { @[strlen(copyinstr(arg0))] = count(); }";
        let tracer = Tracer::new(form).argument("-x").argument("strsize=64").clause(clause);
        let traced = tracer.command(&program("strings.c"), "5").run().complete();
        let rows = table(&traced.results);
        assert_eq!(rows.into_iter().collect::<Vec<_>>(), [("63".to_owned(), 5)]);
    }

    /// A predicate guards the pointer, so there is no error.
    fn predicates_run_first(form) {
        let clause = "pid$target:a.out:takes:entry /arg1 > 1/ { @ = sum(strlen(copyinstr(arg0))); }";
        let traced = Tracer::new(form).clause(clause).command(&program("strings.c"), "10").run().complete();
        assert_eq!(value(&traced.results), 10 * (5 + 8 + 8 + 255));
    }

    fn copyin_reads_what_is_there(form) {
        let clause = "pid$target:a.out:takes:entry /arg1 == 5/ { @[stringof(copyin(arg0, 6))] = count(); }
                      pid$target:a.out:takes:entry /arg1 == 5/ { @long[\"long\"] = sum(*(int *)copyin(arg0, 4)); }";
        let traced = Tracer::new(form).clause(clause).command(&program("strings.c"), "10").run().complete();
        let rows = table(&traced.results);
        assert_eq!(rows["plain"], 10);
        assert_eq!(rows["long"], 10 * i64::from(i32::from_le_bytes(*b"plai")));
    }

    /// BEGIN and END run in the tracer, the probe in the program: a pointer into D's array is the same for all of them.
    fn a_pointer_into_an_array_is_the_same_for_all(form) {
        let clause = "int counts[4]; int *p;
                      BEGIN { counts[2] = 5; p = &counts[2]; }
                      pid$target:a.out:takes:entry /p[0] >= 5/ { counts[2]++; @seen[\"seen\"] = max(*p); self->p = p; }
                      pid$target:a.out:takes:entry /self->p[-2] == 0 && self->p[0] == counts[2]/ { @same[\"same\"] = count(); }
                      pid$target:a.out:takes:entry { p[1]++; p[2] = 0; }
                      ERROR { @errors[\"errors\"] = count(); }
                      END { @at_end[\"end\"] = max(*p + p[1]); }";
        let traced = Tracer::new(form).clause(clause).command(&program("strings.c"), "5").run().success();
        let right = unprobed(&program("strings.c"), "5").success();
        assert_eq!(crate::without_messages(&traced.finished.stdout), right.stdout);
        let rows = table(&traced.results);
        let calls = rows["same"];
        assert!(calls > 0, "{rows:?}");
        // Nothing is stored after the array's end.
        assert_eq!((rows["seen"], rows["end"], rows["errors"]), (5 + calls, 5 + 2 * calls, calls), "{rows:?}");
    }
}
