//! The provider `io`: what a program reads from files and writes to them, as the program itself counts it.

use std::collections::BTreeMap;
use std::path::Path;

use nanoprobe_tests::live_tests;
use nanoprobe_tests::program::{Build, need_program, program};
use nanoprobe_tests::results::said;
use nanoprobe_tests::tracer::{Form, Traced, assert_nothing_lost};

use crate::{traced_from_start, traced_when_attached};

/// The lines `field file.direction number` about the program's own files.
fn rows(text: &str) -> BTreeMap<String, i64> {
    let mut rows = BTreeMap::new();
    for line in text.lines() {
        if let [field, file, number] = *line.split_whitespace().collect::<Vec<_>>()
            && let Ok(number) = number.parse()
        {
            rows.insert(format!("{field} {file}"), number);
        }
    }
    rows
}

const CLAUSES: &str = "#pragma D option quiet
    io:::start /args[2]->fi_name == \"data\" || args[2]->fi_name == \"copy\"/ {
        this->flag = args[0]->b_flags & B_READ ? \"R\" : args[0]->b_flags & B_WRITE ? \"W\" : \"?\";
        @start[args[2]->fi_name, this->flag] = count();
        @asked[args[2]->fi_name, this->flag] = sum(args[0]->b_bcount);
        self->operation = arg0;
    }
    io:::done /args[2]->fi_name == \"data\" || args[2]->fi_name == \"copy\"/ {
        this->flag = args[0]->b_flags & B_READ ? \"R\" : args[0]->b_flags & B_WRITE ? \"W\" : \"?\";
        @done[args[2]->fi_name, this->flag] = count();
        @moved[args[2]->fi_name, this->flag] = sum(args[0]->b_bcount - args[0]->b_resid);
        @failed[args[2]->fi_name, this->flag] = sum(args[0]->b_error == 9 && args[0]->b_flags & B_ERROR ? 1 : 0);
        @strange[args[2]->fi_name, \"error\"] = sum(args[0]->b_error != 0 && args[0]->b_error != 9);
        @strange[args[2]->fi_name, \"pair\"] = sum(self->operation != arg0);
    }
    io:::wait-start, io:::wait-done /args[2]->fi_name == \"data\"/ { @waits[probename, \"data\"] = count(); }
    io:::start /strstr(args[2]->fi_pathname, \"/\") == NULL || args[2]->fi_pathname == \"/dev/null\"/
        { @strange[args[2]->fi_pathname, \"file\"] = sum(1); }
    END {
        printa(\"start %s.%s %@d\\n\", @start); printa(\"asked %s.%s %@d\\n\", @asked);
        printa(\"done %s.%s %@d\\n\", @done); printa(\"moved %s.%s %@d\\n\", @moved);
        printa(\"failed %s.%s %@d\\n\", @failed); printa(\"strange %s.%s %@d\\n\", @strange);
        printa(\"%s %s %@d\\n\", @waits);
    }";

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
    /// Calls, bytes and errors of each file and direction; nothing of pipes, sockets and devices.
    fn files_are_read_and_written_as_the_program_says(form) {
        for (build, attached) in [(Build::Usual, false), (Build::Usual, true), (Build::MuslStatic, false)] {
            let Some(program) = need_program("disk.c", build) else { continue };
            let arguments = format!("4 {}", form.scale(500, 20));
            let (stdout, traced) = traced(attached, form, &program, &arguments);
            assert_nothing_lost(&traced.finished.stderr);
            let (stdout, rows) = (&stdout, rows(&traced.results));
            for file in ["data.R", "data.W", "copy.W"] {
                for field in ["start", "asked", "moved", "failed"] {
                    let name = format!("{field} {file}");
                    assert_eq!(rows[&name], said(stdout, &name), "{name}: {}", traced.results);
                }
                assert_eq!(rows[&format!("done {file}")], said(stdout, &format!("start {file}")));
            }
            assert_eq!(said(stdout, "start copy.R"), 0);
            assert!(!rows.contains_key("start copy.R"), "{rows:?}");
            let reads_and_writes = said(stdout, "start data.R") + said(stdout, "start data.W");
            assert_eq!(rows["wait-start data"], reads_and_writes);
            assert_eq!(rows["wait-done data"], reads_and_writes);
            let strange: Vec<_> = rows.iter().filter(|(name, count)| name.starts_with("strange") && **count != 0).collect();
            assert!(strange.is_empty(), "{strange:?}");
        }
    }

    /// The clauses of one probe run in the order of the text, also beside those of the call that it follows from.
    fn clauses_keep_their_order(form) {
        let clauses = "#pragma D option quiet
            syscall::pwrite64:entry { self->order = 1; }
            io:::start /self->order == 1/ { self->order = 2; }
            syscall::pwrite64:entry, io:::start /self->order == 2/ { @[probeprov, probefunc, probename] = count(); }
            io:::start /self->order == 2 && probefunc == \"\" && probemod == \"vmlinux\"/ { @all = count(); }
            syscall::pwrite64:return { self->order = 0; }
            END { printa(\"%s.%s.%s seen %@d\\n\", @); printa(\"all seen %@d\\n\", @all); }";
        let program = program("disk.c");
        let arguments = format!("2 {}", form.scale(200, 10));
        let traced = traced_from_start(form, clauses, &program, &arguments);
        assert_nothing_lost(&traced.finished.stderr);
        let calls = i64::try_from(2 * 2 * form.scale(200, 10)).expect("few");
        let rows = rows(&traced.results);
        for name in ["syscall.pwrite64.entry seen", "io..start seen", "all seen"] {
            assert_eq!(rows[name], calls, "{}", traced.results);
        }
        assert_eq!(rows.len(), 3, "{rows:?}");
    }

    /// The file system is the one that df shows; pipes and sockets are on the kernel's own.
    fn files_are_on_the_file_systems_that_df_shows(form) {
        let clauses = "#pragma D option quiet
            syscall::pwrite64:entry { @[fds[arg0].fi_fs, fds[arg0].fi_mount] = count(); }
            io:::done /args[2]->fi_name == \"copy\"/ { @[args[2]->fi_fs, args[2]->fi_mount] = count(); }
            syscall::write:entry { @others[fds[arg0].fi_fs, fds[arg0].fi_mount] = count(); }
            END { printa(\"on %s|%s %@d\\n\", @); printa(\"other %s|%s %@d\\n\", @others); }";
        let traced = traced_from_start(form, clauses, &program("disk.c"), "1 5");
        assert_nothing_lost(&traced.finished.stderr);
        let df = std::process::Command::new("df").args(["--output=fstype,target", "/tmp"]).output().expect("df");
        let df = String::from_utf8_lossy(&df.stdout).into_owned();
        let (name, folder) = df.lines().last().and_then(|line| line.split_once(' ')).expect("a line");
        let results = &traced.results;
        let on: Vec<&str> = results.lines().filter(|line| line.starts_with("on ")).collect();
        assert!(on.len() == 1 && on[0].starts_with(&format!("on {name}|{} ", folder.trim())), "{df}: {results}");
        for other in ["pipefs", "sockfs"] {
            assert!(results.contains(&format!("other {other}|<unknown> ")), "{results}");
        }
    }
}
