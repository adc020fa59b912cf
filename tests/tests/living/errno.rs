//! `errno` is the thread's own, with any C library.

use nanoprobe_tests::left_out::left_out;
use nanoprobe_tests::live_tests;
use nanoprobe_tests::program::{Build, program, try_program};
use nanoprobe_tests::results::{said, table};
use nanoprobe_tests::tracer::{Form, Tracer};

use crate::traced_when_attached;

/// Each thread of the program has its own values, a different one at each call.
const CLAUSE: &str = "pid$target:a.out:left:entry { @[probename, errno == (int)arg0] = count(); }
                      pid$target:a.out:left:return { @[probename, errno == (int)arg1] = count(); }";

live_tests! {
    fn errno_is_the_threads(form) {
        let arguments = format!("4 {}", form.scale(2000, 100));
        let (target, traced) = traced_when_attached(form, CLAUSE, &program("errno.c"), &arguments);
        let calls = said(&target.stdout, "calls");
        let rows = table(&traced.results);
        assert_eq!(rows.len(), 2, "{rows:?}");
        assert_eq!((rows["entry 1"], rows["return 1"]), (calls, calls), "{}", traced.finished.stderr);
    }
}

/// The program is traced from its first instruction on, before the C library is loaded.
#[test]
fn each_librarys_errno_is_found() {
    let builds = [
        Build::Usual,
        Build::Stripped,
        Build::Static,
        Build::StaticPie,
        Build::Musl,
        Build::MuslStatic,
    ];
    for build in builds {
        let program = match try_program("errno.c", build) {
            Ok(program) => program,
            Err(reason) => {
                left_out(&format!("errno of a program built as {build:?}"), &reason);
                continue;
            }
        };
        // In a stripped program only the imported functions have names.
        let clause = if build == Build::Stripped {
            "pid$target:libc:pthread_barrier_wait:entry { @[\"entry\", errno < 64000] = count(); }"
        } else {
            CLAUSE
        };
        let traced = Tracer::new(Form::Default)
            .clause(clause)
            .command(&program, "3 200")
            .run()
            .complete();
        let rows = table(&traced.results);
        let right = if build == Build::Stripped {
            3
        } else {
            said(&traced.finished.stdout, "calls")
        };
        assert_eq!(rows["entry 1"], right, "{build:?}: {rows:?}");
        assert!(
            !traced.finished.stderr.contains("no C library"),
            "{}",
            traced.finished.stderr
        );
    }
}

#[test]
fn a_program_without_a_c_library_has_none() {
    let program = match try_program("goprog.go", Build::Go) {
        Ok(program) => program,
        Err(reason) => return left_out("errno of a Go program", &reason),
    };
    let clause = "pid$target:a.out:main.main:entry { printf(\"errno %d\", errno); }";
    let traced = Tracer::new(Form::Default)
        .argument("-q")
        .clause(clause)
        .command(&program, "")
        .run()
        .success();
    assert!(traced.results.contains("errno 0"), "{}", traced.results);
    let stderr = &traced.finished.stderr;
    assert!(stderr.contains("no C library was found"), "{stderr}");
}
