//! Sets of processes (`-p A,B`, `-p NAME`, `--exe`, `--cgroup`, `--container`): each call of each process is counted
//! once, under its number, in one set of aggregations, and the text of all is restored.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use nanoprobe_tests::command::{Running, run};
use nanoprobe_tests::left_out::left_out;
use nanoprobe_tests::program::{copy_program, program};
use nanoprobe_tests::results::table;
use nanoprobe_tests::text::Snapshot;
use nanoprobe_tests::tracer::{Form, Tracer, Tracing, assert_nothing_lost, nanoprobe, wait_until_tracing};
use nix::sys::signal::Signal;

const BY_PROCESS: &str = "pid$target:a.out:called:entry { @[pid] = count(); }";

/// A process that calls when it is told to.
struct Told {
    running: Running,
    snapshot: Snapshot,
    /// How many lines it has answered.
    answers: usize,
}

impl Told {
    fn start() -> Told {
        Told::of(&program("member.c"))
    }

    fn of(path: &Path) -> Told {
        let mut running = Running::start(&mut Command::new(path));
        // Its answer says that its libraries are loaded.
        running.write("call 0\n");
        running.wait_for(" 0\n");
        Told {
            snapshot: Snapshot::take(running.pid()),
            answers: 1,
            running,
        }
    }

    fn pid(&self) -> i32 {
        self.running.pid()
    }

    /// Has the process do something, and waits for its answer.
    #[track_caller]
    fn tell(&mut self, line: &str) {
        self.running.write(&format!("{line}\n"));
        self.answers += 1;
        let answers = self.answers;
        self.running
            .wait_until(line, |running| running.stdout().lines().count() >= answers);
    }

    /// How often each process has called, as it and its children say.
    fn said(&self) -> BTreeMap<String, i64> {
        let mut said = BTreeMap::new();
        for line in self.running.stdout().lines() {
            let (pid, calls) = line
                .strip_prefix("by ")
                .and_then(|line| line.split_once(' '))
                .expect(line);
            *said.entry(pid.to_owned()).or_default() += calls.parse::<i64>().expect("a count");
        }
        said.retain(|_, calls| *calls > 0);
        said
    }

    /// Ends it, after its text was compared with that before.
    #[track_caller]
    fn end(mut self) -> BTreeMap<String, i64> {
        self.snapshot.assert_restored(self.pid());
        let said = self.said();
        self.running.close_input();
        self.running.finish().success();
        said
    }
}

fn pids(told: &[Told]) -> String {
    let pids: Vec<String> = told.iter().map(|told| told.pid().to_string()).collect();
    pids.join(",")
}

/// Starts a tracer, and waits until it traces.
#[track_caller]
fn trace(arguments: &[&str], clauses: &[&str]) -> Tracing {
    let mut tracer = Tracer::new(Form::Default).argument("-v");
    for argument in arguments {
        tracer = tracer.argument(*argument);
    }
    for clause in clauses {
        tracer = tracer.clause(clause);
    }
    let mut tracing = tracer.start();
    wait_until_tracing(&mut tracing.running);
    tracing
}

/// What all have said.
#[track_caller]
fn end(told: Vec<Told>) -> BTreeMap<String, i64> {
    told.into_iter().flat_map(Told::end).collect()
}

