//! The same program, compiled and linked in different ways, with its debug information and its file in different
//! places. Its types are known, or a message names the missing part.

use std::path::Path;
use std::process::Command;

use nanoprobe_tests::command::{Running, run};
use nanoprobe_tests::compiler::is_clang;
use nanoprobe_tests::left_out::{find_command, is_root_of_the_machine, left_out, need_command};
use nanoprobe_tests::program::{Build, copy_program, need_program};
use nanoprobe_tests::results::table;
use nanoprobe_tests::tracer::{Form, Tracer, nanoprobe};

/// gcc's `noipa` is unknown to clang, which does not optimise functions that another definition may replace.
const SOURCE: &str = "#include <stdio.h>\n\
    #if __has_attribute(noipa)\n\
    #define PROBED __attribute__((noipa))\n\
    #else\n\
    #define PROBED __attribute__((noinline, weak))\n\
    #endif\n\
    struct point { int x; short y; const char *name; };\n\
    PROBED int area(struct point *point, int more) { return point->x * point->y + more; }\n\
    int main(int count, char **arguments) {\n\
        struct point point = { 3, -4, arguments[0][0] ? \"point\" : \"\" };\n\
        if (count > 1) { puts(\"ready\"); fflush(stdout); getchar(); }\n\
        int sum = 0;\n\
        for (int i = 0; i < 5; i++) sum += area(&point, i);\n\
        return puts(sum == -50 ? \"OK\" : \"wrong\") < 0; }\n";
const CLAUSE: &str = r#"pid$target:a.out:area:entry { printf("%d %d %s %d\n", args[0]->x, args[0]->y, stringof(args[0]->name), args[1]); }"#;

/// Compiles the source in the folder. If this machine cannot, reports the reason and returns `false`.
fn compile(folder: &Path, name: &str, compiler: &str, flags: &[&str]) -> bool {
    std::fs::write(folder.join(format!("{name}.c")), SOURCE).expect("the source");
    let Some(compiler) = need_command(&format!("types of a program built {name}"), compiler) else {
        return false;
    };
    let mut command = Command::new(compiler);
    command
        .args(["-O2", "-g", "-o", name])
        .args(flags)
        .arg(format!("{name}.c"));
    let compiled = run(command.current_dir(folder));
    if !compiled.status.success() {
        let reason = compiled.stderr.lines().next().unwrap_or_default().to_owned();
        left_out(&format!("types of a program built {name}"), &reason);
    }
    compiled.status.success()
}

#[track_caller]
fn assert_typed(what: &str, results: &str) {
    let lines: Vec<&str> = results.lines().filter(|line| !line.is_empty()).collect();
    let expected: Vec<String> = (0..5).map(|i| format!("3 -4 point {i}")).collect();
    assert_eq!(lines, expected, "{what}");
}

/// Traces the program from its start.
#[track_caller]
fn check(folder: &Path, name: &str) {
    let tracer = Tracer::new(Form::Default).argument("-q").clause(CLAUSE);
    let traced = tracer.command(&folder.join(name), "").run().complete();
    assert_typed(name, &traced.results);
}

/// A tool of the binutils, with these arguments, in the folder.
fn change(folder: &Path, tool: &str, arguments: &[&str]) -> bool {
    find_command(tool).is_some_and(|tool| {
        run(Command::new(tool).args(arguments).current_dir(folder))
            .status
            .success()
    })
}

#[test]
fn of_every_version_and_link() {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, compiler, flags) in [
        ("dwarf2", "gcc", &["-gdwarf-2", "-gstrict-dwarf"][..]),
        ("dwarf3", "gcc", &["-gdwarf-3"]),
        ("dwarf4", "gcc", &["-gdwarf-4"]),
        ("dwarf5", "gcc", &["-gdwarf-5"]),
        ("dwarf64", "gcc", &["-gdwarf64"]),
        ("type-units", "gcc", &["-fdebug-types-section"]),
        ("zlib", "gcc", &["-gz=zlib"]),
        ("lto", "gcc", &["-flto"]),
        (
            "sections",
            "gcc",
            &["-ffunction-sections", "-fdata-sections", "-Wl,--gc-sections"],
        ),
        ("fixed", "gcc", &["-no-pie", "-fno-pie"]),
        ("static", "gcc", &["-static"]),
        ("static-pie", "gcc", &["-static-pie", "-fPIE"]),
        ("musl", "musl-gcc", &[]),
        ("musl-static", "musl-gcc", &["-static"]),
        ("clang", "clang", &[]),
    ] {
        if compile(folder.path(), name, compiler, flags) {
            check(folder.path(), name);
        }
    }
}

