//! HotSpot: the stack of a call of a native function beside `Throwable.getStackTrace()` of the same line.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use nanoprobe_tests::command::{Running, run};
use nanoprobe_tests::left_out::{find_command, left_out};
use nanoprobe_tests::program::sources;
use nanoprobe_tests::results::stacks;
use nanoprobe_tests::tracer::{Form, Traced, Tracer};

const CALLS: &str = "pid$target:libstacks:Java_Stacks_mark:entry { printf(\"call %d\\n\", arg2); ustack(); }";
const COUNTS: &str = "pid$target:libstacks:Java_Stacks_mark:entry { @[ustack()] = count(); }";
/// Java leaves out some of its own frames otherwise.
const ALL_FRAMES: [&str; 2] = ["-XX:+UnlockDiagnosticVMOptions", "-XX:+ShowHiddenFrames"];

/// The programs `java` that are installed: that of the path, and those of the distribution.
pub fn javas() -> Vec<PathBuf> {
    let folders = std::fs::read_dir("/usr/lib/jvm").into_iter().flatten().flatten();
    let installed = folders.map(|folder| folder.path().join("bin/java"));
    let mut found: Vec<PathBuf> = Vec::new();
    for java in find_command("java").into_iter().chain(installed) {
        let Ok(java) = java.canonicalize() else { continue };
        let home = java.parent().and_then(Path::parent);
        let is_hotspot = home.is_some_and(|home| home.join("lib/server/libjvm.so").is_file());
        if is_hotspot && !found.contains(&java) {
            found.push(java);
        }
    }
    found
}

/// A program for the oldest version that is installed.
pub struct Program {
    javac: PathBuf,
    folder: tempfile::TempDir,
}

impl Program {
    pub fn build(file: &str) -> Option<Program> {
        let Some(javac) = find_command("javac") else {
            left_out("stacks of Java", "javac is not installed");
            return None;
        };
        let folder = tempfile::tempdir().expect("a folder");
        let mut compile = std::process::Command::new(&javac);
        compile.args(["--release", "11", "-nowarn", "-d"]).arg(folder.path());
        run(compile.arg(sources().join(file))).success();
        Some(Program { javac, folder })
    }

    /// Where its classes lie.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }
}

/// The test program and its library.
struct Stacks {
    program: Program,
    library: PathBuf,
}

impl Stacks {
    fn build() -> Option<Stacks> {
        let program = Program::build("Stacks.java")?;
        let (javac, folder) = (&program.javac, &program.folder);
        let home = javac.canonicalize().expect("a path");
        let headers = home.parent().and_then(Path::parent).expect("a folder").join("include");
        if !headers.join("jni.h").is_file() {
            left_out("stacks of Java", "the headers of a JDK are not installed");
            return None;
        }
        let library = folder.path().join("libstacks.so");
        let mut compile = std::process::Command::new("cc");
        compile.args(["-O2", "-shared", "-fPIC", "-I"]).arg(&headers);
        compile.arg("-I").arg(headers.join("linux")).arg("-o").arg(&library);
        run(compile.arg(sources().join("java_stacks.c"))).success();
        Some(Stacks { program, library })
    }

    /// Runs the program under a clause; yields its output, and the records.
    fn traced(&self, java: &Path, flags: &[&str], seconds: Option<u32>, clause: &str, form: Form) -> (String, Traced) {
        let mut command = std::process::Command::new(java);
        command.args(flags).arg("-cp").arg(self.program.folder());
        command.arg("Stacks").arg(&self.library);
        command.args(seconds.map(|seconds| seconds.to_string()));
        let mut target = Running::start(&mut command);
        target.wait_for("ready\n");
        let tracer = Tracer::new(form).argument("-q").argument("-xustackframes=200");
        let tracing = tracer.clause(clause).attach(target.pid());
        target.go();
        target.wait_for("done\n");
        let traced = tracing.interrupt();
        target.go();
        let stdout = target.finish().success().stdout;
        assert!(stdout.ends_with("OK\n") && !stdout.contains("FAILED"), "{stdout}");
        (stdout, traced)
    }
}

