//! Programs that traced processes execute (`-x follow=exec`, `all`): each call of each program is counted once, under
//! its process's number, and the programs' results are the same.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nanoprobe_tests::LIMIT;
use nanoprobe_tests::left_out::need_command;
use nanoprobe_tests::program::{copy_program, program};
use nanoprobe_tests::results::table;
use nanoprobe_tests::tracer::{Form, Traced, Tracer, assert_nothing_lost, start_waiting};
use nix::sys::signal::Signal;

const BY_PROCESS: &str = "pid$target:a.out:called:entry { @[pid] = count(); }";

fn following(what: &str) -> Tracer {
    Tracer::new(Form::Default).argument("-x").argument(what)
}

/// The programs' own reports. A process may execute several programs.
fn said_by_processes(stdout: &str) -> BTreeMap<String, i64> {
    let mut said = BTreeMap::new();
    for line in stdout.lines().filter_map(|line| line.strip_prefix("by ")) {
        let (pid, calls) = line.split_once(' ').expect("a number and a count");
        *said.entry(pid.to_owned()).or_default() += calls.parse::<i64>().expect("a count");
    }
    said
}

/// Traces the program with these arguments. Its processes call so often.
#[track_caller]
fn traced(what: &str, arguments: &str, processes: usize, calls: i64) -> Traced {
    let traced = following(what)
        .clause(BY_PROCESS)
        .command(&program("executes.c"), arguments)
        .run()
        .success();
    let said = said_by_processes(&traced.finished.stdout);
    assert_eq!(
        (said.len(), said.values().sum::<i64>()),
        (processes, calls),
        "{}",
        traced.finished.stderr
    );
    assert_eq!(table(&traced.results), said, "{}", traced.finished.stderr);
    assert_nothing_lost(&traced.finished.stderr);
    traced
}

#[test]
fn a_program_that_executes_itself_is_traced_each_time() {
    for what in ["follow=exec", "follow=all"] {
        traced(what, "self 5 100", 1, 600);
    }
}

#[test]
fn children_that_execute_are_traced_however_they_were_made() {
    for how in ["fork", "vfork", "spawn"] {
        for what in ["follow=exec", "follow=all"] {
            traced(what, &format!("{how} 5 100"), 5, 500);
        }
    }
}

#[test]
fn children_that_execute_at_the_same_time_are_traced() {
    traced("follow=all", "together 40 100", 40, 4000);
}

#[test]
fn a_thread_that_executes_takes_its_process_along() {
    traced("follow=all", "thread 100", 1, 100);
}

#[test]
fn executions_that_fail_change_nothing() {
    traced("follow=all", "fails 20 100", 1, 100);
}

#[test]
fn a_program_is_found_along_the_path() {
    let folder = tempfile::tempdir().expect("a folder");
    let (first, last) = (folder.path().join("first"), folder.path().join("last"));
    std::fs::create_dir_all(first.join("executes-here")).expect("a folder in the place of a program");
    std::fs::create_dir_all(&last).expect("a folder");
    std::os::unix::fs::symlink(program("executes.c"), last.join("executes-here")).expect("a link");
    let path = format!("/nothing:{}:{}", first.display(), last.display());
    let arguments = format!("PATH={path} {} path 4 100", program("executes.c").display());
    let traced = following("follow=all")
        .clause(BY_PROCESS)
        .command(Path::new("/usr/bin/env"), &arguments)
        .run()
        .success();
    let said = said_by_processes(&traced.finished.stdout);
    assert_eq!(
        (said.len(), said.values().sum::<i64>()),
        (4, 400),
        "{}",
        traced.finished.stderr
    );
    assert_eq!(table(&traced.results), said);
}

/// A script with a pipeline and a loop. `$target` is the shell, and the description means every program.
#[test]
fn the_programs_of_a_shell_script_are_traced() {
    let folder = tempfile::tempdir().expect("a folder");
    let script = folder.path().join("script");
    let executes = program("executes.c").display().to_string();
    let text = format!(
        "#!/bin/sh\nfor i in 1 2 3 4 5 6 7 8 9 10; do {executes} call $i; done\n{executes} call 100 | cat\nexec {executes} call 7\n"
    );
    std::fs::write(&script, text).expect("a script");
    let traced = following("follow=exec")
        .clause(BY_PROCESS)
        .clause("BEGIN { printf(\"began\\n\"); } END { printf(\"ended\\n\"); }")
        .command(Path::new("/bin/sh"), &script.display().to_string())
        .run()
        .success();
    let said = said_by_processes(&traced.finished.stdout);
    assert_eq!(
        (said.len(), said.values().sum::<i64>()),
        (12, 55 + 107),
        "{}",
        traced.finished.stderr
    );
    let counted: i64 = table(&traced.results)
        .iter()
        .filter(|(pid, _)| said.contains_key(*pid))
        .map(|(_, calls)| calls)
        .sum();
    assert_eq!(counted, 55 + 107, "{}", traced.finished.stderr);
    for once in ["began", "ended"] {
        assert_eq!(traced.results.matches(once).count(), 1, "{}", traced.results);
    }
}