#[test]
fn of_files_apart_and_packed() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path();
    if !compile(path, "whole", "cc", &[]) {
        return;
    }
    if change(path, "objcopy", &["--compress-debug-sections=zstd", "whole", "zstd"]) {
        check(path, "zstd");
    } else {
        left_out("debug information packed by zstd", "this objcopy cannot");
    }
    // The file contains only what the loader needs: even the function's name is only in the other file.
    std::fs::create_dir(path.join(".debug")).expect("a folder");
    for (name, apart) in [("beside", "beside.debug"), ("below", ".debug/below.debug")] {
        let link = format!("--add-gnu-debuglink={apart}");
        let made = change(path, "objcopy", &["--only-keep-debug", "whole", apart])
            && change(path, "objcopy", &["--strip-all", &link, "whole", name]);
        assert!(made, "objcopy failed");
        check(path, name);
    }
    // A file other than the linked one is not used.
    std::fs::write(
        path.join("beside.debug"),
        std::fs::read(path.join("whole")).expect("a file"),
    )
    .expect("a file");
    let tracer = Tracer::new(Form::Default).clause(CLAUSE);
    let refused = tracer.command(&path.join("beside"), "").run().finished;
    assert!(
        refused.stderr.contains("[D_ARGS_TYPE]") && refused.stderr.contains("match no function"),
        "{refused:?}"
    );
}

/// A .dwo file is not read; the message names it.
#[test]
fn split_debug_information_is_reported() {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, version) in [("split4", "-gdwarf-4"), ("split5", "-gdwarf-5")] {
        if !compile(folder.path(), name, "gcc", &["-gsplit-dwarf", version]) {
            continue;
        }
        let tracer = Tracer::new(Form::Default).clause(CLAUSE);
        let refused = tracer.command(&folder.path().join(name), "").run().finished;
        let told = format!("the debug information of {name} is split: a part of it is in {name}");
        let is_told = refused.stderr.contains(&told) && refused.stderr.contains(".dwo, which is not read");
        assert!(refused.stderr.contains("[D_ARGS_TYPE]") && is_told, "{refused:?}");
        // Everything that needs no types works.
        let plain = "pid$target:a.out:area:entry { @ = sum(arg1); }";
        let traced = Tracer::new(Form::Default)
            .clause(plain)
            .command(&folder.path().join(name), "")
            .run()
            .complete();
        assert_eq!(traced.results.trim(), "10");
    }
}

/// gcc's -g1 describes only lines. So arguments are missing for that reason, and not because the function has none.
#[test]
fn debug_information_with_lines_only_is_reported() {
    if find_command("gcc").is_some_and(|gcc| is_clang(gcc.as_os_str())) {
        return left_out("debug information of lines alone", "gcc is clang here");
    }
    let folder = tempfile::tempdir().expect("a folder");
    if !compile(folder.path(), "lines", "gcc", &["-g1"]) {
        return;
    }
    for clause in [CLAUSE, "pid$target:a.out:area:return { trace(args[1]); }"] {
        let tracer = Tracer::new(Form::Default).clause(clause);
        let refused = tracer.command(&folder.path().join("lines"), "").run().finished;
        let is_told = refused
            .stderr
            .contains("describes no parameters: it was compiled with -g1");
        assert!(refused.stderr.contains("[D_ARGS_TYPE]") && is_told, "{refused:?}");
    }
}

