//! Programs that xtask starts.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

/// The cargo that runs xtask.
pub fn cargo(root: &Path) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root);
    command
}

/// Runs a command, and returns its output. The command's standard error goes to our standard error.
///
/// # Errors
/// The command and its status, or why it could not be started.
pub fn output(command: &mut Command) -> Result<Vec<u8>, String> {
    let started = command.stderr(std::process::Stdio::inherit()).output();
    let output = started.map_err(|error| unstartable(command.get_program(), &error))?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    Err(format!("{command:?}: {}", output.status))
}

/// Runs a command, and returns the text that it printed.
///
/// # Errors
/// As `output`, and when the output is not UTF-8.
pub fn text(command: &mut Command) -> Result<String, String> {
    String::from_utf8(output(command)?).map_err(|error| format!("{command:?}: {error}"))
}

/// Runs a command for its effects.
///
/// # Errors
/// As `output`.
pub fn run(command: &mut Command) -> Result<(), String> {
    let started = command.status();
    let status = started.map_err(|error| unstartable(command.get_program(), &error))?;
    if status.success() {
        return Ok(());
    }
    Err(format!("{command:?}: {status}"))
}

fn unstartable(program: &OsStr, error: &std::io::Error) -> String {
    let program = program.to_string_lossy();
    let package = match &*program {
        "rpmbuild" => "; Debian's package rpm has it",
        "dpkg-deb" => "; the package dpkg has it",
        "strip" | "objdump" => "; the package binutils has it",
        _ => "",
    };
    format!("cannot start {program}: {error}{package}")
}
