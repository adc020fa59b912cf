//! Files and folders from which packages are made.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::Release;
use crate::tool;

/// Makes an empty folder; deletes its old contents.
///
/// # Errors
/// The error of the system.
pub fn empty(folder: &Path) -> Result<(), String> {
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(format!("{}: {error}", folder.display()));
        }
        _ => {}
    }
    std::fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))
}

/// The paths of all files and links below a folder, in the order of their names.
///
/// # Errors
/// The error of the system, or a name that is not UTF-8.
pub fn files(folder: &Path) -> Result<Vec<String>, String> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        let entries = std::fs::read_dir(&next).map_err(|error| format!("{}: {error}", next.display()))?;
        for entry in entries {
            let path = entry.map_err(|error| format!("{}: {error}", next.display()))?.path();
            if path.is_dir() && !path.is_symlink() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(folder).ok().and_then(Path::to_str);
                found.push(name.ok_or_else(|| format!("{}: not UTF-8", path.display()))?.to_owned());
            }
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// Copies a file.
///
/// # Errors
/// The error of the system.
pub fn copy(from: &Path, to: &Path, mode: u32) -> Result<(), String> {
    parent(to)?;
    std::fs::copy(from, to).map_err(|error| format!("{} to {}: {error}", from.display(), to.display()))?;
    set_mode(to, mode)
}

/// Writes a file.
///
/// # Errors
/// The error of the system.
pub fn write(to: &Path, text: impl AsRef<[u8]>) -> Result<(), String> {
    parent(to)?;
    std::fs::write(to, text).map_err(|error| format!("{}: {error}", to.display()))?;
    set_mode(to, 0o644)
}

/// Makes a symbolic link.
///
/// # Errors
/// The error of the system.
pub fn link(target: &str, at: &Path) -> Result<(), String> {
    parent(at)?;
    std::os::unix::fs::symlink(target, at).map_err(|error| format!("{}: {error}", at.display()))
}

/// Replaces a file by its compressed form, in which the name and the time of the file are not recorded.
///
/// # Errors
/// When there is no gzip.
pub fn compress(release: &Release, file: &Path) -> Result<(), String> {
    tool::run(release.command("gzip").args(["-9n", "--"]).arg(file))
}

/// Sets a file's mode. The files of a package depend neither on the user who makes it nor on the umask.
fn set_mode(file: &Path, mode: u32) -> Result<(), String> {
    std::fs::set_permissions(file, PermissionsExt::from_mode(mode))
        .map_err(|error| format!("{}: {error}", file.display()))
}

/// Makes the folders above a file, with a mode that lets all users read them.
fn parent(file: &Path) -> Result<(), String> {
    let Some(folder) = file.parent().filter(|folder| !folder.is_dir()) else {
        return Ok(());
    };
    parent(folder)?;
    std::fs::create_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    set_mode(folder, 0o755)
}
