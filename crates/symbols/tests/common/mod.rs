//! Helpers of the tests: this machine's programs, and programs compiled on the spot.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(dead_code, reason = "each test binary uses its own part")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use nanoprobe_tests::in_time::InTime;
use nanoprobe_tests::left_out::left_out;

use nanoprobe_symbols::{Function, ImageAddress, Module, files};
use tempfile::TempDir;

/// Usual programs and libraries, as far as they exist on this machine.
pub fn system_files() -> Vec<PathBuf> {
    let all = [
        "/bin/bash",
        "/lib/x86_64-linux-gnu/libc.so.6",
        "/lib64/ld-linux-x86-64.so.2",
        "/usr/bin/python3",
        "/usr/lib/x86_64-linux-gnu/libstdc++.so.6",
        "/usr/lib/x86_64-linux-gnu/libcrypto.so.3",
    ];
    all.iter().filter(|path| is_here(path)).map(PathBuf::from).collect()
}

pub fn is_here(path: &str) -> bool {
    let found = Path::new(path).exists();
    if !found {
        left_out("symbols of real files", &format!("there is no {path}"));
    }
    found
}

/// The module of a file of this machine; if there is no such file, prints a message and returns `None`.
pub fn system_module(path: &str) -> Option<Module> {
    is_here(path).then(|| files::open(Path::new(path), Path::new(path)).unwrap())
}

/// Runs a tool, which must succeed. If the tool is not installed, prints a message and returns `None`.
pub fn run(tool: &str, arguments: &[&str], directory: &Path) -> Option<String> {
    let (output, success) = output_of(tool, arguments, directory)?;
    assert!(success, "{tool} {arguments:?}: {output}");
    Some(output)
}

/// A tool's output, and whether it succeeded: readelf fails on a separate debug file without contents.
pub fn output_of(tool: &str, arguments: &[&str], directory: &Path) -> Option<(String, bool)> {
    let output = match Command::new(tool)
        .args(arguments)
        .current_dir(directory)
        .output_in_time()
    {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            left_out("what other tools say of a file", &format!("there is no {tool}"));
            return None;
        }
        other => other.unwrap(),
    };
    let text = if output.stdout.is_empty() {
        output.stderr
    } else {
        output.stdout
    };
    Some((String::from_utf8(text).unwrap(), output.status.success()))
}

/// A folder with a source file and the compiled program.
pub struct Build {
    pub folder: TempDir,
}

impl Build {
    /// Runs `tool arguments... -o program source`; `None` when the tool is missing.
    pub fn new(tool: &str, arguments: &[&str], source_name: &str, source: &str) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(source_name), source).unwrap();
        let mut all = arguments.to_vec();
        all.extend(["-o", "program", source_name]);
        run(tool, &all, folder.path())?;
        Some(Self { folder })
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs a tool in the folder.
    pub fn run(&self, tool: &str, arguments: &[&str]) -> Option<String> {
        run(tool, arguments, self.folder.path())
    }

    pub fn open(&self, name: &str) -> Module {
        files::open(&self.path(name), &self.path(name)).unwrap()
    }

    pub fn module(&self) -> Module {
        self.open("program")
    }
}

/// The functions that answer to a name.
pub fn named<'m>(module: &'m Module, name: &str) -> Vec<&'m Function> {
    module
        .functions()
        .iter()
        .filter(|function| function.names().any(|other| other == name))
        .collect()
}

/// The only function that has this name.
pub fn only<'m>(module: &'m Module, name: &str) -> &'m Function {
    let found = named(module, name);
    assert_eq!(found.len(), 1, "{name}: {found:?}");
    found[0]
}

/// Address and name of every function symbol that binutils sees: an independent reading of the same tables.
pub fn function_symbols_by_readelf(path: &Path) -> Option<BTreeSet<(ImageAddress, String)>> {
    let text = run("readelf", &["-sW", path.to_str().unwrap()], Path::new("/"))?;
    let symbols = text.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let &[_, value, _, kind, _, _, section, name, ..] = &fields[..] else {
            return None;
        };
        let is_function = ["FUNC", "IFUNC"].contains(&kind) && section.parse::<u16>().is_ok();
        let address = ImageAddress(u64::from_str_radix(value, 16).ok()?);
        let name = name.split_once('@').map_or(name, |(name, _)| name);
        is_function.then(|| (address, name.to_owned()))
    });
    Some(symbols.collect())
}

/// A program that contains most kinds of symbols that a linker distinguishes.
pub const C_SOURCE: &str = r#"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int data_variable = 3;
__thread int thread_variable;

__attribute__((cold, noinline)) void complain(int value) { printf("%d\n", value); data_variable++; }

static __attribute__((noinline)) int hidden(int value) { return value * 3 + data_variable; }

__attribute__((noinline)) int hot(int *values, int count)
{
    int sum = 0;
    for (int i = 0; i < count; i++) {
        if (__builtin_expect(values[i] < 0, 0)) {
            complain(values[i]);
            sum += hidden(i);
            complain(sum);
            exit(sum);
        }
        sum += hidden(values[i]);
    }
    return sum;
}

int __plain(void) { return hidden(data_variable); }
int plain(void) __attribute__((alias("__plain")));
int _plain(void) __attribute__((weak, alias("__plain")));

static int chosen_one(void) { return 1; }
static int (*choose(void))(void) { return chosen_one; }
int chosen(void) __attribute__((ifunc("choose")));

static void on_signal(int number) { data_variable = number; }

int main(int count, char **arguments)
{
    int values[64] __attribute__((aligned(64)));
    memset(values, 0, sizeof values);
    signal(SIGUSR1, on_signal);
    thread_variable = count;
    return hot(values, count) + chosen() + plain() + thread_variable;
}
"#;

/// The source without IFUNCs, which musl does not have.
pub fn without_ifunc() -> String {
    C_SOURCE.replace(
        "int chosen(void) __attribute__((ifunc(\"choose\")));",
        "int chosen(void) { return choose()(); }",
    )
}
