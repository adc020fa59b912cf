//! The measured programs. They are compiled together with this crate, contained in it, and written to files when the
//! comparison starts.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use anyhow::{Context, Result, bail};
use object::{Object, ObjectSegment, ObjectSymbol};
use tempfile::TempDir;

const PROGRAMS: &[(&str, &[u8])] = &[
    ("calls", include_bytes!(concat!(env!("OUT_DIR"), "/calls"))),
    ("loop", include_bytes!(concat!(env!("OUT_DIR"), "/loop"))),
    ("floor", include_bytes!(concat!(env!("OUT_DIR"), "/floor"))),
    ("neighbour", include_bytes!(concat!(env!("OUT_DIR"), "/neighbour"))),
    ("seeds", include_bytes!(concat!(env!("OUT_DIR"), "/seeds"))),
    ("traced", include_bytes!(concat!(env!("OUT_DIR"), "/traced"))),
    ("trees", include_bytes!(concat!(env!("OUT_DIR"), "/trees"))),
    ("looper", include_bytes!(concat!(env!("OUT_DIR"), "/looper"))),
];

/// The folder of the files; [`remove`] removes it.
static FOLDER: Mutex<Option<TempDir>> = Mutex::new(None);

/// The path of `programs/NAME.c`, compiled.
///
/// It is written once in a run: another file would have another inode, and the kernel's probes would not be in the
/// running program.
pub fn compile(name: &str) -> Result<PathBuf> {
    let (_, bytes) = PROGRAMS
        .iter()
        .find(|(known, _)| *known == name)
        .with_context(|| format!("no measured program {name}"))?;
    let path = folder()?.join(name);
    if !path.exists() {
        let mut options = std::fs::OpenOptions::new();
        let mut file = options.write(true).create_new(true).mode(0o755).open(&path)?;
        file.write_all(bytes)
            .with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(path)
}

/// A folder of this run's.
pub fn folder() -> Result<PathBuf> {
    let mut folder = FOLDER.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if folder.is_none() {
        *folder = Some(tempfile::Builder::new().prefix("nanoprobe-bench-").tempdir()?);
    }
    Ok(folder.as_ref().context("a folder")?.path().to_owned())
}

/// Removes the folder.
pub fn remove() {
    *FOLDER.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = None;
}

/// The C library of this process.
pub fn libc() -> Result<PathBuf> {
    let maps = std::fs::read_to_string("/proc/self/maps").context("reading our own map")?;
    let paths = maps.lines().filter_map(|line| Some(&line[line.find('/')?..]));
    let is_libc = |path: &&str| path.rsplit('/').next().is_some_and(|name| name.starts_with("libc.so"));
    let path = { paths }.find(is_libc).context("this process has no libc.so")?;
    Ok(PathBuf::from(path))
}

/// The offset of a function in the file, which the kernel's uprobes need.
pub fn file_offset(program: &Path, function: &str) -> Result<u64> {
    let bytes = std::fs::read(program).with_context(|| format!("reading {}", program.display()))?;
    let file = object::File::parse(&*bytes).with_context(|| format!("reading {}", program.display()))?;
    let symbol = file
        .symbols()
        .chain(file.dynamic_symbols())
        .find(|symbol| symbol.name() == Ok(function));
    let address = symbol
        .with_context(|| format!("{function} is not in {}", program.display()))?
        .address();
    for segment in file.segments() {
        let (offset, bytes) = segment.file_range();
        if (segment.address()..segment.address() + bytes).contains(&address) {
            return Ok(address - segment.address() + offset);
        }
    }
    bail!("{function} is in no segment of {}", program.display())
}
