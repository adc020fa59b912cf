//! The effects of D programs besides observing: destructive actions, and speculations.

use std::collections::BTreeMap;

use nanoprobe_tests::live_tests;
use nanoprobe_tests::program::program;
use nanoprobe_tests::results::stacks;
use nanoprobe_tests::tracer::Tracer;

/// The line of a program's output that begins with a word.
fn line<'t>(text: &'t str, word: &str) -> &'t str {
    text.lines().find(|line| line.starts_with(word)).unwrap_or_default()
}

live_tests! {
    fn copyout_changes_what_the_program_may_change(form) {
        let clause = "pid$target:a.out:offers:entry {
                          this->new = (long *)alloca(8);
                          *this->new = 42;
                          copyout(this->new, arg0, 8);
                          copyoutstr(\"changed, but cut\", arg1, 7);
                      }
                      pid$target:a.out:offers:entry { copyout(alloca(8), arg2, 8); }";
        let tracer = Tracer::new(form).argument("-w").clause(clause);
        let traced = tracer.command(&program("effects.c"), "").run().success();
        let out = &traced.finished.stdout;
        assert_eq!(line(out, "value"), "value 42");
        assert_eq!(line(out, "text"), "text changeded");
        assert_eq!(line(out, "constant"), "constant 7");
        let errors = traced.finished.stderr.matches("invalid address").count();
        assert_eq!(errors, 1, "{}", traced.finished.stderr);
    }

    fn raise_sends_a_signal(form) {
        let clause = "pid$target:a.out:asks:entry { raise(SIGUSR1); }";
        let tracer = Tracer::new(form).argument("-w").clause(clause);
        let traced = tracer.command(&program("effects.c"), "wait").run().complete();
        assert_eq!(line(&traced.finished.stdout, "signals"), "signals 10");
    }

    /// The process is stopped until it gets a SIGCONT.
    fn stop_stops(form) {
        let clause = "pid$target:a.out:asks:entry {
                          stop();
                          system(\"i=0; while [ $i -lt 3000 ]; do grep \\\"T (stopped)\\\" /proc/%d/status && break; i=$((i+1)); sleep 0.1; done\", pid);
                          system(\"kill -CONT %d; kill -USR1 %d\", pid, pid);
                      }";
        let tracer = Tracer::new(form).argument("-w").clause(clause);
        let traced = tracer.command(&program("effects.c"), "wait").run().complete();
        let out = &traced.finished.stdout;
        assert!(line(out, "State").contains("T (stopped)"), "{out}");
        assert_eq!(line(out, "signals"), "signals 10");
    }

    fn speculations_are_committed_or_not(form) {
        let clause = "pid$target:a.out:takes:entry { self->id = speculation(); }
                      pid$target:a.out:takes:entry { speculate(self->id); printf(\"speculated %d\\n\", arg1); }
                      pid$target:a.out:takes:return /self->id && arg1 == 5/ { commit(self->id); self->id = 0; }
                      pid$target:a.out:takes:return /self->id/ { discard(self->id); self->id = 0; }";
        let tracer = Tracer::new(form).argument("-q").argument("-x").argument("nspec=256").clause(clause);
        let traced = tracer.command(&program("strings.c"), "10").run().complete();
        assert_eq!(traced.results, "speculated 5\n".repeat(10) + "\n");
    }

    /// There are 120 calls, faster than the tracer looks. Most find the only speculation taken, and that is reported.
    fn failed_speculations_are_counted(form) {
        let clause = "pid$target:a.out:takes:entry { @all = count(); this->id = speculation(); }
                      pid$target:a.out:takes:entry /this->id/ { @had[\"had\"] = count(); }";
        let tracer = Tracer::new(form).clause(clause);
        let traced = tracer.command(&program("strings.c"), "10").run().success();
        let stderr = &traced.finished.stderr;
        assert!(stderr.contains("119 failed speculations (no speculative buffer available)"), "{stderr}");
    }

    /// A clause whose record finds no room under its speculation ends at that point.
    fn specsize_bounds_what_is_speculated(form) {
        let clause = "BEGIN { spec = speculation(); }
                      pid$target:a.out:takes:entry { speculate(spec); printf(\"kept %d\\n\", (int)arg0 * 0); went_on++; }
                      END { commit(spec); } END { printf(\"went on %d\\n\", went_on); }";
        let tracer = Tracer::new(form).argument("-q").argument("-x").argument("specsize=400").clause(clause);
        let traced = tracer.command(&program("strings.c"), "10").run().success();
        assert_eq!(traced.results, "kept 0\n".repeat(10) + "went on 10\n\n");
        let stderr = &traced.finished.stderr;
        assert!(stderr.contains("110 speculative drops"), "{stderr}");
    }

    /// This also holds before the tracer has seen the commit.
    fn a_committed_speculation_takes_no_more(form) {
        let clause = "BEGIN { spec = speculation(); }
                      pid$target:a.out:takes:entry { speculate(spec); printf(\"%d \", ++number); }
                      pid$target:a.out:takes:return /number == 5/ { commit(spec); }
                      END { printf(\"of %d\\n\", number); }";
        let tracer = Tracer::new(form).argument("-q").clause(clause);
        let traced = tracer.command(&program("strings.c"), "10").run().complete();
        assert_eq!(traced.results.trim_end(), "1 2 3 4 5 of 5");
    }

    /// All threads that speculate under a number share its room.
    fn threads_share_the_room_of_a_speculation(form) {
        let clause = "BEGIN { spec = speculation(); }
                      pid$target:a.out:thread_work:entry { speculate(spec); printf(\"kept %d\\n\", tid - tid); }
                      pid$target:a.out:thread_work:entry { @ = count(); }
                      END { commit(spec); }";
        let tracer = Tracer::new(form).argument("-q").argument("-x").argument("specsize=4000").clause(clause);
        let traced = tracer.command(&program("threads.c"), "4 500").run().success();
        assert_eq!(traced.results.matches("kept 0\n").count(), 100, "{}", traced.results);
        let stderr = &traced.finished.stderr;
        assert!(stderr.contains("2400 speculative drops"), "{stderr}");
    }

    /// Every call of `takes` comes from main.
    fn stacks_are_drawn(form) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("out.svg");
        let tracer = Tracer::new(form).argument("--flamegraph").argument(path.to_str().expect("a path"));
        let tracer = tracer.clause("pid$target:a.out:takes:entry { @[ustack()] = count(); }");
        tracer.command(&program("strings.c"), "10").run().complete();
        let picture = std::fs::read_to_string(&path).expect("the picture");
        assert!(picture.contains("<title>all (120 hits, 100.00%)</title>"), "{picture}");
        assert!(picture.contains("main (120 hits, 100.00%)</title>"), "{picture}");
        assert!(picture.contains("takes (120 hits, 100.00%)</title>"), "{picture}");
    }

    /// Each frame of the picture is as wide as the sum of the rows of the aggregation that contain it.
    fn a_picture_has_the_sums_of_its_aggregation(form) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("out.svg");
        let tracer = Tracer::new(form).argument("-q").argument("--flamegraph").argument(path.to_str().expect("a path"));
        let clause = "pid$target:a.out:stack_*:entry { @[ustack()] = sum(3); }";
        let traced = tracer.clause(clause).command(&program("stacks.c"), "10").run().complete();
        let mut wanted: BTreeMap<Vec<String>, i64> = BTreeMap::new();
        for (frames, value) in stacks(&traced.results) {
            let name = |frame: &String| frame.rsplit_once("+0x").map_or(frame.as_str(), |(name, _)| name).to_owned();
            let outermost_first: Vec<String> = frames.iter().rev().map(name).collect();
            for depth in 0..=outermost_first.len() {
                *wanted.entry(outermost_first[..depth].to_vec()).or_default() += value;
            }
        }
        assert!(wanted.len() > 20, "{}", traced.results);
        let mut wanted: Vec<(String, i64)> =
            wanted.into_iter().map(|(way, value)| (way.last().map_or("all", String::as_str).to_owned(), value)).collect();
        let picture = std::fs::read_to_string(&path).expect("the picture");
        let titles = picture.split("<title>").skip(1).filter_map(|rest| Some(rest.split_once("</title>")?.0));
        let mut drawn: Vec<(String, i64)> = titles
            .map(|title| {
                let (name, share) = title.rsplit_once(" (").expect("a share");
                let value = share.split_once(" in sum, ").map(|(value, _)| value.replace(',', ""));
                (name.to_owned(), value.and_then(|value| value.parse().ok()).expect("a value"))
            })
            .collect();
        wanted.sort();
        drawn.sort();
        assert_eq!(drawn, wanted, "{}", traced.results);
    }

    /// The parts of the key beside the stack are named in the picture, as in the aggregation.
    fn a_picture_names_what_is_beside_the_stack(form) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("out.svg");
        let tracer = Tracer::new(form).argument("--flamegraph").argument(path.to_str().expect("a path"));
        let clause = "pid$target:a.out:takes:entry { @[ustack(1), usym(ucaller), umod(ucaller), (uint64_t)-1, probefunc] = count(); }";
        tracer.clause(clause).command(&program("strings.c"), "10").run().complete();
        let picture = std::fs::read_to_string(&path).expect("the picture");
        for title in ["strings`main", "strings", "18446744073709551615", "takes"] {
            assert!(picture.contains(&format!("<title>{title} (120 hits, 100.00%)</title>")), "{title}: {picture}");
        }
    }
}
