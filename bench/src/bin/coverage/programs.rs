//! The programs of the table: found, or compiled.

use std::path::{Path, PathBuf};
use std::process::Command;

/// One program.
pub struct Program {
    /// The program's name in the table.
    pub name: String,
    /// The program's file, or the reason why there is none.
    pub file: Result<PathBuf, String>,
}

impl Program {
    pub fn named_by_path(path: PathBuf) -> Program {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Program { name, file: Ok(path) }
    }

    fn new(name: &str, file: Result<PathBuf, String>) -> Program {
        Program {
            name: name.to_owned(),
            file,
        }
    }
}

/// The twelve programs; those that must be compiled are put into `folder`.
pub fn all(folder: &Path) -> Vec<Program> {
    vec![
        Program::new("bash", command("bash")),
        Program::new("libc", library(&["libc.so.6"])),
        Program::new("libcrypto", library(&["libcrypto.so.3", "libcrypto.so.1.1"])),
        Program::new("libpython", libpython()),
        Program::new("redis-server", command("redis-server")),
        Program::new("nginx", command("nginx")),
        Program::new("postgres", command("postgres")),
        Program::new("node", command("node")),
        Program::new("Go", go(folder)),
        Program::new("Rust", rust(folder)),
        Program::new("musl, static", musl(folder)),
        Program::new("CET", cet(folder)),
    ]
}

fn command(name: &str) -> Result<PathBuf, String> {
    // The system's own python3 first: a shim earlier in PATH would be a script.
    let system = [
        "/usr/bin",
        "/bin",
        "/usr/sbin",
        "/sbin",
        "/usr/local/bin",
        "/usr/local/go/bin",
    ];
    let path = std::env::var("PATH").unwrap_or_default();
    let folders = system.into_iter().chain(path.split(':'));
    folders
        .map(|folder| Path::new(folder).join(name))
        .find(|path| path.is_file())
        .ok_or_else(|| "not installed".to_owned())
}

fn library(names: &[&str]) -> Result<PathBuf, String> {
    let folders = ["/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/usr/lib"];
    folders
        .into_iter()
        .flat_map(|folder| names.iter().map(move |name| Path::new(folder).join(name)))
        .find(|path| path.is_file())
        .ok_or_else(|| "not installed".to_owned())
}

/// The path that python3 itself states.
fn libpython() -> Result<PathBuf, String> {
    let ask = "import sysconfig as s; v = s.get_config_var; print(v('LIBDIR') + '/' + v('INSTSONAME'))";
    let said = run(Command::new("python3").args(["-c", ask]))?;
    let path = PathBuf::from(said.trim());
    let is_shared = path.is_file() && said.contains(".so");
    is_shared
        .then_some(path)
        .ok_or_else(|| "python3 has no shared library".to_owned())
}

fn source(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

fn go(folder: &Path) -> Result<PathBuf, String> {
    let out = folder.join("goprog");
    run(Command::new(command("go")?)
        .args(["build", "-o"])
        .arg(&out)
        .arg(source("tests/programs/goprog.go")))?;
    Ok(out)
}

fn rust(folder: &Path) -> Result<PathBuf, String> {
    let out = folder.join("words");
    run(Command::new("rustc")
        .args(["-O", "--edition", "2024", "-o"])
        .arg(&out)
        .arg(source("bench/programs/words.rs")))?;
    Ok(out)
}

fn musl(folder: &Path) -> Result<PathBuf, String> {
    let out = folder.join("staticprog");
    run(Command::new("musl-gcc")
        .args(["-O2", "-static", "-o"])
        .arg(&out)
        .arg(source("tests/programs/staticprog.c")))?;
    Ok(out)
}

/// The test programs as one executable (with the first main of many); each function begins with endbr64.
fn cet(folder: &Path) -> Result<PathBuf, String> {
    let out = folder.join("cet");
    let names = [
        "busy", "churn", "entry", "exits", "looper", "machine", "middle", "numbers", "odd", "signals", "stacks",
        "strings", "tails", "threads",
    ];
    let sources = names.map(|name| source(&format!("tests/programs/{name}.c")));
    run(Command::new("gcc")
        .args([
            "-O2",
            "-D_GNU_SOURCE",
            "-fcf-protection=full",
            "-pthread",
            "-Wl,-z,muldefs",
            "-o",
        ])
        .arg(&out)
        .args(sources))?;
    Ok(out)
}

fn run(command: &mut Command) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| format!("{name}: {error}"))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        let said = String::from_utf8_lossy(&output.stderr);
        let error = said.lines().find(|line| line.contains("error")).unwrap_or_default();
        Err(format!("{name} failed: {error}"))
    }
}
