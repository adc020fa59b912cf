//! Compiles the measured programs, because there may be no compiler where the comparison runs.

use std::env;
use std::error::Error;
use std::path::PathBuf;
use std::process::Command;

/// Separate programs: `programs/NAME.c`, with further options for the compiler.
const PROGRAMS: &[(&str, &[&str])] = &[
    ("calls", &["-O2"]),
    ("loop", &["-O2"]),
    ("floor", &["-O2"]),
    ("neighbour", &["-O2", "-no-pie"]),
    ("seeds", &["-O2"]),
    ("traced", &["-O2"]),
    ("trees", &["-O2"]),
    // As in the seed: a small function that is really called, and really calls strlen.
    ("looper", &["-O1", "-fno-builtin", "-fno-inline", "-fno-ipa-pure-const"]),
];

fn main() -> Result<(), Box<dyn Error>> {
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?);
    let compiler = env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    for (name, flags) in PROGRAMS {
        let source = format!("programs/{name}.c");
        println!("cargo::rerun-if-changed={source}");
        let mut command = Command::new(&compiler);
        command.args(*flags).args(["-g", "-pthread", "-o"]);
        command.arg(out.join(name)).arg(&source);
        if !command.status()?.success() {
            return Err(format!("{command:?} failed").into());
        }
    }
    println!("cargo::rerun-if-changed=programs/batches.h");
    println!("cargo::rerun-if-changed=programs/own.c");
    println!("cargo::rerun-if-changed=../crates/libnanoprobe/include/nanoprobe.h");
    cc::Build::new()
        .file("programs/own.c")
        .include("../crates/libnanoprobe/include")
        .opt_level(2)
        .flag("-pthread")
        .compile("nanoprobe_bench_own");
    Ok(())
}
