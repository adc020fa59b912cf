//! Programs that are built with the library of each kind of package.

use std::path::Path;
use std::process::Command;

use nanoprobe_tests::in_time::InTime;
use nanoprobe_tests::left_out::need_command;

use crate::{KINDS, dist, run, text};

/// The output of counts.c: the sum, and how often its function was called.
const COUNTED: &str = "999000 1000\n";

fn source() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/packages/counts.c")
}

#[test]
fn programs_built_with_pkg_config_count_their_own_calls() {
    let what = "programs built with a package's library";
    let Some(dist) = dist(what) else { return };
    let Some(pkg_config) = need_command(what, "pkg-config") else {
        return;
    };
    for kind in &KINDS {
        let Some(folder) = kind.unpack(&dist) else { continue };
        let libraries = folder.path().join(kind.libraries);
        let ask = |arguments: &str| {
            let mut command = Command::new(&pkg_config);
            command.args(arguments.split(' ')).arg("nanoprobe");
            command.env("PKG_CONFIG_LIBDIR", libraries.join("pkgconfig"));
            // A package is for the folder /usr; the archive of all files is for any.
            if kind.name != "tar" {
                command.env("PKG_CONFIG_SYSROOT_DIR", folder.path());
            }
            run(&mut command).trim().to_owned()
        };
        for (name, flags) in [
            ("shared", ask("--cflags --libs")),
            ("static", format!("-static {}", ask("--static --cflags --libs"))),
        ] {
            let program = folder.path().join(name);
            let mut compile = Command::new("cc");
            compile
                .args(["-O2", "-o"])
                .arg(&program)
                .arg(source())
                .args(flags.split_whitespace());
            run(&mut compile);
            let mut start = Command::new(&program);
            let printed = text(&start.env("LD_LIBRARY_PATH", &libraries).output_in_time().unwrap());
            assert_eq!(printed, COUNTED, "{} {name}", kind.name);
        }
    }
}

const PROJECT: &str = "\
cmake_minimum_required(VERSION 3.10)
project(counts C)
find_package(nanoprobe 0.1 REQUIRED)
foreach(kind shared static)
    add_executable(${kind} counts.c)
    target_link_libraries(${kind} PRIVATE nanoprobe::${kind})
endforeach()
";

#[test]
fn programs_built_with_cmake_count_their_own_calls() {
    let what = "programs built with a package's library by CMake";
    let Some(dist) = dist(what) else { return };
    let Some(cmake) = need_command(what, "cmake") else {
        return;
    };
    for kind in &KINDS {
        let Some(folder) = kind.unpack(&dist) else { continue };
        let project = folder.path().join("project");
        std::fs::create_dir(&project).unwrap();
        std::fs::write(project.join("CMakeLists.txt"), PROJECT).unwrap();
        std::fs::copy(source(), project.join("counts.c")).unwrap();
        let made = project.join("made");
        let mut configure = Command::new(&cmake);
        configure.arg("-S").arg(&project).arg("-B").arg(&made);
        let found = folder.path().join(kind.libraries).join("cmake/nanoprobe");
        run(configure.arg(format!("-Dnanoprobe_DIR={}", found.display())));
        run(Command::new(&cmake).arg("--build").arg(&made));
        for name in ["shared", "static"] {
            let printed = run(&mut Command::new(made.join(name)));
            assert_eq!(printed, COUNTED, "{} {name}", kind.name);
        }
    }
}

/// Red Hat 8 has glibc 2.28. Nothing else is loaded with the library.
#[test]
fn the_shared_library_loads_in_a_glibc_of_2018() {
    let what = "the library's needs";
    let Some(dist) = dist(what) else { return };
    for kind in &KINDS {
        let Some(folder) = kind.unpack(&dist) else { continue };
        let library = folder.path().join(kind.libraries).join("libnanoprobe.so");
        let symbols = run(Command::new("objdump").arg("-T").arg(&library));
        let versions = symbols
            .split(['(', ')', ' ', '\t'])
            .filter_map(|word| word.strip_prefix("GLIBC_2."));
        let minors: Vec<u32> = versions
            .map(|version| version.split('.').next().unwrap().parse().unwrap())
            .collect();
        assert!(
            minors.len() > 20 && minors.iter().all(|minor| *minor <= 28),
            "{minors:?}"
        );
        let dynamic = run(Command::new("readelf").arg("-d").arg(&library));
        let known = [
            "libc.so.6",
            "libgcc_s.so.1",
            "libpthread.so.0",
            "libdl.so.2",
            "ld-linux-x86-64.so.2",
        ];
        for line in dynamic.lines().filter(|line| line.contains("(NEEDED)")) {
            assert!(known.iter().any(|name| line.contains(name)), "{line}");
        }
    }
}
