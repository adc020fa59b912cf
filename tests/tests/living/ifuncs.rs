//! Functions that the dynamic linker chooses (IFUNCs): one call is one hit, by however many names a
//! description finds the code.

use nanoprobe_tests::live_tests;
use nanoprobe_tests::program::program;
use nanoprobe_tests::results::{table, value};
use nanoprobe_tests::tracer::{Form, Traced, Tracer, start_waiting};

#[track_caller]
fn traced(form: Form, clause: &str) -> Traced {
    let mut target = start_waiting(&program("copies.c"), "100");
    let tracing = Tracer::new(form).clause(clause).trace(target.pid());
    target.go();
    target.finish().success();
    tracing.finish().success()
}

live_tests! {
    /// memcpy and memmove are names of one function, which the dynamic linker chooses. A call of this function is
    /// reported by its own name.
    fn a_call_is_counted_once(form) {
        let traced = traced(form, "pid$target:libc*:*mem*:entry { @[probefunc] = count(); }");
        let rows = table(&traced.results);
        let hundreds: Vec<_> = rows.iter().filter(|(_, count)| **count >= 100).collect();
        assert!(hundreds.len() == 1 && *hundreds[0].1 < 110, "{rows:?}");
        assert!(hundreds[0].0.starts_with("__mem"), "{rows:?}");
        assert!(!rows.contains_key("memmove") && !rows.contains_key("memcpy"), "{rows:?}");
    }

    fn by_the_name_that_the_program_calls(form) {
        let traced = traced(form, "pid$target:libc*:memcpy:entry { @ = count(); }");
        assert!((100..110).contains(&value(&traced.results)), "{}", traced.results);
    }

    /// As everywhere, a clause with two matching descriptions fires twice.
    fn two_descriptions_are_two_hits(form) {
        let clause = "pid$target:libc*:memcpy:entry, pid$target:libc*:memmove:entry { @ = count(); }";
        let traced = traced(form, clause);
        assert!((200..220).contains(&value(&traced.results)), "{}", traced.results);
    }
}
