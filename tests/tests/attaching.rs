//! Attaching at bad moments: the program unloads a library that is about to be patched, or its stacks lie side by side.

use std::process::Command;

use nanoprobe_tests::command::Running;
use nanoprobe_tests::program::program;
use nanoprobe_tests::results::said;
use nanoprobe_tests::tracer::{Form, Tracer};

/// A library is unloaded between the look and the write, and is loaded again at the same place in the middle of the
/// protocol. Only its probes are left out.
#[test]
fn a_program_that_loads_and_unloads_all_the_time_is_attached_to() {
    let mut running = Running::start(&mut Command::new(program("loads.c")));
    running.wait_for("ready\n");
    for _ in 0..20 {
        let clause = "pid$target:::entry { @ = count(); }";
        Tracer::new(Form::Default)
            .clause(clause)
            .attach(running.pid())
            .interrupt();
    }
    running.write("x");
    assert!(said(&running.finish().success().stdout, "loads") > 0);
}

/// Below each stack pointer lies another coroutine's stack, which another thread changes meanwhile.
#[test]
fn stacks_side_by_side_keep_their_bytes() {
    let mut running = Running::start(&mut Command::new(program("coroutines.c")));
    running.wait_for("ready\n");
    for cycle in 0..50 {
        let form = if cycle % 2 == 0 { Form::Default } else { Form::Trap };
        let clause = "pid$target:a.out:listen:entry { @ = count(); }";
        Tracer::new(form).clause(clause).attach(running.pid()).interrupt();
    }
    running.write("x");
    assert_eq!(said(&running.finish().success().stdout, "damage"), 0);
}