#[test]
fn each_process_of_a_list_is_counted_under_its_number() {
    let mut told: Vec<Told> = (0..3).map(|_| Told::start()).collect();
    // One is named twice.
    let list = format!("{},{}", pids(&told), told[0].pid());
    let more = told[1].pid().to_string();
    let tracing = trace(
        &["-p", &list, "-p", &more],
        &[
            BY_PROCESS,
            "BEGIN { printf(\"began\\n\"); } END { printf(\"ended\\n\"); }",
            "pid$target:a.out:called:entry / pid != $target || execname != \"member\" && 0 / { printf(\"wrong\\n\"); }",
        ],
    );
    for (calls, told) in [100, 2_000, 30_000].into_iter().zip(&mut told) {
        told.tell(&format!("call {calls}"));
        told.tell("call 7");
    }
    let listed = run(Command::new(nanoprobe()).args(["ps", "--json"]));
    for told in &told {
        let row = format!("\"pid\":{},", told.pid());
        let rows = listed
            .stdout
            .lines()
            .filter(|line| line.replace(' ', "").contains(&row));
        assert_eq!(rows.count(), 1, "{}", listed.stdout);
    }
    let traced = tracing.interrupt();
    for (once, times) in [("began", 1), ("ended", 1), ("wrong", 0)] {
        assert_eq!(traced.results.matches(once).count(), times, "{}", traced.results);
    }
    assert_nothing_lost(&traced.finished.stderr);
    let said = end(told);
    assert_eq!(said.values().sum::<i64>(), 32_100 + 21);
    assert_eq!(table(&traced.results), said, "{}", traced.finished.stderr);
}

#[test]
fn a_description_with_a_number_is_for_that_process() {
    let mut told: Vec<Told> = (0..3).map(|_| Told::start()).collect();
    let (one, list) = (told[1].pid(), pids(&told));
    let clause = format!("pid{one}:a.out:called:entry {{ @[pid] = count(); }}");
    let tracing = trace(
        &["-p", &list],
        &[&clause, "pid$target:a.out:called:entry { @all = count(); }"],
    );
    told.iter_mut().for_each(|told| told.tell("call 50"));
    let traced = tracing.interrupt();
    assert!(traced.results.contains("150"), "{}", traced.results);
    let counted = table(&traced.results);
    assert_eq!(counted.get(&one.to_string()), Some(&50), "{}", traced.results);
    for told in &told {
        assert_eq!(counted.contains_key(&told.pid().to_string()), told.pid() == one);
    }
    end(told);
}

/// BEGIN's values are there in each process, and each has its own from there on.
#[test]
fn variables_begin_as_begin_leaves_them() {
    let mut told: Vec<Told> = (0..2).map(|_| Told::start()).collect();
    let tracing = trace(
        &["-p", &pids(&told)],
        &[
            "BEGIN { first = 40; name = \"begun\"; of[3] = 2; }",
            "pid$target:a.out:called:entry { first++; @[pid, name] = max(first + of[3]); }",
        ],
    );
    told[0].tell("call 10");
    told[1].tell("call 100");
    let traced = tracing.interrupt();
    for (told, last) in told.iter().zip([52, 142]) {
        let line = traced
            .results
            .lines()
            .find(|line| line.contains(&told.pid().to_string()));
        let words: Vec<&str> = line.unwrap_or_default().split_whitespace().collect();
        assert_eq!(words[1..], ["begun", &last.to_string()], "{}", traced.results);
    }
    end(told);
}

#[test]
fn the_run_ends_with_the_last_process_and_the_results_of_all_stay() {
    let mut told: Vec<Told> = (0..3).map(|_| Told::start()).collect();
    let tracing = trace(&["-p", &pids(&told)], &[BY_PROCESS]);
    let mut said = BTreeMap::new();
    // The first one, which has given the program its types, ends first.
    while !told.is_empty() {
        told.iter_mut().for_each(|told| told.tell("call 1000"));
        let mut first = told.remove(0);
        said.extend(first.said());
        first.running.close_input();
        first.running.finish().success();
    }
    let traced = tracing.finish().success();
    assert_eq!(
        said.values().copied().collect::<std::collections::BTreeSet<_>>(),
        [1000, 2000, 3000].into()
    );
    assert_eq!(table(&traced.results), said, "{}", traced.finished.stderr);
    assert_eq!(
        traced.finished.stderr.matches("has ended").count(),
        3,
        "{}",
        traced.finished.stderr
    );
}

