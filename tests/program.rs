//! The test programs of `tests/programs/`, compiled on first use.
//!
//! They land in `test-programs/` beside the directory of the test executables' profile, under a
//! name with a hash of the sources and flags: a changed program is compiled anew, and an
//! unchanged one once.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use crate::in_time::InTime;
use crate::{compiler as compilers, left_out};

/// How a program is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Build {
    /// Dynamically linked, position-independent if that is the compiler's default, optimised.
    Usual,
    /// `Usual` without a symbol table.
    Stripped,
    /// As a program that is not position-independent.
    FixedAddress,
    /// Statically linked, fixed address.
    Static,
    /// Statically linked, position-independent.
    StaticPie,
    /// Against musl, dynamically or statically as `musl-gcc` does it by default.
    Musl,
    /// Against musl, statically.
    MuslStatic,
    /// A shared library.
    Library,
    /// Without a C library and its startup code.
    Bare,
    /// With a note that Go's tools have linked it, and without red zones, as in Go's code.
    AsGo,
    /// A Go program.
    Go,
    /// A Go program, position-independent.
    GoPie,
    /// A Go program without a symbol table and debug information.
    GoStripped,
    /// A Go program without a symbol table and debug information, position-independent.
    GoPieStripped,
    /// A Rust program, optimised, with debug information.
    Rust,
}

impl Build {
    fn compiler(self, source: &Path) -> &'static str {
        match (self, source.extension().and_then(|extension| extension.to_str())) {
            (Build::Musl | Build::MuslStatic, _) => "musl-gcc",
            (build, _) if build.is_go() => "go",
            (Build::Rust, _) => "rustc",
            (_, Some("cpp")) => "g++",
            _ => "cc",
        }
    }

    fn is_go(self) -> bool {
        matches!(
            self,
            Build::Go | Build::GoPie | Build::GoStripped | Build::GoPieStripped
        )
    }

    fn flags(self) -> &'static [&'static str] {
        match self {
            Build::Usual | Build::Musl | Build::Go => &[],
            Build::GoPie => &["-buildmode=pie"],
            Build::GoStripped => &["-ldflags=-s -w"],
            Build::GoPieStripped => &["-buildmode=pie", "-ldflags=-s -w"],
            Build::Bare => &[
                "-nostdlib",
                "-nostartfiles",
                "-static",
                "-no-pie",
                "-fno-pie",
                "-ffreestanding",
            ],
            Build::AsGo => &["-DAS_GO", "-mno-red-zone"],
            Build::Rust => &["-g", "-C", "opt-level=1", "-C", "debug-assertions=no", "--edition=2021"],
            Build::Stripped => &["-s"],
            Build::FixedAddress => &["-no-pie", "-fno-pie"],
            Build::Static | Build::MuslStatic => &["-static"],
            Build::StaticPie => &["-static-pie", "-fPIE"],
            Build::Library => &["-shared", "-fPIC"],
        }
    }
}

/// Flags of every program. The tests count calls, so the compiler may not fold a call away:
/// functions whose calls are counted are marked `PROBED` (noipa) in the sources.
const FLAGS: [&str; 8] = [
    "-D_GNU_SOURCE",
    "-O2",
    "-g",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-pthread",
    "-fno-stack-protector",
];

/// The folder of the sources.
pub fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("programs")
}

/// The folder with the profile of this build (`target/debug`).
///
/// # Panics
/// When the running executable's path is unknown.
pub fn profile_folder() -> PathBuf {
    let executable = std::env::current_exe().expect("the path of the test executable");
    let folder = executable.parent().expect("a folder").to_owned();
    if folder.ends_with("deps") {
        folder.parent().expect("a folder above deps").to_owned()
    } else {
        folder
    }
}

/// Copies a file that will be executed. Another process makes the copy. If we made it, a process that another test
/// forks meanwhile would inherit the copy open for writing. Then executing the copy would fail (ETXTBSY) until that
/// process executes another program.
///
/// # Panics
/// If it cannot be copied.
pub fn copy_program(from: &Path, to: &Path) {
    let status = Command::new("cp")
        .arg(from)
        .arg(to)
        .status_in_time()
        .expect("running cp");
    assert!(status.success(), "copying {} failed", from.display());
}

