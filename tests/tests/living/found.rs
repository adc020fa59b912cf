//! Processes that are found while tracing (`--exe`, `--cgroup`, `--container`), and what members of a set fork and
//! execute.

use std::path::Path;

use nanoprobe_tests::left_out::left_out;
use nanoprobe_tests::program::{copy_program, program};
use nanoprobe_tests::results::table;
use nanoprobe_tests::tracer::{Form, Tracer, assert_nothing_lost, wait_until_tracing};

use crate::told::{BY_PROCESS, Told, end, end_before_restored, pids, trace};

/// The count of a process in a table of counts by process number.
fn counted(results: &str, pid: i32) -> Option<i64> {
    table(results).get(&pid.to_string()).copied()
}

#[test]
fn processes_that_run_a_file_are_traced_and_later_ones_too() {
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
    // No member is left, and the run goes on.
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