#[test]
fn different_programs_are_counted_in_one_table() {
    let folder = tempfile::tempdir().expect("a folder");
    let other = folder.path().join("another");
    copy_program(&program("member.c"), &other);
    let mut told = vec![Told::start(), Told::of(&other)];
    let mut bash = Running::start(Command::new("/bin/sh").args(["-c", "read line"]));
    let list = format!("{},{}", pids(&told), bash.pid());
    let tracing = trace(
        &["-p", &list],
        &["pid$target:libc:malloc:entry { @[execname, pid] = count(); }"],
    );
    told[0].tell("allocate 500");
    told[1].tell("allocate 900");
    let traced = tracing.interrupt();
    bash.close_input();
    bash.finish();
    for (told, calls) in told.iter().zip(["500", "900"]) {
        let line = traced
            .results
            .lines()
            .find(|line| line.contains(&told.pid().to_string()));
        let line = line.unwrap_or_else(|| panic!("{}", traced.results));
        assert!(line.trim_end().ends_with(calls), "{line}");
        let name = std::fs::read_to_string(format!("/proc/{}/comm", told.pid())).expect("a name");
        assert!(line.contains(name.trim_end()), "{line}");
    }
    end(told);
}

#[test]
fn one_that_cannot_be_attached_is_told_and_the_others_are_traced() {
    let mut told: Vec<Told> = (0..2).map(|_| Told::start()).collect();
    let gone = {
        let mut told = Told::start();
        told.running.close_input();
        let pid = told.pid();
        told.running.finish().success();
        pid
    };
    let list = format!("{},{gone},{}", told[0].pid(), told[1].pid());
    let tracing = trace(&["-p", &list], &[BY_PROCESS]);
    told.iter_mut().for_each(|told| told.tell("call 33"));
    let traced = tracing.interrupt();
    let said = format!("process {gone} is not traced: ");
    assert!(traced.finished.stderr.contains(&said), "{}", traced.finished.stderr);
    assert_eq!(table(&traced.results), end(told));
    let list = format!("{gone},{}", i32::MAX);
    let none = Tracer::new(Form::Default)
        .argument("-p")
        .argument(&list)
        .clause(BY_PROCESS)
        .run();
    assert_eq!(none.finished.code(), 1, "{}", none.finished.stderr);
    assert!(
        none.finished.stderr.contains("none of the processes"),
        "{}",
        none.finished.stderr
    );
}

#[test]
fn a_description_that_matches_in_no_process_is_refused() {
    let told: Vec<Told> = (0..2).map(|_| Told::start()).collect();
    let refused = |clause: &str| {
        let tracer = Tracer::new(Form::Default).argument("-p").argument(pids(&told));
        let traced = tracer.clause(clause).run();
        assert_eq!(traced.finished.code(), 1, "{clause}: {}", traced.finished.stderr);
        traced.finished.stderr
    };
    let said = refused("BEGIN { printf(\"began\"); } pid$target:a.out:caled:entry { @ = count(); }");
    assert!(said.contains("did you mean called"), "{said}");
    let said = refused(&format!(
        "pid{}:a.out:nothing_such:entry {{ @ = count(); }}",
        told[1].pid()
    ));
    assert!(said.contains("nothing_such"), "{said}");
    let said = refused("pid1:a.out:called:entry { @ = count(); }");
    assert!(said.contains("name it by -p"), "{said}");
    end(told);
}

#[test]
fn exit_in_one_process_ends_the_run_of_all() {
    let mut told: Vec<Told> = (0..3).map(|_| Told::start()).collect();
    let last = told[2].pid();
    let tracing = trace(
        &["-p", &pids(&told)],
        &[BY_PROCESS, &format!("pid{last}:a.out:called:entry {{ exit(7); }}")],
    );
    told.iter_mut().for_each(|told| told.tell("call 1"));
    let traced = tracing.finish();
    assert_eq!(traced.finished.code(), 7, "{}", traced.finished.stderr);
    let said = end(told);
    assert_eq!(table(&traced.results), said);
}