/// Go's functions take their arguments in Go's own registers; their results are compared with the program's checksum.
#[test]
fn arguments_of_go_are_those_of_go() {
    const WORKERS: u64 = 16;
    let Some(path) = need_program("goprog.go", Build::Go) else {
        return;
    };
    let clauses = "pid$target:a.out:main.counted:entry { @[\"in\"] = sum(args[0]); }
                   pid$target:a.out:main.counted:return { @[\"out\"] = sum(args[1]); }";
    let traced = Tracer::new(Form::Default)
        .clause(clauses)
        .command(&path, "")
        .run()
        .success();
    let said = &traced.finished.stdout;
    let checksum = said.lines().find_map(|line| line.strip_prefix("checksum "));
    let checksum = checksum
        .and_then(|digits| u64::from_str_radix(digits, 16).ok())
        .expect("a checksum");
    let rows = table(&traced.results);
    // Each worker's sum is the checksum; `counted` is called with 1 to 100, twenty times each.
    assert_eq!(rows["out"] as u64, checksum.wrapping_mul(WORKERS), "{said}");
    assert_eq!(rows["in"], 16 * 20 * 5050);
}

/// The program's file was deleted, or replaced by another one, as in an update.
#[test]
fn of_a_file_that_is_not_there_any_more() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path();
    if !compile(path, "first", "cc", &[]) || !compile(path, "other", "cc", &["-O0"]) {
        return;
    }
    for replaced in [true, false] {
        copy_program(&path.join("first"), &path.join("runs"));
        let mut target = Running::start(Command::new(path.join("runs")).arg("wait"));
        target.wait_for("ready\n");
        if replaced {
            std::fs::rename(path.join("other"), path.join("runs")).expect("another file in its place");
        } else {
            std::fs::remove_file(path.join("runs")).expect("a file less");
        }
        if !is_root_of_the_machine() {
            left_out(
                "types of a deleted file",
                "only root may open what the kernel keeps of it",
            );
            return;
        }
        let tracing = Tracer::new(Form::Default)
            .argument("-q")
            .clause(CLAUSE)
            .trace(target.pid());
        target.go();
        target.finish().success();
        assert_typed("deleted", &tracing.finish().success().results);
    }
}

/// A program of another mount namespace: its file and its debug file are visible only there.
#[test]
fn of_another_mount_namespace() {
    if !nix::unistd::geteuid().is_root() {
        return left_out("types in another mount namespace", "only root may make one");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path();
    if !compile(path, "whole", "cc", &[]) {
        return;
    }
    let made = change(path, "objcopy", &["--only-keep-debug", "whole", "inside.debug"])
        && change(
            path,
            "objcopy",
            &["--strip-all", "--add-gnu-debuglink=inside.debug", "whole", "inside"],
        );
    assert!(made, "objcopy failed");
    std::fs::create_dir(path.join("place")).expect("a folder");
    let script = "mount -t tmpfs none place && mv inside inside.debug place && exec \"$PWD/place/inside\" wait";
    let mut command = Command::new("unshare");
    let mut target = Running::start(command.args(["-m", "sh", "-c", script]).current_dir(path));
    target.wait_until("starting", |target| {
        target.stdout().contains("ready") || target.stderr().contains("unshare")
    });
    if !target.stdout().contains("ready") {
        return left_out("types in another mount namespace", &target.stderr());
    }
    assert!(!path.join("place/inside").exists(), "it is seen from here");
    let tracing = Tracer::new(Form::Default)
        .argument("-q")
        .clause(CLAUSE)
        .trace(target.pid());
    target.go();
    target.finish().success();
    assert_typed("mounted elsewhere", &tracing.finish().success().results);
}

/// The debug file is found by its build-id below /usr/lib/debug, which this run has for itself. Another file of that
/// name is not used.
#[test]
fn of_a_debug_folder_by_build_id() {
    const WHAT: &str = "types by build-id";
    if !nix::unistd::geteuid().is_root() {
        return left_out(WHAT, "only root may mount a folder over /usr/lib/debug");
    }
    if !Path::new("/usr/lib/debug").is_dir() {
        return left_out(WHAT, "there is no /usr/lib/debug");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path();
    if !compile(path, "whole", "gcc", &["-Wl,--build-id=0xab0123456789abcdef"])
        || !compile(path, "another", "gcc", &["-Wl,--build-id=0xab0123456789abcdee"])
    {
        return;
    }
    let made = change(path, "objcopy", &["--only-keep-debug", "whole", "right.debug"])
        && change(path, "objcopy", &["--only-keep-debug", "another", "wrong.debug"])
        && change(path, "objcopy", &["--strip-all", "whole", "bare"]);
    assert!(made, "objcopy failed");
    let traced = |debug: &str| {
        let script = format!(
            "mount -t tmpfs none /usr/lib/debug && mkdir -p /usr/lib/debug/.build-id/ab && \
             cp {debug} /usr/lib/debug/.build-id/ab/0123456789abcdef.debug && echo mounted >&2 && \
             exec \"$0\" -q -n \"$1\" -c ./bare"
        );
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", &script]).arg(nanoprobe()).arg(CLAUSE);
        run(command.current_dir(path))
    };
    let right = traced("right.debug");
    if !right.stderr.contains("mounted") {
        return left_out(WHAT, &right.stderr);
    }
    let lines: Vec<&str> = right.stdout.lines().filter(|line| line.contains("point")).collect();
    let expected: Vec<String> = (0..5).map(|i| format!("3 -4 point {i}")).collect();
    assert_eq!(lines, expected, "{right:?}");
    let wrong = traced("wrong.debug");
    assert!(wrong.stderr.contains("match no function"), "{wrong:?}");
}
