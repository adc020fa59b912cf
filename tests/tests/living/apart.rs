//! The patched pages of a large text are set apart, so that a fork does not copy the page tables of the rest.

use std::process::Command;

use nanoprobe_tests::command::{Running, run};
use nanoprobe_tests::live_tests;
use nanoprobe_tests::program::program;
use nanoprobe_tests::results::value;
use nanoprobe_tests::text::Snapshot;
use nanoprobe_tests::tracer::{Tracer, nanoprobe, start_waiting};
use nix::sys::signal::Signal;

use crate::trees::children;

const SUM: &str = "pid$target:a.out:called:entry { @ = count(); }";
/// KiB of the text that a child may have: what the kernel maps at once around the few places that it has executed.
const RESIDENT_MAX: u64 = 512;

/// How many KiB of the program's text a process has in its page tables, and in how many mappings the text lies.
fn resident(pid: i32) -> (u64, usize) {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps")).unwrap_or_default();
    let (mut is_text, mut sum, mut mappings) = (false, 0_u64, 0);
    for line in text.lines() {
        if line.contains(" r-xp ") || line.contains("-p ") {
            is_text = line.contains(" r-xp ") && line.ends_with("/large_text");
            mappings += usize::from(is_text);
        } else if let Some(rest) = line.strip_prefix("Rss:").filter(|_| is_text) {
            sum += rest.trim().trim_end_matches(" kB").parse().unwrap_or(u64::MAX / 2);
        }
    }
    (sum, mappings)
}

/// The only child, when it has called.
fn child_of(target: &mut Running) -> i32 {
    target.wait_until("the child's call", |target| target.stdout().matches("by ").count() == 2);
    children(target.pid())[0]
}

live_tests! {
    fn a_fork_leaves_out_the_text_without_patches(form) {
        let mut target = start_waiting(&program("large_text.c"), "");
        let snapshot = Snapshot::take(target.pid());
        let tracing = Tracer::new(form).argument("-x").argument("follow=fork").clause(SUM).trace(target.pid());
        assert_eq!(resident(target.pid()).1, 3);
        target.go();
        let child = child_of(&mut target);
        let (own, (copied, mappings)) = (resident(target.pid()).0, resident(child));
        assert!(own >= 4096 && copied <= RESIDENT_MAX && mappings == 3, "{own} {copied} {mappings}");
        assert_eq!(value(&tracing.interrupt().results), 2);
        // The kernel joins mappings that were split only in the process that has split them.
        snapshot.assert_restored(child);
        snapshot.assert_identical(target.pid());
        target.close_input();
        assert!(target.finish().success().stdout.ends_with("OK\n"));
    }

    fn a_text_is_one_mapping_again_after_a_killed_tracer(form) {
        let mut target = start_waiting(&program("large_text.c"), "");
        let snapshot = Snapshot::take(target.pid());
        let tracing = Tracer::new(form).clause(SUM).trace(target.pid());
        target.go();
        let child = child_of(&mut target);
        tracing.running.signal(Signal::SIGKILL);
        let _ = tracing.running.finish();
        for process in [child, target.pid()] {
            assert_eq!(resident(process).1, 3);
            assert_eq!(run(Command::new(nanoprobe()).args(["restore", &process.to_string()])).code(), 0);
            snapshot.assert_restored(process);
        }
        snapshot.assert_identical(target.pid());
        target.close_input();
        assert!(target.finish().success().stdout.ends_with("OK\n"));
    }
}