/// Processes end while they are attached to, one after the other.
#[test]
fn processes_that_end_meanwhile_harm_nobody() {
    for end_at in 0..8 {
        let mut told: Vec<Told> = (0..4).map(|_| Told::start()).collect();
        let mut tracer = Tracer::new(Form::Default)
            .argument("-v")
            .argument("-p")
            .argument(pids(&told));
        tracer = tracer.clause(BY_PROCESS);
        let mut tracing = tracer.start();
        // At different moments of attaching: no result depends on which.
        std::thread::sleep(std::time::Duration::from_millis(10 * end_at));
        for told in told.drain(1..3) {
            told.running.signal(Signal::SIGKILL);
            told.running.finish();
        }
        wait_until_tracing(&mut tracing.running);
        told.iter_mut().for_each(|told| told.tell("call 12"));
        let traced = tracing.interrupt();
        assert_eq!(table(&traced.results), end(told), "{}", traced.finished.stderr);
    }
}

#[test]
fn all_processes_of_a_killed_tracer_are_restored() {
    let mut told: Vec<Told> = (0..3).map(|_| Told::start()).collect();
    let tracing = trace(&["-p", &pids(&told)], &[BY_PROCESS]);
    told.iter_mut().for_each(|told| told.tell("call 100"));
    tracing.running.signal(Signal::SIGKILL);
    tracing.finish();
    told.iter_mut().for_each(|told| told.tell("call 100"));
    run(Command::new(nanoprobe()).args(["restore", "--all"])).success();
    told.iter_mut().for_each(|told| told.tell("call 100"));
    end(told);
}

#[test]
fn a_name_means_all_processes_that_have_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let name = format!("named{}", std::process::id());
    let path = folder.path().join(&name);
    copy_program(&program("member.c"), &path);
    let mut told: Vec<Told> = (0..3).map(|_| Told::of(&path)).collect();
    let tracing = trace(&["-p", &name], &[BY_PROCESS]);
    told.iter_mut().for_each(|told| told.tell("call 40"));
    let traced = tracing.interrupt();
    // What is done with one process asks for its number.
    for arguments in [
        "restore NAME",
        "-l -n pid$target:::entry -p NAME",
        "cost -n BEGIN -p NAME",
    ] {
        let arguments = arguments.replace("NAME", &name);
        let one = run(Command::new(nanoprobe()).args(arguments.split(' ')));
        for told in &told {
            let line = format!("{:>9} ", told.pid());
            assert!(one.stderr.contains(&line), "{arguments}: {}", one.stderr);
        }
        assert!(
            one.stderr.contains("by its number") && one.code() == 2,
            "{arguments}: {}",
            one.stderr
        );
    }
    assert_eq!(table(&traced.results), end(told), "{}", traced.finished.stderr);
}

/// What a line of results with this process's number ends with.
fn counted(results: &str, pid: i32) -> Option<i64> {
    table(results).get(&pid.to_string()).copied()
}

#[test]
fn those_that_run_a_file_are_traced_and_those_that_come() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, link) = (folder.path().join("one"), folder.path().join("link"));
    copy_program(&program("member.c"), &path);
    std::os::unix::fs::symlink(&path, &link).expect("a link");
    let mut other = Told::start();
    let mut told = vec![Told::of(&path)];
    let mut tracing = trace(&["--exe", &link.display().to_string()], &[BY_PROCESS]);
    told[0].tell("call 100");
    for _ in 0..2 {
        let mut newcomer = Told::of(&path);
        let sign = format!("process {} (one) is traced", newcomer.pid());
        // Before that its calls are not counted, so it makes none.
        tracing
            .running
            .wait_until(&sign, |tracer| tracer.stderr().contains(&sign));
        newcomer.tell("call 1000");
        newcomer.tell("fork 55");
        told.push(newcomer);
    }
    other.tell("call 5");
    // Nobody is left, and the run goes on.
    let mut said = end_before_restored(told);
    let mut last = Told::of(&path);
    let sign = format!("process {} (one) is traced", last.pid());
    tracing
        .running
        .wait_until(&sign, |tracer| tracer.stderr().contains(&sign));
    last.tell("call 3");
    let traced = tracing.interrupt();
    said.extend(last.end());
    assert_eq!(said.len(), 6, "three, two children, and the last");
    assert_eq!(table(&traced.results), said, "{}", traced.finished.stderr);
    other.end();
}