/// The files of a program: one, or those of a folder (Go's, with assembly).
fn files_of(source: &Path) -> Vec<PathBuf> {
    if !source.is_dir() {
        return vec![source.to_owned()];
    }
    let files = std::fs::read_dir(source).expect("the program's folder");
    let mut files: Vec<PathBuf> = files.map(|file| file.expect("a file").path()).collect();
    files.sort();
    files
}

/// The files that programs may include, always in the same order.
fn headers() -> Vec<PathBuf> {
    let files = std::fs::read_dir(sources()).expect("the programs' folder");
    let paths = files.map(|file| file.expect("a file").path());
    let mut headers: Vec<PathBuf> = paths
        .filter(|path| path.extension().is_some_and(|extension| extension == "h"))
        .collect();
    headers.sort();
    headers
}

/// The path of a compiled program, or why it cannot be built here.
///
/// # Panics
/// When the compiler exists but refuses the program: that is a defect of ours.
pub fn try_program(name: &str, build: Build) -> Result<PathBuf, String> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(|poisoned| poisoned.into_inner());

    let source = sources().join(name);
    let compiler = build.compiler(&source);
    let Some(compiler) = left_out::find_command(compiler) else {
        return Err(format!("{compiler} is not installed"));
    };
    let mut hasher = DefaultHasher::new();
    (build, FLAGS).hash(&mut hasher);
    for file in files_of(&source) {
        std::fs::read(file).expect("the program's source").hash(&mut hasher);
    }
    for header in headers() {
        std::fs::read(header).expect("a header").hash(&mut hasher);
    }
    let stem = source.file_stem().expect("a name").to_string_lossy().into_owned();
    let extension = if build == Build::Library { ".so" } else { "" };
    let folder = profile_folder()
        .parent()
        .expect("a target folder")
        .join("test-programs");
    let folder = folder.join(format!("{build:?}-{:016x}", hasher.finish()));
    let path = folder.join(format!("{stem}{extension}"));
    if path.is_file() {
        return Ok(path);
    }

    std::fs::create_dir_all(&folder).expect("the folder of test programs");
    let unfinished = folder.join(format!(".{stem}.{}", std::process::id()));
    let mut command = Command::new(&compiler);
    if build.is_go() {
        command.env("GO111MODULE", "off").env("GOCACHE", folder.join("cache"));
        command.arg("build").args(build.flags()).arg("-o").arg(&unfinished);
        match source.is_dir() {
            true => command.current_dir(&source).arg("."),
            false => command.arg(&source),
        };
    } else if build == Build::Rust {
        command.args(build.flags()).arg("--crate-name").arg(&stem);
        command.arg("-o").arg(&unfinished).arg(&source);
    } else {
        command
            .args(FLAGS)
            .args(compilers::flags(&compiler))
            .args(build.flags())
            .arg("-o")
            .arg(&unfinished)
            .arg(&source);
        command.args(["-ldl", "-lm", "-lrt"]);
    }
    let output = command.output_in_time().expect("running the compiler");
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        // A distribution may lack the static libraries or the start file for PIE, and Go may be built without C.
        let absent = [
            "cannot find -l",
            "rcrt1.o",
            "static PIE",
            "build constraints exclude all Go files",
        ]
        .iter()
        .any(|sign| text.contains(sign));
        assert!(absent, "{command:?}\n{text}");
        return Err(format!("this machine cannot link {build:?} programs"));
    }
    std::fs::rename(&unfinished, &path).expect("naming the program");
    Ok(path)
}

/// The path of a program built as usual.
///
/// # Panics
/// When there is no C compiler: without it nothing here can be tested.
pub fn program(name: &str) -> PathBuf {
    try_program(name, Build::Usual).unwrap_or_else(|reason| panic!("{name}: {reason}"))
}

/// The path of a program, or `None` with the reason reported.
pub fn need_program(name: &str, build: Build) -> Option<PathBuf> {
    try_program(name, build)
        .map_err(|reason| left_out::left_out(&format!("{name} built {build:?}"), &reason))
        .ok()
}
