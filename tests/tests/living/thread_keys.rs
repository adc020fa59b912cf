//! The thread of a hit is found whatever a thread's thread pointer is.

use nanoprobe_tests::live_tests;
use nanoprobe_tests::program::{Build, need_program};
use nanoprobe_tests::results::{said, table, value};
use nanoprobe_tests::tracer::assert_nothing_lost;

use crate::{traced_from_start, traced_when_attached};

const COUNT: &str = "pid$target:a.out:counted:entry { @ = count(); }";
/// A sum needs a handler. [`COUNT`] needs none: the detour itself increments a number in the thread's context.
const SUM: &str = "pid$target:a.out:counted:entry { @ = sum(arg0 * 0 + 1); }";

/// Traces a program in both ways, from its start and by attaching, and checks that counts are exact.
#[track_caller]
fn exact(form: nanoprobe_tests::tracer::Form, clause: &str, program: &std::path::Path, arguments: &str) {
    let (target, traced) = traced_when_attached(form, clause, program, arguments);
    assert_eq!(value(&traced.results), said(&target.stdout, "calls"), "attached");
    assert_nothing_lost(&traced.finished.stderr);
    let traced = traced_from_start(form, clause, program, arguments);
    assert_eq!(
        value(&traced.results),
        said(&traced.finished.stdout, "calls"),
        "from its start"
    );
    assert_nothing_lost(&traced.finished.stderr);
}

live_tests! {
    fn position_independent_go_is_counted(form) {
        for build in [Build::GoPie, Build::Go] {
            let Some(path) = need_program("goleaf.go", build) else { continue };
            let clause = "pid$target:a.out:main.leaf:entry { @ = count(); }";
            exact(form, clause, &path, "");
        }
    }

    fn a_thread_that_changes_its_thread_pointer_is_counted(form) {
        for build in [Build::Usual, Build::Static, Build::Musl] {
            let Some(path) = need_program("keys.c", build) else { continue };
            let arguments = format!("moved 4 {}", form.scale(2000, 100));
            exact(form, COUNT, &path, &arguments);
            exact(form, SUM, &path, &arguments);
        }
    }

    /// The threads exist before the tracer attaches.
    fn threads_that_share_a_thread_pointer_are_counted(form) {
        for build in [Build::Usual, Build::Static] {
            let Some(path) = need_program("keys.c", build) else { continue };
            let arguments = format!("shared 6 {}", form.scale(100_000, 2000));
            let (target, traced) = traced_when_attached(form, SUM, &path, &arguments);
            assert_eq!(value(&traced.results), said(&target.stdout, "calls"));
            assert_nothing_lost(&traced.finished.stderr);
        }
    }

    /// clone(CLONE_VM) without CLONE_VFORK: two processes run in one memory, with one thread pointer.
    fn processes_with_one_memory_are_counted(form) {
        let clause = "pid$target:a.out:counted:entry { self->calls++; @calls[pid == $target, tid == pid] = count(); }
            pid$target:a.out:counted:return { self->calls--; @depths[self->calls] = count(); }";
        for build in [Build::Usual, Build::Static, Build::Musl] {
            let Some(path) = need_program("keys.c", build) else { continue };
            let arguments = format!("beside 8 {}", form.scale(50_000, 1000));
            exact(form, COUNT, &path, &arguments);
            let traced = traced_from_start(form, clause, &path, &arguments);
            assert_nothing_lost(&traced.finished.stderr);
            let (all, children) = (said(&traced.finished.stdout, "calls"), said(&traced.finished.stdout, "children"));
            let rows = table(&traced.results);
            assert_eq!(rows["1 1"], all - children, "{rows:?}");
            assert_eq!(rows["0 1"], children, "{rows:?}");
            assert_eq!(rows["0"], all, "{rows:?}");
            assert_eq!(rows.len(), 3, "no call has another depth: {rows:?}");
        }
    }

    /// The same beside a child of fork: the second process has the thread table of the first one, which names that one.
    fn processes_with_the_memory_of_a_child_are_counted(form) {
        let clause = "#pragma D option follow=fork
            pid$target:a.out:counted:entry { @by[pid] = count(); @[pid == $target, tid == pid] = count(); }";
        for build in [Build::Usual, Build::Static, Build::Musl] {
            let Some(path) = need_program("keys.c", build) else { continue };
            let arguments = format!("child 8 {}", form.scale(2_000_000, 20_000));
            let traced = traced_from_start(form, clause, &path, &arguments);
            assert_nothing_lost(&traced.finished.stderr);
            let all = said(&traced.finished.stdout, "calls");
            let rows = table(&traced.results);
            assert_eq!(rows["0 1"], all, "{rows:?}");
            let by_process: Vec<i64> = rows.iter().filter(|(key, _)| !key.contains(' ')).map(|(_, count)| *count).collect();
            assert_eq!((by_process.len(), by_process.iter().sum::<i64>()), (9, all), "{rows:?}");
        }
    }

    fn a_program_without_a_c_library_is_counted(form) {
        let Some(path) = need_program("bare.c", Build::Bare) else { return };
        exact(form, COUNT, &path, "");
        exact(form, SUM, &path, "");
    }
}