/// Ends processes that are still traced.
#[track_caller]
fn end_before_restored(told: Vec<Told>) -> BTreeMap<String, i64> {
    let mut all = BTreeMap::new();
    for mut told in told {
        all.extend(told.said());
        told.running.close_input();
        told.running.finish().success();
    }
    all
}

#[test]
fn begin_waits_for_the_first_process_of_a_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("one");
    copy_program(&program("member.c"), &path);
    let tracer = Tracer::new(Form::Default)
        .argument("-v")
        .argument("--exe")
        .argument(&path);
    let mut tracing = tracer.clause(BY_PROCESS).clause("BEGIN { printf(\"began\"); }").start();
    let sign = "waiting for the first";
    tracing
        .running
        .wait_until(sign, |tracer| tracer.stderr().contains(sign));
    assert!(!tracing.results().contains("began"));
    let mut told = Told::of(&path);
    wait_until_tracing(&mut tracing.running);
    told.tell("call 60");
    let traced = tracing.interrupt();
    assert_eq!(traced.results.matches("began").count(), 1, "{}", traced.results);
    assert_eq!(counted(&traced.results, told.pid()), Some(60), "{}", traced.results);
    told.end();
}

/// Children of members, and the programs that they execute, are traced from their first instruction, and once.
#[test]
fn children_and_what_they_execute_are_in_the_set_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, other) = (folder.path().join("one"), folder.path().join("other"));
    copy_program(&program("member.c"), &path);
    copy_program(&program("member.c"), &other);
    let mut told = vec![Told::of(&path), Told::of(&path)];
    let exe = path.display().to_string();
    let tracing = trace(&["--exe", &exe, "-x", "follow=all"], &[BY_PROCESS]);
    for told in &mut told {
        for _ in 0..3 {
            told.tell("fork 20");
            told.tell(&format!("execute {exe} 300"));
            told.tell(&format!("execute {} 4000", other.display()));
        }
    }
    let traced = tracing.interrupt();
    let said = end(told);
    assert_eq!((said.len(), said.values().sum::<i64>()), (18, 2 * 3 * 4320));
    assert_eq!(table(&traced.results), said, "{}", traced.finished.stderr);
    assert_nothing_lost(&traced.finished.stderr);
}

#[test]
fn programs_that_members_execute_are_traced_by_their_program() {
    let mut told: Vec<Told> = (0..2).map(|_| Told::start()).collect();
    let file = program("member.c").display().to_string();
    let tracing = trace(&["-p", &pids(&told), "-x", "follow=exec"], &[BY_PROCESS]);
    for told in &mut told {
        told.tell("call 10");
        told.tell(&format!("execute {file} 300"));
    }
    let traced = tracing.interrupt();
    let said = end(told);
    assert_eq!((said.len(), said.values().sum::<i64>()), (4, 620));
    assert_eq!(table(&traced.results), said, "{}", traced.finished.stderr);
}

/// Makes a cgroup, if this machine permits it.
fn made_cgroup(what: &str) -> Option<std::path::PathBuf> {
    let own = format!("nanoprobe-test-{}-{}", std::process::id(), what.replace(' ', "-"));
    let roots = [
        "/sys/fs/cgroup",
        "/sys/fs/cgroup/unified",
        "/sys/fs/cgroup/memory",
        "/sys/fs/cgroup/pids",
    ];
    let folders = roots.iter().map(|root| Path::new(root).join(&own));
    let mut made = folders.filter(|folder| std::fs::create_dir(folder).is_ok());
    let found = made.find(|folder| {
        // A folder of another file system has no such file.
        let is_cgroup = folder.join("cgroup.procs").is_file();
        if !is_cgroup {
            let _ = std::fs::remove_dir(folder);
        }
        is_cgroup
    });
    if found.is_none() {
        left_out(what, "no cgroup can be made here");
    }
    found
}

/// Moves a process; false: that is not permitted here.
fn moved(folder: &Path, told: &Told) -> bool {
    std::fs::write(folder.join("cgroup.procs"), told.pid().to_string()).is_ok()
}

