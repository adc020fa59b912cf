//! The library as it is installed below a folder: programs find it by pkg-config and by CMake.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;

use nanoprobe::api::np_version;
use nanoprobe_tests::in_time::InTime;
use nanoprobe_tests::left_out::need_command;

use common::{Built, text};

/// The output of tests/c/first.c.
const FIRST: &str = "2 good NULL placed\ngood -7\n";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Installs the library of this build, as docs/install.md says, and returns the prefix.
fn install(built: &Built) -> PathBuf {
    let prefix = built.folder.path().join("installed");
    for folder in ["include", "lib/pkgconfig", "lib/cmake/nanoprobe"] {
        std::fs::create_dir_all(prefix.join(folder)).unwrap();
    }
    std::fs::copy(root().join("include/nanoprobe.h"), prefix.join("include/nanoprobe.h")).unwrap();
    let shared = std::fs::canonicalize(built.folder.path().join("libnanoprobe.so")).unwrap();
    for name in ["libnanoprobe.so", "libnanoprobe.so.0"] {
        std::os::unix::fs::symlink(&shared, prefix.join("lib").join(name)).unwrap();
    }
    let archive = shared.with_file_name("libnanoprobe.a");
    std::os::unix::fs::symlink(archive, prefix.join("lib/libnanoprobe.a")).unwrap();
    let version = format!("{}.{}", np_version() >> 16, np_version() & 0xffff);
    for (template, to, line) in [
        (
            "nanoprobe.pc.in",
            "pkgconfig/nanoprobe.pc",
            format!("Version: {version}\n"),
        ),
        (
            "nanoprobe-config.cmake.in",
            "cmake/nanoprobe/nanoprobe-config.cmake",
            String::new(),
        ),
        (
            "nanoprobe-config-version.cmake.in",
            "cmake/nanoprobe/nanoprobe-config-version.cmake",
            format!("set(PACKAGE_VERSION {version})\n"),
        ),
    ] {
        let text = std::fs::read_to_string(root().join(template)).unwrap();
        assert!(text.contains(&line), "{template}: {line}");
        let text = text
            .replace("@prefix@", "${pcfiledir}/../..")
            .replace("@libdir@", "${prefix}/lib")
            .replace("@headers@", "../include");
        assert!(!text.contains('@'), "{template}");
        std::fs::write(prefix.join("lib").join(to), text).unwrap();
    }
    prefix
}

/// Whether a program loads the shared library.
fn loads_it(program: &Path) -> bool {
    let needed = Command::new("readelf").arg("-d").arg(program).output_in_time().unwrap();
    text(&needed).contains("libnanoprobe.so.0")
}

fn run(prefix: &Path, program: &Path) -> String {
    let mut command = Command::new(program);
    text(
        &command
            .env("LD_LIBRARY_PATH", prefix.join("lib"))
            .output_in_time()
            .unwrap(),
    )
}

/// A program that is wholly static needs the optimised archive: tests/tests/packages links one.
#[test]
fn pkg_config_finds_the_shared_library_and_the_archive() {
    let Some(pkg_config) = need_command("flags by pkg-config", "pkg-config") else {
        return;
    };
    let built = Built::new();
    let prefix = install(&built);
    let ask = |arguments: &[&str]| {
        let mut command = Command::new(&pkg_config);
        command.args(arguments).arg("nanoprobe");
        let output = command
            .env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"))
            .output_in_time();
        text(&output.unwrap())
            .split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let private: Vec<String> = ask(&["--static", "--libs-only-l"]);
    let private = private.iter().filter(|flag| *flag != "-lnanoprobe").cloned();
    let archive = ask(&["--cflags"])
        .into_iter()
        .chain(ask(&["--variable=archive"]))
        .chain(private);
    for (name, flags, shared) in [
        ("shared", ask(&["--cflags", "--libs"]), true),
        ("archive", archive.collect(), false),
    ] {
        let program = prefix.join(name);
        let mut compile = Command::new("cc");
        compile
            .args(["-O2", "-o"])
            .arg(&program)
            .arg(root().join("tests/c/first.c"));
        text(&compile.args(&flags).output_in_time().unwrap());
        assert_eq!(loads_it(&program), shared, "{name}");
        assert_eq!(run(&prefix, &program), FIRST, "{name}");
    }
}

const PROJECT: &str = "\
cmake_minimum_required(VERSION 3.10)
project(first C)
find_package(nanoprobe 0.1 REQUIRED)
foreach(kind shared static nanoprobe)
    add_executable(program_${kind} first.c)
    target_link_libraries(program_${kind} PRIVATE nanoprobe::${kind})
endforeach()
find_package(nanoprobe 9.0 QUIET)
if(nanoprobe_FOUND)
    message(FATAL_ERROR \"a version of the future is there\")
endif()
";

#[test]
fn cmake_finds_the_shared_library_and_the_archive() {
    let Some(cmake) = need_command("find_package of CMake", "cmake") else {
        return;
    };
    let built = Built::new();
    let prefix = install(&built);
    let project = built.folder.path().join("project");
    std::fs::create_dir(&project).unwrap();
    std::fs::write(project.join("CMakeLists.txt"), PROJECT).unwrap();
    std::fs::copy(root().join("tests/c/first.c"), project.join("first.c")).unwrap();
    let made = project.join("made");
    let mut configure = Command::new(&cmake);
    configure.arg("-S").arg(&project).arg("-B").arg(&made);
    configure.arg(format!("-DCMAKE_PREFIX_PATH={}", prefix.display()));
    text(&configure.output_in_time().unwrap());
    text(&Command::new(&cmake).arg("--build").arg(&made).output_in_time().unwrap());
    for (name, shared) in [("shared", true), ("static", false), ("nanoprobe", true)] {
        let program = made.join(format!("program_{name}"));
        assert_eq!(loads_it(&program), shared, "{name}");
        assert_eq!(run(&prefix, &program), FIRST, "{name}");
    }
}
