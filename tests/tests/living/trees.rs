//! Children that are traced, too (`-x follow=fork`): each call of each process is counted once, under its number.

use std::collections::BTreeMap;
use std::process::Command;

use nanoprobe_tests::command::run;
use nanoprobe_tests::live_tests;
use nanoprobe_tests::program::program;
use nanoprobe_tests::results::{said, said_by_processes, table, value};
use nanoprobe_tests::text::Snapshot;
use nanoprobe_tests::tracer::{Form, Tracer, Tracing, assert_nothing_lost, nanoprobe, start_waiting};
use nix::sys::signal::Signal;

const BY_PROCESS: &str = "pid$target:a.out:called:entry { @[pid] = count(); }";
const SUM: &str = "pid$target:a.out:called:entry { @ = count(); }";

fn following(form: Form) -> Tracer {
    Tracer::new(form).argument("-x").argument("follow=fork")
}

/// The children of a process.
pub(crate) fn children(pid: i32) -> Vec<i32> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    text.split_whitespace().filter_map(|child| child.parse().ok()).collect()
}

live_tests! {
    fn each_call_of_each_process_is_counted_under_its_number(form) {
        let traced = following(form).clause(BY_PROCESS).command(&program("tree.c"), "fork 3 1000").run().complete();
        let said = said_by_processes(&traced.finished.stdout);
        assert_eq!((said.len(), said.values().sum::<i64>()), (4, 3001));
        assert_eq!(table(&traced.results), said);
        assert_nothing_lost(&traced.finished.stderr);

        let target = start_waiting(&program("tree.c"), "fork 3 1000");
        let (stdout, traced) = finished(following(form).clause(BY_PROCESS).trace(target.pid()), target);
        assert_eq!(table(&traced), said_by_processes(&stdout));
    }

    /// Without an option, a command's children are traced, and those of a running process are not, which is told.
    fn by_default_children_of_a_command_are_traced(form) {
        let with = |options: &[&str]| {
            let options = options.iter().map(|option| format!("follow={option}"));
            options.fold(Tracer::new(form), |tracer, option| tracer.argument("-x").argument(option))
        };
        let command = |options: &[&str]| {
            let traced = with(options).clause(BY_PROCESS).command(&program("tree.c"), "fork 3 1000").run().complete();
            let said = said_by_processes(&traced.finished.stdout);
            assert_eq!((said.len(), said.values().sum::<i64>()), (4, 3001));
            (table(&traced.results), said)
        };
        let (counted, said) = command(&[]);
        assert_eq!(counted, said);
        assert_eq!(command(&["no"]).0.into_values().collect::<Vec<i64>>(), [1]);

        for (options, calls, is_told) in [(&[][..], 1, true), (&["no"], 1, false), (&["fork"], 31, false)] {
            let mut target = start_waiting(&program("tree.c"), "sleep 3 10");
            let tracing = with(options).clause(SUM).trace(target.pid());
            target.go();
            target.wait_until("three children's calls", |target| said_by_processes(&target.stdout()).len() == 4);
            let traced = tracing.interrupt();
            assert_eq!(value(&traced.results), calls);
            let notice = format!("process {} has 3 children that are not traced: ", target.pid());
            let told = traced.finished.stderr.matches(&notice).count();
            assert_eq!(told, usize::from(is_told), "{}", traced.finished.stderr);
            target.close_input();
            assert!(target.finish().success().stdout.ends_with("OK\n"));
        }
    }

    /// Threads of children, grandchildren, children by clone(2), and vfork among them.
    fn no_call_of_a_storm_is_lost_or_counted_twice(form) {
        let (rounds, calls) = (form.scale(50, 5), 300);
        let clause = "pid$target:a.out:stormed:entry { @ = count(); }";
        let arguments = format!("{rounds} {calls}");
        let traced = following(form).clause(clause).command(&program("forkstorm.c"), &arguments).run().complete();
        let of_children = rounds as i64 * 4 * calls;
        assert_eq!(value(&traced.results), said(&traced.finished.stdout, "parent") + of_children);
        assert_nothing_lost(&traced.finished.stderr);
    }

    /// There are more processes than contexts.
    fn contexts_of_ended_children_are_used_again(form) {
        let children = form.scale(4000, 1500);
        let arguments = format!("storm {children}");
        let traced = following(form).clause(SUM).command(&program("tree.c"), &arguments).run().complete();
        assert_eq!(value(&traced.results), children as i64 + 1);
        assert_nothing_lost(&traced.finished.stderr);
    }

    /// What is counted by process lies at a fixed place of a context, and each context has many owners.
    fn a_child_does_not_get_the_counts_of_an_ended_one(form) {
        let children = form.scale(4000, 1500);
        let clause = "#pragma D option quiet
            pid$target:a.out:called:entry { @calls[pid, $target] = count(); @most[pid, $target] = max(pid % 1000); }
            END { printa(\"%d %d calls %@d\\n\", @calls); printa(\"%d %d most %@d\\n\", @most); }";
        let arguments = format!("storm {children}");
        let traced = following(form).clause(clause).command(&program("tree.c"), &arguments).run().complete();
        let mut rows = [0, 0];
        let mut targets = std::collections::BTreeSet::new();
        for line in traced.results.lines().filter(|line| !line.is_empty()) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let number = |index: usize| words[index].parse::<i64>().expect("a number");
            let (expected, row) = if words[2] == "calls" { (1, 0) } else { (number(0) % 1000, 1) };
            assert_eq!(number(3), expected, "{line}");
            targets.insert(number(1));
            rows[row] += 1;
        }
        assert_eq!((rows, targets.len()), ([children + 1, children + 1], 1));
    }

    /// The aggregation's key and the records of one process say the same.
    fn a_child_knows_its_parent_and_its_ancestors(form) {
        let clause = "pid$target:a.out:called:entry
                      { @[pid == $target, ppid == $target, progenyof($target), progenyof(pid), progenyof(1 << 30)] = count(); }";
        let traced = following(form).clause(clause).command(&program("tree.c"), "fork 2 10").run().complete();
        let expected = BTreeMap::from([("1 0 1 1 0".to_owned(), 1), ("0 1 1 1 0".to_owned(), 20)]);
        assert_eq!(table(&traced.results), expected);
    }

    /// The tracing ends with the last process.
    fn a_daemon_is_traced_after_the_end_of_the_command(form) {
        let traced = following(form).clause(BY_PROCESS).command(&program("tree.c"), "daemon 500").run().success();
        let said = said_by_processes(&traced.finished.stdout);
        assert_eq!(said.values().sum::<i64>(), 501);
        assert_eq!(table(&traced.results), said);
        assert_nothing_lost(&traced.finished.stderr);
    }

    /// A child's own handlers and masks work, and handlers of probes in it read bad memory meanwhile.
    fn children_have_signals_of_their_own(form) {
        let clause = "pid$target:a.out:called:entry { @ = count(); }
                      pid$target:a.out:called:entry /arg0 == 1/ { trace(*(int *)copyin(16, 4)); }";
        let traced = following(form).clause(clause).command(&program("tree.c"), "faults 3").run().success();
        assert!(traced.finished.stdout.contains("OK\n"), "{}", traced.finished.stdout);
        assert_eq!(value(&traced.results), said_by_processes(&traced.finished.stdout).values().sum::<i64>());
    }

    /// The tracer finds the mask of a program that runs already. A child has it, too.
    fn a_mask_from_before_the_attach_is_the_childs_too(form) {
        let target = start_waiting(&program("tree.c"), "masked");
        let (stdout, traced) = finished(following(form).clause(SUM).trace(target.pid()), target);
        assert!(stdout.ends_with("OK\n"), "{stdout}");
        assert_eq!(value(&traced), 4);
    }

    /// Each page is a fault, and a fault is microseconds. By a trap, a hit has more to do.
    fn the_first_hit_of_a_child_touches_few_pages(form) {
        const FAULTS_MAX: i64 = 8;
        let traced = following(form).clause(SUM).command(&program("tree.c"), "touch").run().complete();
        let faults = traced.finished.stdout.lines().filter_map(|line| line.strip_prefix("faults "));
        let faults: Vec<i64> = faults.filter_map(|faults| faults.parse().ok()).collect();
        assert_eq!(faults.len(), 4);
        assert_eq!(value(&traced.results), 5);
        let least = faults.iter().min().copied().unwrap_or_default();
        assert!(form == Form::Trap || least <= FAULTS_MAX, "{faults:?}");
    }

    fn the_text_of_children_is_restored_at_the_end(form) {
        let mut target = start_waiting(&program("tree.c"), "sleep 3 10");
        let snapshot = Snapshot::take(target.pid());
        let tracing = following(form).clause(SUM).trace(target.pid());
        target.go();
        target.wait_until("three children's calls", |target| said_by_processes(&target.stdout()).len() == 4);
        let traced = tracing.interrupt();
        assert_eq!(value(&traced.results), 31);
        let children = children(target.pid());
        assert_eq!(children.len(), 3);
        for child in children.into_iter().chain([target.pid()]) {
            snapshot.assert_restored(child);
        }
        target.close_input();
        assert!(target.finish().success().stdout.ends_with("OK\n"));
    }

    fn children_of_a_killed_tracer_are_restored_one_by_one(form) {
        let mut target = start_waiting(&program("tree.c"), "sleep 3 10");
        let snapshot = Snapshot::take(target.pid());
        let tracing = following(form).clause(SUM).trace(target.pid());
        target.go();
        target.wait_until("three children's calls", |target| said_by_processes(&target.stdout()).len() == 4);
        tracing.running.signal(Signal::SIGKILL);
        let _ = tracing.running.finish();
        for process in children(target.pid()).into_iter().chain([target.pid()]) {
            let restored = run(Command::new(nanoprobe()).args(["restore", &process.to_string()]));
            assert_eq!(restored.code(), 0, "{}", restored.stderr);
            snapshot.assert_restored(process);
        }
        target.close_input();
        assert!(target.finish().success().stdout.ends_with("OK\n"));
    }
}

/// Lets a waiting target run to its end. Yields its output, and the results.
fn finished(tracing: Tracing, mut target: nanoprobe_tests::command::Running) -> (String, String) {
    target.go();
    let target = target.finish().success();
    let traced = tracing.finish().success();
    assert_nothing_lost(&traced.finished.stderr);
    (target.stdout, traced.results)
}