#[test]
fn all_of_a_cgroup_and_of_those_below_it_are_traced() {
    let what = "tracing a cgroup";
    let Some(folder) = made_cgroup(what) else { return };
    let below = folder.join("below");
    let mut told: Vec<Told> = (0..3).map(|_| Told::start()).collect();
    let is_made = std::fs::create_dir(&below).is_ok() && moved(&folder, &told[0]) && moved(&below, &told[1]);
    if is_made {
        let path = folder.file_name().expect("a name").to_str().expect("a text");
        let mut tracing = trace(&["--cgroup", path], &[BY_PROCESS]);
        told.iter_mut().for_each(|told| told.tell("call 70"));
        // The third one is moved into the cgroup.
        assert!(moved(&below, &told[2]), "as before");
        let sign = format!("process {} (", told[2].pid());
        tracing
            .running
            .wait_until(&sign, |tracer| tracer.stderr().contains(&sign));
        told[2].tell("call 9");
        let ends = told.iter().map(Told::pid).collect::<Vec<i32>>();
        end_before_restored(told);
        // The run ends with the cgroup.
        remove_cgroup(&below);
        remove_cgroup(&folder);
        let traced = tracing.finish().success();
        let counts: Vec<_> = ends.iter().map(|pid| counted(&traced.results, *pid)).collect();
        assert_eq!(counts, [Some(70), Some(70), Some(9)], "{}", traced.finished.stderr);
    } else {
        left_out(what, "no process can be moved into a cgroup here");
        end_before_restored(told);
        let _ = std::fs::remove_dir(&below);
        let _ = std::fs::remove_dir(&folder);
    }
    let none = Tracer::new(Form::Default)
        .argument("--cgroup")
        .argument("nothing/there");
    let none = none.clause("BEGIN").run().finished;
    assert!(
        none.stderr.contains("no such cgroup") && none.code() == 2,
        "{}",
        none.stderr
    );
}

/// A cgroup is empty a moment after its last process was waited for.
fn remove_cgroup(folder: &Path) {
    let start = std::time::Instant::now();
    while std::fs::remove_dir(folder).is_err() {
        assert!(start.elapsed() < nanoprobe_tests::LIMIT, "{}", folder.display());
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
}

#[test]
fn a_container_is_found_by_the_beginning_of_its_id() {
    let what = "tracing a container";
    let Some(folder) = made_cgroup(what) else { return };
    // IDs that no container has: they begin with the number of this process.
    let ids: Vec<String> = ["a", "b"]
        .map(|last| format!("{:08x}{}", std::process::id(), last.repeat(56)))
        .into();
    let folders = [folder.join(format!("docker-{}.scope", ids[0])), folder.join(&ids[1])];
    let mut told: Vec<Told> = (0..2).map(|_| Told::start()).collect();
    let mut both = folders.iter().zip(&told);
    let is_made = both.all(|(folder, told)| std::fs::create_dir(folder).is_ok() && moved(folder, told));
    let is_shown = |told: &Told| {
        let text = std::fs::read_to_string(format!("/proc/{}/cgroup", told.pid())).unwrap_or_default();
        ids.iter().any(|id| text.contains(id))
    };
    if is_made && told.iter().all(is_shown) {
        let tracing = trace(&["--container", &ids[0][..9]], &[BY_PROCESS]);
        told.iter_mut().for_each(|told| told.tell("call 11"));
        let traced = tracing.interrupt();
        assert_eq!(counted(&traced.results, told[0].pid()), Some(11), "{}", traced.results);
        assert_eq!(counted(&traced.results, told[1].pid()), None, "{}", traced.results);
        let both = Tracer::new(Form::Default)
            .argument("--container")
            .argument(&ids[0][..8]);
        let both = both.clause("BEGIN").run().finished;
        assert!(
            ids.iter().all(|id| both.stderr.contains(id)) && both.code() == 2,
            "{}",
            both.stderr
        );
    } else {
        left_out(what, "no process can be moved into a cgroup here");
    }
    end_before_restored(told);
    for folder in folders.iter().chain([&folder]).filter(|folder| folder.exists()) {
        remove_cgroup(folder);
    }
}
