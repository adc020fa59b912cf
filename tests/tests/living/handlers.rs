//! Signals that are delivered to handlers of the program, and faults among them (`proc:::signal-handle`,
//! `proc:::fault`): as the program itself counts them.

use std::collections::BTreeMap;

use nanoprobe_tests::left_out::{is_root_of_the_machine, left_out};
use nanoprobe_tests::live_tests;
use nanoprobe_tests::program::{Build, need_program, program};
use nanoprobe_tests::results::table;
use nanoprobe_tests::tracer::{Form, Tracer, assert_nothing_lost, start_waiting_as};

use crate::{missed, traced_from_start, traced_when_attached};

const CLAUSES: &str = "#pragma D option quiet
    #pragma D option follow=no
    proc:::signal-handle { @[strjoin(\"signal\", lltostr(args[0]))] = sum(1); @[\"delivered\"] = sum(1); }
    proc:::signal-handle /arg1 != 0/ {
        @[\"informed\"] = sum(args[1]->si_signo == arg0 && *(int *)copyin(args[1], 4) == args[0]);
    }
    proc:::signal-handle /args[0] == SIGHUP/ { @[\"values\"] = sum(args[1]->si_value == 4711 && args[1]->si_code == -1); }
    proc:::signal-handle /args[0] == SIGUSR2/ { @[\"senders\"] = sum(args[1]->si_pid == pid && args[1]->si_uid == uid); }
    proc:::signal-handle { @[strjoin(\"at \", strtok(probename, \"x\"))] = sum(arg2 == args[2] && arg2 != 0); }
    proc:::fault { @[strjoin(\"fault\", lltostr(args[0]))] = sum(1); }
    proc:::fault /args[0] == SIGSEGV/ { @[\"addresses\"] = sum(args[1]->si_addr % 4096 == 8 && args[1]->si_code == 2); }
    END { printa(\"%s %@d\\n\", @); }";

/// The lines `name number` of a text, for names that begin so.
fn counts(text: &str, names: &[&str]) -> BTreeMap<String, i64> {
    let of_line = |line: &str| {
        let (name, count) = line.trim().rsplit_once(' ')?;
        let is_wanted = names
            .iter()
            .any(|wanted| name.trim_end_matches(char::is_numeric) == *wanted);
        Some((name.to_owned(), count.parse().ok().filter(|_| is_wanted)?))
    };
    text.lines().filter_map(of_line).collect()
}

/// Each signal counts as often as it was delivered: neither calls of the handlers nor jumps to them do, nor our own
/// faults and traps.
#[track_caller]
fn assert_counted(said: &str, results: &str, rounds: i64) {
    const NAMES: [&str; 4] = ["signal", "fault", "delivered", "informed"];
    let right = counts(said, &NAMES);
    assert!(right.len() > 15 && right["delivered"] == 17 * rounds, "{said}");
    assert_eq!(counts(results, &NAMES), right, "{results}");
    let rows = counts(results, &["values", "senders", "addresses", "at signal-handle"]);
    assert_eq!((rows["values"], rows["addresses"]), (rounds, rounds), "{results}");
    assert_eq!(rows["senders"], right["signal12"], "{results}");
    assert_eq!(rows["at signal-handle"], right["delivered"], "{results}");
}

live_tests! {
    fn each_delivery_counts_once(form) {
        for (build, attached) in [(Build::Usual, false), (Build::Usual, true), (Build::MuslStatic, true)] {
            let Some(program) = need_program("handlers.c", build) else { continue };
            let rounds = form.scale(50, 10);
            let arguments = rounds.to_string();
            let (stdout, results, stderr) = if attached {
                let (target, traced) = traced_when_attached(form, CLAUSES, &program, &arguments);
                (target.stdout, traced.results, traced.finished.stderr)
            } else {
                let traced = traced_from_start(form, CLAUSES, &program, &arguments);
                (traced.finished.stdout, traced.results, traced.finished.stderr)
            };
            assert_nothing_lost(&stderr);
            assert_counted(&stdout, &results, i64::try_from(rounds).expect("few"));
        }
    }

    /// A probe of the call that ends a handler displaces the code by which a delivery is known.
    fn beside_probes_where_handlers_end(form) {
        let clauses = format!("{CLAUSES} syscall::rt_sigreturn:entry {{ @[\"ends\"] = sum(1); }}");
        let rounds = form.scale(50, 10);
        let program = program("handlers.c");
        let (target, traced) = traced_when_attached(form, &clauses, &program, &rounds.to_string());
        assert_nothing_lost(&traced.finished.stderr);
        assert_counted(&target.stdout, &traced.results, i64::try_from(rounds).expect("few"));
        assert!(counts(&traced.results, &["ends"])["ends"] > 0, "{}", traced.results);
    }

    /// Each is counted, or missed where it interrupts the clause itself.
    fn storms(form) {
        let signals = form.scale(3000, 500);
        let program = program("handlers.c");
        let (target, traced) = traced_when_attached(form, CLAUSES, &program, &format!("storm {signals}"));
        let (right, counted) = (&counts(&target.stdout, &["delivered"]), &counts(&traced.results, &["delivered"]));
        let missed_by_any = missed(&traced.finished.stderr);
        let lacking = right["delivered"] - counted["delivered"];
        assert!(lacking >= 0 && lacking <= missed_by_any, "{right:?} {counted:?} {}", traced.finished.stderr);
    }

    /// A signal counts, too, if its handler was replaced after the kernel had chosen it.
    fn while_the_handler_is_replaced(form) {
        let clause = "proc:::signal-handle { @[\"delivered\"] = sum(1); }";
        let signals = form.scale(50_000, 3000);
        let program = program("handlers.c");
        let (_, traced) = traced_when_attached(form, clause, &program, &format!("swap {signals}"));
        assert_nothing_lost(&traced.finished.stderr);
        let rows = table(&traced.results);
        assert_eq!(rows["delivered"], i64::try_from(signals).expect("few"), "{}", traced.finished.stderr);
    }

    /// Followed children have their parent's handlers. One that a child installs itself is told.
    fn in_children(form) {
        let clause = "#pragma D option follow=fork
            proc:::signal-handle /pid != $target/ { @[\"in_children\"] = sum(args[0] == SIGUSR1); }";
        let program = program("handlers.c");
        let (_, traced) = traced_when_attached(form, clause, &program, "fork 5");
        assert_eq!(table(&traced.results)["in_children"], 5, "{}", traced.finished.stderr);
        let told = "a forked child has installed one that its parent has not";
        assert!(traced.finished.stderr.contains(told), "{}", traced.finished.stderr);
    }
}

/// The probe exists although no handler does yet.
#[test]
fn a_program_without_handlers_has_the_probe() {
    let clause = "proc:::signal-handle { @[\"delivered\"] = sum(1); } END { printf(\"ended\\n\"); }";
    let traced = Tracer::new(Form::Default)
        .clause(clause)
        .command(&program("looper.c"), "10")
        .run()
        .success();
    assert!(traced.results.contains("ended"), "{}", traced.results);
    assert!(
        !traced.finished.stderr.contains("does not match"),
        "{}",
        traced.finished.stderr
    );
}

const DISCARDS: &str = "#pragma D option quiet
    #pragma D option follow=no
    proc:::signal-discard { @[strjoin(\"ignored\", lltostr(args[2]))] = sum(args[1]->pr_pid == $target); }
    proc:::signal-discard /pid != $target/ { @[\"of_children\"] = sum(arg2 == args[2] && args[0]->pr_lwpid == $target); }
    END { printa(\"%s %@d\\n\", @); }";

/// Each signal that the kernel discards counts, whoever sends it.
#[test]
fn ignored_signals_are_told_to_root() {
    if !is_root_of_the_machine() {
        left_out("proc:::signal-discard", "root of the machine is needed");
        return;
    }
    let program = program("handlers.c");
    let (target, traced) = traced_when_attached(Form::Default, DISCARDS, &program, "ignored 20");
    assert_nothing_lost(&traced.finished.stderr);
    const NAMES: [&str; 2] = ["ignored", "of_children"];
    assert_eq!(
        counts(&traced.results, &NAMES),
        counts(&target.stdout, &NAMES),
        "{}",
        traced.finished.stderr
    );
}

#[test]
fn others_are_told_what_they_can_see() {
    let mut target = start_waiting_as(&program("handlers.c"), "ignored 2", true);
    let tracing = Tracer::new(Form::Default)
        .clause(DISCARDS)
        .as_ordinary_user()
        .trace(target.pid());
    target.go();
    target.finish().success();
    let stderr = tracing.finish().success().finished.stderr;
    let told = "proc:::signal-discard sees no signals for process";
    assert!(
        stderr.contains(told) && stderr.contains("only root (CAP_PERFMON"),
        "{stderr}"
    );
}
