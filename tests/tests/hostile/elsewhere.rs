//! Programs whose files are not at the paths that we see: in a changed root, and on an overlay of two directories. For
//! each module the very file is read that is mapped; otherwise the module is refused.

use std::path::{Path, PathBuf};
use std::process::Command;

use nanoprobe_tests::command::{Finished, Running, run};
use nanoprobe_tests::left_out::{is_root_of_the_machine, left_out, need_command};
use nanoprobe_tests::live_tests;
use nanoprobe_tests::program::{Build, copy_program, need_program, program};
use nanoprobe_tests::results::{said, table};
use nanoprobe_tests::text::differences;
use nanoprobe_tests::tracer::{Form, Traced, Tracer, assert_nothing_lost};

const CLAUSE: &str = "pid$target:a.out:uprobed_other:entry,pid$target:uprobed.so:uprobed_function:entry
                      { @[probefunc] = count(); }";
/// Without these rights the kernel's own links to mapped files (`/proc/PID/map_files`) cannot be followed, and only
/// names remain.
const WITHOUT_LINKS: [&str; 3] = ["setpriv", "--bounding-set", "-sys_admin,-checkpoint_restore"];

/// A program and its library, in a folder.
struct Files {
    folder: tempfile::TempDir,
}

impl Files {
    /// `None`, with a report, if nothing can be mounted or no library can be made.
    fn new(what: &str) -> Option<Files> {
        if !nix::unistd::geteuid().is_root() {
            left_out(what, "only root may mount, or change the root");
            return None;
        }
        let library = need_program("uprobed.c", Build::Library)?;
        let folder = tempfile::tempdir().expect("a folder");
        let place = folder.path().join("place");
        std::fs::create_dir(&place).expect("a folder");
        copy_program(&program("uprobed.c"), &place.join("uprobed"));
        copy_program(&library, &place.join("uprobed.so"));
        Some(Files { folder })
    }

    fn place(&self) -> PathBuf {
        self.folder.path().join("place")
    }
}

/// Starts the program by a script that executes it. `None`, with a report, if the machine does not allow it.
fn started(what: &str, files: &Files, script: &str) -> Option<Running> {
    let mut command = Command::new("unshare");
    command
        .args(["-m", "sh", "-e", "-c", script])
        .current_dir(files.folder.path());
    let mut target = Running::start(&mut command);
    target.wait_until("starting, or saying why not", |target| {
        target.stdout().contains("ready\n") || target.stderr().contains(": ")
    });
    if !target.stdout().contains("ready\n") {
        left_out(what, target.stderr().trim());
        return None;
    }
    Some(target)
}

/// The output of the program and of its tracer.
fn traced(form: Form, mut target: Running, wrapper: &[&str]) -> (Finished, Traced) {
    let tracing = Tracer::new(form).under(wrapper).clause(CLAUSE).attach(target.pid());
    target.go();
    target.write("stop\n");
    let finished = target.finish().success();
    (finished, tracing.finish().success())
}

fn assert_counted((finished, traced): &(Finished, Traced)) {
    assert_nothing_lost(&traced.finished.stderr);
    let calls = said(&finished.stdout, "calls");
    let rows = table(&traced.results);
    assert_eq!(rows["uprobed_other"], calls, "{}", traced.results);
    assert_eq!(rows["uprobed_function"], calls, "{}", traced.results);
}

/// The folders in which a program expects the dynamic linker and libraries.
fn copy_libraries(program: &Path, root: &Path) -> bool {
    let Some(ldd) = need_command("a program in a changed root", "ldd") else {
        return false;
    };
    let listed = run(Command::new(ldd).arg(program)).success().stdout;
    let paths = listed.split_whitespace().filter(|word| word.starts_with('/'));
    for path in paths {
        let inside = root.join(&path[1..]);
        std::fs::create_dir_all(inside.parent().expect("a folder")).expect("a folder");
        copy_program(Path::new(path), &inside);
    }
    true
}

live_tests! {
    fn a_program_in_a_changed_root(form) {
        const WHAT: &str = "a program in a changed root";
        for wrapper in [&[] as &[&str], &WITHOUT_LINKS] {
            let Some(files) = Files::new(WHAT) else { return };
            if !copy_libraries(&program("uprobed.c"), &files.place()) {
                return;
            }
            let Some(target) = started(WHAT, &files, "exec chroot place /uprobed --wait /uprobed.so") else { return };
            assert_counted(&traced(form, target, wrapper));
        }
    }

    /// For a file on an overlay, `stat` shows another device than the map does, and perhaps another inode.
    fn a_program_on_an_overlay(form) {
        const WHAT: &str = "a program on an overlay";
        for wrapper in [&[] as &[&str], &WITHOUT_LINKS] {
            let Some(files) = Files::new(WHAT) else { return };
            let script = "mkdir upper work merged
                          mount -t overlay overlay -o lowerdir=place,upperdir=upper,workdir=work merged
                          exec \"$PWD/merged/uprobed\" --wait \"$PWD/merged/uprobed.so\"";
            let Some(target) = started(WHAT, &files, script) else { return };
            assert_counted(&traced(form, target, wrapper));
        }
    }
}

/// Another library of the same name replaces the file of the mapped one. Root follows the kernel's link to the mapped
/// one, and counts. A user who has only names does not mistake the other library for it, and writes nothing.
#[test]
fn a_file_that_has_taken_anothers_name_is_not_believed() {
    const WHAT: &str = "a replaced library in a changed root";
    for wrapper in [&[] as &[&str], &WITHOUT_LINKS] {
        let Some(files) = Files::new(WHAT) else { return };
        let place = files.place();
        if !copy_libraries(&program("uprobed.c"), &place) {
            return;
        }
        let Some(mut target) = started(WHAT, &files, "exec chroot place /uprobed --wait /uprobed.so") else {
            return;
        };
        let Some(other) = need_program("plugin.c", Build::Library) else {
            return;
        };
        copy_program(&other, &place.join("other.so"));
        std::fs::rename(place.join("other.so"), place.join("uprobed.so")).expect("renaming a library");
        if wrapper.is_empty() && is_root_of_the_machine() {
            assert_counted(&traced(Form::Default, target, wrapper));
            continue;
        }
        let tracer = Tracer::new(Form::Default).under(wrapper).clause(CLAUSE);
        let refused = tracer.process(target.pid()).run().finished;
        assert_eq!(refused.code(), 1, "{refused:?}");
        assert!(
            refused
                .stderr
                .contains("uprobed.so:uprobed_function:entry does not match any probes"),
            "{refused:?}"
        );
        assert!(differences(target.pid()).is_empty());
        target.go();
        target.write("stop\n");
        target.finish().success();
    }
}