/// Python starts programs by fork, vfork and posix_spawn, and its own processes in three ways.
#[test]
fn the_programs_that_python_starts_are_traced() {
    const SCRIPT: &str = "import multiprocessing, subprocess, sys
def work(calls):
    return subprocess.run([sys.argv[1], 'call', str(calls)], stdout=subprocess.PIPE).stdout.decode()
if __name__ == '__main__':
    results = [work(3), subprocess.run(sys.argv[1] + ' call 5 | cat', shell=True, stdout=subprocess.PIPE).stdout.decode()]
    for way in ('fork', 'spawn', 'forkserver'):
        with multiprocessing.get_context(way).Pool(2) as pool:
            results += pool.map(work, [6, 7])
    sys.stdout.write(''.join(results))
";
    let Some(python) = need_command("programs that python starts", "python3") else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let script = folder.path().join("starts.py");
    std::fs::write(&script, SCRIPT).expect("a script");
    let arguments = format!("{} {}", script.display(), program("executes.c").display());
    let traced = following("follow=exec")
        .clause(BY_PROCESS)
        .command(&python, &arguments)
        .run()
        .success();
    let said = said_by_processes(&traced.finished.stdout);
    assert_eq!((said.len(), said.values().sum::<i64>()), (8, 3 + 5 + 3 * 13));
    assert_eq!(table(&traced.results), said, "{}", traced.finished.stderr);
}

#[test]
fn a_running_process_is_followed_too() {
    let mut target = start_waiting(&program("executes.c"), "spawn 5 100");
    let tracing = following("follow=all").clause(BY_PROCESS).trace(target.pid());
    target.go();
    let finished = target.finish().success();
    let traced = tracing.finish().success();
    let said = said_by_processes(&finished.stdout);
    assert_eq!(said.values().sum::<i64>(), 500);
    assert_eq!(table(&traced.results), said);
}

/// A set-user-ID program keeps its rights: it is not traced, and that is told.
#[test]
fn a_set_user_id_program_is_left_alone_and_told() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().expect("a folder");
    let copy = folder.path().join("privileged");
    copy_program(&program("executes.c"), &copy);
    std::fs::set_permissions(&copy, std::fs::Permissions::from_mode(0o4755)).expect("its mode");
    let traced = following("follow=all")
        .clause(BY_PROCESS)
        .command(Path::new("/usr/bin/env"), &format!("{} call 10", copy.display()))
        .run();
    assert!(traced.finished.stdout.contains("by "), "{}", traced.finished.stdout);
    assert!(
        traced.finished.stderr.contains("set-user-ID"),
        "{}",
        traced.finished.stderr
    );
}

/// Waits until a further change of a file would show a later time: only then the tracer keeps what it knows of it.
fn wait_until_settled(path: &Path) {
    use std::os::unix::fs::MetadataExt as _;
    let deadline = Instant::now() + LIMIT;
    let is_settled = || {
        let changed = std::fs::metadata(path).expect("a file").ctime();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time").as_secs();
        now as i64 > changed + 3
    };
    while !is_settled() {
        assert!(
            Instant::now() < deadline,
            "the clock does not pass the file's last change"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The numbers of mapped files that were read, and that were known from another process.
fn mapped_files(stderr: &str) -> (u64, u64) {
    let line = stderr
        .lines()
        .find_map(|line| line.strip_prefix("nanoprobe: mapped files: "));
    let line = line.unwrap_or_else(|| panic!("no counts of files: {stderr}"));
    let mut numbers = line.split_whitespace().filter_map(|word| word.parse().ok());
    numbers.next().zip(numbers.next()).expect("two numbers")
}

#[test]
fn a_file_is_read_once_for_all_programs_that_map_it() {
    let program = program("executes.c");
    wait_until_settled(&program);
    let traced = following("follow=all")
        .argument("-v")
        .clause(BY_PROCESS)
        .command(&program, "spawn 6 10")
        .run()
        .success();
    assert_eq!(table(&traced.results), said_by_processes(&traced.finished.stdout));
    let (read, known) = mapped_files(&traced.finished.stderr);
    assert!(read >= 2 && known == 6 * read, "{}", traced.finished.stderr);
}

/// Two programs with functions at other places, one after the other in the same file: inode, length and the time of
/// the last write are the same.
#[test]
fn a_program_that_was_replaced_is_planned_anew() {
    let folder = tempfile::tempdir().expect("a folder");
    let (file, script) = (folder.path().join("replaced"), folder.path().join("script"));
    copy_program(&program("executes.c"), &file);
    let text = format!(
        "#!/bin/sh
        alike() {{ truncate -s 1000000 $1; touch -d @1000000000 $1; }}
        alike {file}
        settle() {{ while [ $(date +%s) -le $(($(stat -c %Z {file}) + 3)) ]; do sleep 0.1; done; }}
        settle
        {file} call 10
        {file} call 20
        cat {other} > {file}
        alike {file}
        settle
        {file} fork 2 30
        {file} fork 2 40
        ",
        file = file.display(),
        other = program("tree.c").display()
    );
    std::fs::write(&script, text).expect("a script");
    let traced = following("follow=all")
        .clause("pid$target:replaced:called:entry { @[pid] = count(); }")
        .command(Path::new("/bin/sh"), &script.display().to_string())
        .run()
        .success();
    let said = said_by_processes(&traced.finished.stdout);
    assert_eq!(said.len(), 8, "{}", traced.finished.stdout);
    assert_eq!(table(&traced.results), said, "{}", traced.finished.stderr);
}

/// The tracer is killed while programs come and go: they run on.
#[test]
fn programs_of_a_killed_tracer_run_on() {
    for pause in [0, 30, 80, 200] {
        let mut target = start_waiting(&program("executes.c"), "spawn 30 1000");
        let tracing = following("follow=all").clause(BY_PROCESS).trace(target.pid());
        target.go();
        std::thread::sleep(Duration::from_millis(pause));
        tracing.running.signal(Signal::SIGKILL);
        tracing.finish();
        let finished = target.finish().success();
        assert_eq!(said_by_processes(&finished.stdout).values().sum::<i64>(), 30_000);
    }
}
