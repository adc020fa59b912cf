//! Attaching at bad moments: the program unloads what is about to be patched, or its stacks lie side by side.

use std::process::Command;
use std::time::Duration;

use nanoprobe_tests::command::Running;
use nanoprobe_tests::program::{Build, need_program, program};
use nanoprobe_tests::results::said;
use nanoprobe_tests::tracer::{Form, Tracer};

/// A library goes between the look at the map and the write: its probes are left out, and nothing else.
#[test]
fn a_program_that_loads_and_unloads_all_the_time_is_attached_to() {
    let Some(plugin) = need_program("plugin.c", Build::Library) else {
        return;
    };
    let mut command = Command::new(program("dlopen.c"));
    command.arg(plugin).args(["100000000", "1"]);
    let mut running = Running::start(&mut command);
    std::thread::sleep(Duration::from_millis(200));
    for cycle in 0..50 {
        let form = if cycle % 2 == 0 { Form::Default } else { Form::Trap };
        let clause = "pid$target:plugin*::entry { @ = count(); } pid$target:a.out:finish:entry { @ = count(); }";
        let tracing = Tracer::new(form).clause(clause).attach(running.pid());
        tracing.interrupt();
    }
    assert!(running.is_running(), "{}{}", running.stdout(), running.stderr());
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
