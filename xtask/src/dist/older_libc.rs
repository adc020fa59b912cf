//! A shared object that loads in an older glibc than the one that it is linked with.
//!
//! glibc 2.34 gave new versions to the functions of libpthread and libdl when it took them into libc. It still has the
//! old versions, for programs that were linked before. The linker takes only a default version. So it gets stubs of
//! libpthread and libdl first, in which the old version is the default.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::tool;

/// A version of glibc: 2.28 is (2, 28).
pub type Version = (u32, u32, u32);

/// The oldest glibc that is supported, as in distributions of five years ago: that of Red Hat Enterprise Linux 8.
pub const OLDEST: Version = (2, 28, 0);

const FUNCTIONS: &str = include_str!("older_libc.c");
const LIBC: &str = "/lib/x86_64-linux-gnu/libc.so.6";

/// Makes a linker that puts the stubs before everything else that libnanoprobe.so is linked with.
///
/// # Errors
/// A file that cannot be written, a compiler that fails.
pub fn linker(folder: &Path) -> Result<PathBuf, String> {
    std::fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let symbols = match Path::new(LIBC).exists() {
        true => renewed(&tool::text(Command::new("objdump").args(["-T", LIBC]))?),
        false => BTreeMap::new(),
    };
    write(&folder.join("functions.c"), FUNCTIONS)?;
    let object = folder.join("functions.o");
    let mut compile = Command::new("cc");
    // No path of this machine may be in the object.
    compile
        .current_dir(folder)
        .args(["-O2", "-fPIC", "-c", "functions.c", "-o"]);
    tool::run(compile.arg(&object))?;
    let of_dl = |name: &str| name.starts_with("dl");
    let threads = stub(folder, "libpthread.so.0", &symbols, |name| name.starts_with("pthread_"))?;
    let loader = stub(folder, "libdl.so.2", &symbols, of_dl)?;
    let linker = folder.join("linker");
    let first: Vec<String> = [object, threads, loader]
        .iter()
        .map(|file| format!("'{}'", file.display()))
        .collect();
    // Build scripts and macros, which are linked for this machine, need no stubs.
    let script = format!(
        "#!/bin/sh\ncase \"$*\" in\n*libnanoprobe.so*) exec cc -Wl,--as-needed {} \"$@\" ;;\n*) exec cc \"$@\" ;;\nesac\n",
        first.join(" ")
    );
    write(&linker, &script)?;
    std::fs::set_permissions(&linker, PermissionsExt::from_mode(0o755))
        .map_err(|error| format!("{}: {error}", linker.display()))?;
    Ok(linker)
}

/// The newest version of glibc that a shared object or program needs.
///
/// # Errors
/// When objdump cannot read it, or the version is newer than the oldest glibc that we promise: the symbols.
pub fn needed(object: &Path) -> Result<Version, String> {
    let text = tool::text(Command::new("objdump").arg("-T").arg(object))?;
    let undefined = text.lines().filter(|line| line.contains("*UND*")).filter_map(symbol);
    let undefined: Vec<(&str, Version, bool)> = undefined.collect();
    let newer: Vec<&str> = undefined
        .iter()
        .filter(|(_, version, _)| *version > OLDEST)
        .map(|(name, ..)| *name)
        .collect();
    if !newer.is_empty() {
        return Err(format!(
            "{}: needs a glibc newer than {}.{}, for {}: add them to xtask/src/dist/older_libc.c",
            object.display(),
            OLDEST.0,
            OLDEST.1,
            newer.join(", ")
        ));
    }
    Ok(undefined
        .iter()
        .map(|(_, version, _)| *version)
        .max()
        .unwrap_or_default())
}

/// One line of objdump -T: name, version, and whether the version is the default.
fn symbol(line: &str) -> Option<(&str, Version, bool)> {
    let mut words = line.split_whitespace().rev();
    let name = words.next()?;
    let version = words.next()?;
    let bare = version.trim_start_matches('(').trim_end_matches(')');
    let mut numbers = bare.strip_prefix("GLIBC_")?.split('.').map(str::parse);
    let mut number = || numbers.next().unwrap_or(Ok(0)).ok();
    Some((name, (number()?, number()?, number()?), !version.starts_with('(')))
}

/// The symbols whose default is newer than the oldest glibc, and which have an older version: that version.
fn renewed(table: &str) -> BTreeMap<String, Version> {
    let defined: Vec<(&str, Version, bool)> = table.lines().filter_map(symbol).collect();
    let newer = defined
        .iter()
        .filter(|(_, version, is_default)| *is_default && *version > OLDEST);
    let older = newer.filter_map(|(name, ..)| {
        let versions = defined
            .iter()
            .filter(|(other, version, _)| other == name && *version <= OLDEST);
        Some(((*name).to_owned(), versions.map(|(_, version, _)| *version).max()?))
    });
    older.collect()
}

/// Links a library of some of the symbols, which nothing ever loads.
fn stub(
    folder: &Path,
    soname: &str,
    symbols: &BTreeMap<String, Version>,
    has: impl Fn(&str) -> bool,
) -> Result<PathBuf, String> {
    let mut source = String::from(".section .note.GNU-stack,\"\",@progbits\n.text\n");
    let mut versions: BTreeMap<Version, Vec<&str>> = BTreeMap::new();
    for (name, version) in symbols.iter().filter(|(name, _)| has(name)) {
        source.push_str(&format!(".globl {name}\n.type {name}, @function\n{name}:\n"));
        versions.entry(*version).or_default().push(name);
    }
    source.push_str("ret\n");
    let mut script = String::new();
    for ((major, minor, patch), names) in versions {
        let patch = if patch == 0 { String::new() } else { format!(".{patch}") };
        script.push_str(&format!("GLIBC_{major}.{minor}{patch} {{ {}; }};\n", names.join("; ")));
    }
    let assembly = folder.join(format!("{soname}.s"));
    let map = folder.join(format!("{soname}.map"));
    write(&assembly, &source)?;
    write(&map, &script)?;
    let library = folder.join(soname);
    let mut link = Command::new("cc");
    link.args(["-shared", "-nostdlib", "-o"]).arg(&library).arg(&assembly);
    link.arg(format!("-Wl,-soname,{soname}"));
    if !script.is_empty() {
        link.arg(format!("-Wl,--version-script={}", map.display()));
    }
    tool::run(&mut link)?;
    Ok(library)
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::{renewed, symbol};

    #[test]
    fn symbols_with_an_older_version_are_found() {
        let table = "\
0000000000089380 g    DF .text  0000000000000eed (GLIBC_2.2.5) pthread_create
0000000000089380 g    DF .text  0000000000000eed  GLIBC_2.34  pthread_create
00000000000f7800  w   DF .text  0000000000000034  GLIBC_2.33  fstat64
0000000000109580 g    DF .text  000000000000004c  GLIBC_2.2.5 getppid
0000000000000000 g    DO *ABS*  0000000000000000  GLIBC_PRIVATE GLIBC_PRIVATE";
        let expected = [("pthread_create".to_owned(), (2, 2, 5))];
        assert_eq!(renewed(table), expected.into());
        assert_eq!(
            symbol("0 DF *UND* 0 (GLIBC_2.28) statx"),
            Some(("statx", (2, 28, 0), false))
        );
        assert_eq!(symbol("0 w D *UND* 0 Base __gmon_start__"), None);
    }
}
