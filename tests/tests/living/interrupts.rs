//! The provider `syscall` at `int 0x80`: a call of 32-bit programs fires under its name.

use std::os::unix::process::ExitStatusExt as _;
use std::process::Command;

use nanoprobe_tests::left_out::left_out;
use nanoprobe_tests::live_tests;
use nanoprobe_tests::program::program;
use nanoprobe_tests::results::said;
use nanoprobe_tests::tracer::{Form, assert_nothing_lost};

use crate::{assert_calls_are_counted_once, traced_when_attached};

/// The calls that nothing but the program makes.
const NAMES: [&str; 6] = ["getppid", "getpid", "unknown", "copy_file_range", "getsid", "fork"];

fn arguments(form: Form) -> String {
    format!("3 {}", form.scale(500, 30))
}

/// Whether the kernel has 32-bit system calls; if not, reports that the test is left out.
fn need_interrupts() -> bool {
    let status = Command::new(program("interrupt_there.c"))
        .status()
        .expect("the program runs");
    if status.signal() == Some(libc::SIGSEGV) {
        left_out("calls by int 0x80", "this kernel has no 32-bit system calls");
        return false;
    }
    assert!(status.success(), "{status}");
    true
}

live_tests! {
    /// A clause that only counts has no handler before a call.
    fn calls_by_interrupt_are_counted_once(form) {
        if !need_interrupts() {
            return;
        }
        assert_calls_are_counted_once(form, &program("interrupts.c"), &arguments(form), &NAMES);
    }

    /// Handlers before and after each call, with its arguments, results and errors.
    fn calls_by_interrupt_return_once(form) {
        if !need_interrupts() {
            return;
        }
        let clause = "#pragma D option quiet
            syscall:::entry { @[strjoin(probefunc, \".entry\")] = sum(1); }
            syscall:::return { @[strjoin(probefunc, \".return\")] = sum(1); }
            syscall::close:return /errno == EBADF && arg0 == -1/ { @[\"bad\"] = sum(1); }
            syscall::unknown:return { @[strjoin(\"unknown.\", lltostr(errno))] = sum(1); }
            syscall::getppid:return { @[arg0 == ppid ? \"right\" : \"wrong\"] = sum(1); }
            syscall::copy_file_range:entry
                /arg0 == 1001 && arg1 == 2 && arg2 == 3 && arg3 == 4 && arg4 == 5 && arg5 == 6/ { @[\"six\"] = sum(1); }
            syscall::write:entry /arg2 == 7/ { @[copyinstr(arg1)] = sum(1); }
            syscall::read:entry { self->bytes = arg2; }
            syscall::read:return /self->bytes == 64/ { @[strjoin(\"read.\", lltostr(errno ? -errno : arg0))] = sum(1); }
            END { printa(\"%s %@d\\n\", @); }";
        let program = program("interrupts.c");
        let (target, traced) = traced_when_attached(form, clause, &program, &arguments(form));
        assert_nothing_lost(&traced.finished.stderr);
        let lines = traced.results.lines().filter_map(|line| line.rsplit_once(' '));
        let rows: std::collections::BTreeMap<&str, i64> =
            lines.filter_map(|(name, count)| Some((name, count.parse().ok()?))).collect();
        let right = |name: &str| said(&target.stdout, name);
        for name in NAMES {
            let ends = [".entry", ".return"].map(|end| rows.get(&*format!("{name}{end}")).copied());
            assert_eq!(ends, [Some(right(name)); 2], "{name}: {rows:?}");
        }
        assert_eq!(rows["bad"], right("close"), "{rows:?}");
        assert_eq!(rows["unknown.10"], right("unknown"), "{rows:?}");
        assert_eq!((rows["right"], rows.get("wrong")), (right("getppid"), None), "{rows:?}");
        assert_eq!(rows["six"], right("copy_file_range"), "{rows:?}");
        assert_eq!((rows["int 80"], rows["read.-4"], rows["read.7"]), (1, 1, 1), "{rows:?}");
    }
}

live_tests! {
    /// The program blocks the signals of traps by `int 0x80`, and ignores them, and reads that back. Its functions are
    /// probed meanwhile.
    fn masks_that_are_set_by_interrupt_block_no_trap(form) {
        if !need_interrupts() {
            return;
        }
        let clause = "#pragma D option quiet
            pid$target:a.out:probed:entry { @[\"probed\"] = sum(1); }
            pid$target:a.out:probed:return { @[\"returned\"] = sum(1); }
            syscall::unknown:entry { @[\"unknown\"] = sum(1); }
            END { printa(\"%s %@d\\n\", @); }";
        let rounds = form.scale(200, 20).to_string();
        let (target, traced) = traced_when_attached(form, clause, &program("low_masks.c"), &rounds);
        assert_nothing_lost(&traced.finished.stderr);
        let right = |name: &str| said(&target.stdout, name);
        assert_eq!(said(&traced.results, "probed"), right("probed"));
        assert_eq!(said(&traced.results, "returned"), right("probed"));
        assert_eq!(said(&traced.results, "unknown"), right("unknown"));
    }
}