/// The program's output: `stack N`, then a frame on each line.
fn told(stdout: &str) -> Vec<(i64, Vec<String>)> {
    let mut stacks: Vec<(i64, Vec<String>)> = Vec::new();
    for line in stdout.lines() {
        match (line.strip_prefix("stack "), stacks.last_mut()) {
            (Some(number), _) => stacks.push((number.parse().expect("a number"), Vec::new())),
            (None, Some((_, frames))) if line.contains('.') => frames.push(line.to_owned()),
            _ => {}
        }
    }
    stacks
}

/// The frames of Java: those of machine code and of stubs are left out.
fn of_java(frames: &[String]) -> Vec<String> {
    let is_java = |frame: &&String| !frame.contains('`') && !frame.starts_with("0x") && !frame.starts_with("[stub ");
    frames.iter().filter(is_java).cloned().collect()
}

fn compare(program: &Stacks, java: &Path, flags: &[&str], form: Form) {
    let all = [&ALL_FRAMES, flags].concat();
    let (stdout, traced) = program.traced(java, &all, None, CALLS, form);
    check(&stdout, &traced, &format!("{}, {flags:?}, {form:?}", java.display()));
}

/// Each call has the stack that the program has told.
fn check(stdout: &str, traced: &Traced, what: &str) {
    let mut found: BTreeMap<i64, Vec<String>> = BTreeMap::new();
    let mut last = 0;
    for line in traced.results.lines().map(str::trim).filter(|line| !line.is_empty()) {
        match line.strip_prefix("call ") {
            Some(number) => last = number.parse().expect("a number"),
            None => found.entry(last).or_default().push(line.to_owned()),
        }
    }
    let told = told(stdout);
    assert!(told.len() >= 100, "{stdout}");
    assert_eq!(found.len(), told.len(), "{}", traced.finished.stderr);
    for (number, told) in &told {
        let stack = found.get(number).map_or(&[][..], Vec::as_slice);
        let case = || format!("{what}, call {number}: {stack:#?}\n{told:#?}");
        assert_eq!(&of_java(stack), told, "{}", case());
        assert!(stack.last().is_some_and(|frame| frame.contains("clone")), "{}", case());
    }
}

#[test]
fn a_stack_is_what_java_says() {
    let Some(program) = Stacks::build() else { return };
    for java in javas() {
        for flags in [
            &[][..],
            &["-Xint"],
            &["-XX:TieredStopAtLevel=1"],
            &["-XX:-TieredCompilation"],
        ] {
            compare(&program, &java, flags, Form::Default);
        }
        // One heap of code instead of three; another collector.
        compare(
            &program,
            &java,
            &["-XX:-SegmentedCodeCache", "-XX:+UseSerialGC"],
            Form::Trap,
        );
    }
}

/// Code is made, replaced and thrown away, classes are unloaded, and garbage is collected: each stack is counted as
/// often as the program has met it, and no other stack is there.
#[test]
fn the_stacks_of_a_busy_jvm_are_its_own() {
    let Some(program) = Stacks::build() else { return };
    for java in javas() {
        let flags = [&ALL_FRAMES[..], &["-Xmx64m", "-XX:ReservedCodeCacheSize=6m"]].concat();
        let (stdout, traced) = program.traced(&java, &flags, Some(5), COUNTS, Form::Default);
        // A class of each loader has its own address, and some names have addresses.
        let mut expected: BTreeMap<Vec<String>, i64> = BTreeMap::new();
        for (count, frames) in told(&stdout) {
            *expected.entry(frames).or_default() += count;
        }
        let mut found: BTreeMap<Vec<String>, i64> = BTreeMap::new();
        for (frames, count) in stacks(&traced.results) {
            *found.entry(of_java(&frames)).or_default() += count;
        }
        let said = &traced.finished.stderr;
        assert!(expected.values().sum::<i64>() > 200, "{stdout}");
        assert_eq!(found, expected, "{}: {said}", java.display());
    }
}
