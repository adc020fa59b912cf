//! The provider `proc`: processes, threads, programs and signals, as the program itself counts them.

use std::collections::BTreeMap;
use std::path::Path;

use nanoprobe_tests::live_tests;
use nanoprobe_tests::program::{Build, need_program};
use nanoprobe_tests::results::{said, table};
use nanoprobe_tests::tracer::{Form, Traced, Tracer, assert_nothing_lost};

use crate::{traced_from_start, traced_when_attached};

/// The aggregation that has a name for each probe.
fn rows(results: &str) -> BTreeMap<String, i64> {
    table(&results.lines().map(|line| format!("  {line}\n")).collect::<String>())
}

const CLAUSES: &str = "#pragma D option quiet
    #pragma D option follow=no
    proc:::create { @[\"processes\"] = sum(1); @[\"ours\"] = sum(args[0]->pr_ppid == pid && args[0]->pr_pid > pid); }
    proc:::exec { @[\"programs\"] = sum(1); @[strjoin(\"path\", args[0])] = sum(1); }
    proc:::exec-failure { @[\"failures\"] = sum(1); @[\"denied\"] = sum(args[0] == 13); }
    proc:::lwp-create { @[\"threads\"] = sum(1); @[\"lwps\"] = sum(args[0]->pr_lwpid > 0 && args[1]->pr_pid == pid); }
    proc:::lwp-exit { @[\"ends\"] = sum(1); }
    proc:::exit { @[\"exits\"] = sum(1); @[\"exited\"] = sum(args[0] == 1); }
    proc:::signal-clear { @[\"cleared\"] = sum(1); @[\"power\"] = sum(args[0] == SIGPWR); }
    proc:::signal-send { @[strjoin(\"signal\", lltostr(args[2]))] = sum(1); }
    proc:::signal-send /args[1]->pr_pid == pid/ { @[strjoin(\"own\", lltostr(args[2]))] = sum(1); }
    proc:::signal-send /args[1]->pr_pid > pid/ { @[strjoin(\"child\", stringof(args[1]->pr_fname))] = sum(1); }
    proc:::signal-send /args[0]->pr_lwpid > pid && args[2] == SIGWINCH/ { @[\"thread\"] = sum(1); }
    END { printa(\"%s %@d\\n\", @); }";

/// The output of the program, and the results: traced from its start, or attached to.
fn traced(attached: bool, form: Form, program: &Path, arguments: &str) -> (String, Traced) {
    if attached {
        let (target, traced) = traced_when_attached(form, CLAUSES, program, arguments);
        return (target.stdout, traced);
    }
    let traced = traced_from_start(form, CLAUSES, program, arguments);
    (traced.finished.stdout.clone(), traced)
}

live_tests! {
    /// Counts and arguments of each probe; a signal 0, and calls that fail, send nothing.
    fn what_a_program_makes(form) {
        for (build, attached) in [(Build::Usual, false), (Build::Usual, true), (Build::MuslStatic, false)] {
            let Some(program) = need_program("procs.c", build) else { continue };
            let rounds = form.scale(20, 5);
            let (stdout, traced) = traced(attached, form, &program, &rounds.to_string());
            assert_nothing_lost(&traced.finished.stderr);
            let (stdout, rows) = (&stdout, rows(&traced.results));
            let rounds = i64::try_from(rounds).expect("few");
            for name in ["processes", "programs", "failures", "denied", "threads", "exits", "cleared"] {
                assert_eq!(rows[name], said(stdout, name), "{name}: {}", traced.results);
            }
            for (name, same) in [("ours", "processes"), ("lwps", "threads"), ("ends", "threads"), ("exited", "exits"), ("power", "cleared")] {
                assert_eq!(rows[name], rows[same], "{name}: {}", traced.results);
            }
            for signal in [10, 12, 17, 18, 23, 28, 29, 30] {
                let name = format!("signal{signal}");
                assert_eq!(rows[&name], said(stdout, &name), "{}", traced.results);
            }
            let sent: i64 = rows.iter().filter(|(name, _)| name.starts_with("signal")).map(|(_, count)| count).sum();
            assert_eq!(sent, 8 * rounds, "{}", traced.results);
            for own in [10, 12, 23, 30] {
                assert_eq!(rows[&format!("own{own}")], rounds, "{}", traced.results);
            }
            // musl's pthread_kill() is a tkill, which names no process.
            let named = (build == Build::Usual).then_some(rounds);
            assert_eq!(rows.get("own28").copied(), named, "{}", traced.results);
            let name = program.file_name().expect("a name").to_string_lossy();
            assert_eq!(rows[&format!("child{name}")], 2 * rounds, "{}", traced.results);
            assert_eq!(rows["thread"], rounds);
            assert_eq!(rows["path/bin/true"], 2 * rounds);
            assert_eq!(rows["path/no/such/program"], rounds);
        }
    }

    /// Each process that fork makes begins once, with its own number, and each thread; what vfork makes does not.
    fn what_begins(form) {
        let clauses = "#pragma D option quiet
            #pragma D option follow=fork
            proc:::start { @[\"forks\"] = sum(1); @[\"other\"] = sum(pid != $target && ppid == $target); begun[pid]++; }
            proc:::start { @[\"main\"] = sum(tid == pid); self->began = 1; }
            syscall::exit_group:entry /pid != $target/ { @[\"kept\"] = sum(self->began); }
            proc:::start /begun[pid] > 1/ { @[\"again\"] = sum(1); }
            proc:::create { @[\"processes\"] = sum(1); }
            proc:::lwp-create { @[\"threads\"] = sum(1); @[\"created\"] = sum(args[0]->pr_lwpid); }
            proc:::lwp-start { @[\"began\"] = sum(1); @[\"own\"] = sum(tid != pid && pid == $target); }
            proc:::lwp-start { @[\"numbers\"] = sum(tid); self->seen++; @[\"variables\"] = sum(self->seen - 1); }
            syscall::clone*:return, syscall::fork:return { @[\"child returns\"] = sum(arg0 == 0); }
            END { printa(\"%s %@d\\n\", @); }";
        for (build, attached) in [(Build::Usual, false), (Build::Usual, true), (Build::MuslStatic, false)] {
            let Some(program) = need_program("procs.c", build) else { continue };
            let rounds = form.scale(20, 5).to_string();
            let (stdout, results, stderr) = if attached {
                let (target, traced) = traced_when_attached(form, clauses, &program, &rounds);
                (target.stdout, traced.results, traced.finished.stderr)
            } else {
                let traced = traced_from_start(form, clauses, &program, &rounds);
                (traced.finished.stdout, traced.results, traced.finished.stderr)
            };
            assert_nothing_lost(&stderr);
            let rows = rows(&results);
            assert_eq!(rows["forks"], said(&stdout, "forks"), "{results}");
            assert_eq!(rows["other"], rows["forks"], "{results}");
            assert_eq!((rows["main"], rows["kept"]), (rows["forks"], rows["forks"]), "{results}");
            assert_eq!(rows["threads"], said(&stdout, "threads"), "{results}");
            assert_eq!(rows["began"], rows["threads"], "{results}");
            assert_eq!(rows["own"], rows["threads"], "{results}");
            // Threads get the thread pointers of earlier ones, but neither their numbers nor their variables.
            assert_eq!((rows["numbers"], rows["variables"]), (rows["created"], 0), "{results}");
            assert_eq!(rows.get("again"), None, "{results}");
            assert_eq!(rows["child returns"], 0, "{results}");
        }
    }

    /// What DTrace's kernel counts: as the program says, and as the calls themselves say.
    fn the_counts_of_sysinfo(form) {
        let clauses = "#pragma D option quiet
            sysinfo:::sysexec { @[\"programs\"] = sum(arg0); }
            sysinfo:::sysfork, sysinfo:::sysvfork { @[\"processes\"] = sum(arg0); @[probename] = sum(1); }
            sysinfo:::sysread, sysinfo:::syswrite { @[probename] = sum(arg0); }
            sysinfo:::readch, sysinfo:::writech { @[probename] = sum(arg0); }
            syscall::read:entry, syscall::readv:entry, syscall::pread*:entry { @[\"reads\"] = sum(1); }
            syscall::write:entry, syscall::writev:entry, syscall::pwrite*:entry { @[\"writes\"] = sum(1); }
            syscall::read:return, syscall::readv:return, syscall::pread*:return /arg0 >= 0/
                { @[\"bytes read\"] = sum(arg0); }
            syscall::write:return, syscall::writev:return, syscall::pwrite*:return /arg0 >= 0/
                { @[\"bytes written\"] = sum(arg0); }
            END { printa(\"%s %@d\\n\", @); }";
        for build in [Build::Usual, Build::MuslStatic] {
            let Some(program) = need_program("procs.c", build) else { continue };
            let rounds = form.scale(20, 5);
            let traced = traced_from_start(form, clauses, &program, &rounds.to_string());
            assert_nothing_lost(&traced.finished.stderr);
            let (stdout, rows) = (&traced.finished.stdout, rows(&traced.results));
            for name in ["programs", "processes"] {
                assert_eq!(rows[name], said(stdout, name), "{name}: {}", traced.results);
            }
            assert!(rows["sysfork"] > 0 && rows["sysvfork"] > 0, "{}", traced.results);
        }
        for build in [Build::Usual, Build::MuslStatic] {
            let Some(program) = need_program("disk.c", build) else { continue };
            let traced = traced_from_start(form, clauses, &program, &format!("2 {}", form.scale(200, 10)));
            assert_nothing_lost(&traced.finished.stderr);
            let (stdout, rows) = (&traced.finished.stdout, rows(&traced.results));
            // Pipes and sockets, too, but neither sendfile nor copy_file_range.
            assert!(rows["readch"] > said(stdout, "moved data.R") - 2 * 1_100, "{}", traced.results);
            assert!(rows["sysread"] > said(stdout, "start data.R") - 2 * 2, "{}", traced.results);
            for (ours, calls) in [("sysread", "reads"), ("readch", "bytes read"), ("syswrite", "writes"), ("writech", "bytes written")] {
                assert_eq!(rows[ours], rows[calls], "{}", traced.results);
            }
        }
    }
}

/// A new program is told before its first call, once, with its own name; the command itself was not executed by a
/// traced process.
#[test]
fn executed_programs_are_told() {
    let clauses = "#pragma D option quiet
        BEGIN { first = 7; kind[\"echo\"] = 3; }
        proc:::exec { @[execname, args[0]] = sum(1); first++; }
        proc:::exec-success { @[execname, \"begins\"] = sum(1); }
        proc:::exec-success /first != 7 || kind[\"echo\"] != 3/ { @[\"other\", \"variables\"] = sum(1); }
        proc:::exec-success { self->begun = timestamp; }
        proc:::exit /self->begun && timestamp > self->begun/ { @[execname, \"knows\"] = sum(1); }
        proc:::exec-success /begun[pid]++/ { @[\"again\", \"\"] = sum(1); }
        syscall:::entry /execname != \"sh\" && !begun[pid]/ { @[\"before\", \"\"] = sum(1); }
        proc:::exit { @[execname, \"ends\"] = sum(1); }
        END { printa(\"%s.%s %@d\\n\", @); }";
    let folder = tempfile::tempdir().expect("a folder");
    let script = folder.path().join("script");
    let lines = "/bin/true; /bin/true; /bin/echo one; exec /bin/cat /dev/null\n";
    std::fs::write(&script, lines).expect("a script");
    let traced = Tracer::new(Form::Default)
        .clause(clauses)
        .argument("-x")
        .argument("follow=all")
        .command(Path::new("/bin/sh"), &script.display().to_string())
        .run()
        .success();
    assert_nothing_lost(&traced.finished.stderr);
    let rows = rows(&traced.results);
    let expected = [
        ("cat.begins", 1),
        ("cat.ends", 1),
        ("cat.knows", 1),
        ("echo.begins", 1),
        ("echo.ends", 1),
        ("echo.knows", 1),
        ("sh./bin/cat", 1),
        ("sh./bin/echo", 1),
        ("sh./bin/true", 2),
        ("true.begins", 2),
        ("true.ends", 2),
        ("true.knows", 2),
    ];
    let expected = expected.map(|(name, count)| (name.to_owned(), count));
    assert_eq!(rows, BTreeMap::from(expected), "{}", traced.results);
}
