//! The measured programs, compiled when the comparison starts.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use anyhow::{Context, Result, ensure};

/// Compiles `bench/programs/NAME.c` and gives its path, beside this executable.
///
/// Once a run: a program compiled anew is another file, in which the probes of the kernel would not be those of the
/// program that runs.
pub fn compile(name: &str) -> Result<PathBuf> {
    static COMPILED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());
    let mut compiled = COMPILED.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("programs")
        .join(format!("{name}.c"));
    let folder = std::env::current_exe()?
        .parent()
        .context("a folder")?
        .join("bench-programs");
    std::fs::create_dir_all(&folder)?;
    let path = folder.join(name);
    if compiled.contains(&path) {
        return Ok(path);
    }
    let mut command = Command::new("cc");
    command.args(["-O2", "-g", "-pthread", "-o"]).arg(&path).arg(&source);
    let output = command.output().context("running cc")?;
    ensure!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    compiled.push(path.clone());
    Ok(path)
}

/// The offset in the file of a function, from `nm` and the segments that `readelf` shows.
pub fn file_offset(program: &Path, function: &str) -> Result<u64> {
    let run = |command: &mut Command| -> Result<String> {
        let output = command.output().with_context(|| format!("running {command:?}"))?;
        ensure!(output.status.success(), "{command:?} failed");
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let symbols = run(Command::new("nm").arg(program))?;
    let address = symbols
        .lines()
        .find_map(|line| {
            let mut words = line.split_whitespace();
            let (address, _, name) = (words.next()?, words.next()?, words.next()?);
            (name == function).then(|| u64::from_str_radix(address, 16).ok())?
        })
        .with_context(|| format!("{function} is not in {}", program.display()))?;
    let segments = run(Command::new("readelf").args(["-lW"]).arg(program))?;
    for line in segments.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if words.first() != Some(&"LOAD") || words.len() < 6 {
            continue;
        }
        let number = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).context("a number");
        let (offset, start, bytes) = (number(words[1])?, number(words[2])?, number(words[4])?);
        if (start..start + bytes).contains(&address) {
            return Ok(address - start + offset);
        }
    }
    anyhow::bail!("{function} is in no segment")
}
