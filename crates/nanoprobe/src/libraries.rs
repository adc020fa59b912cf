//! The directories of `-L`: their `.d` files are libraries.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use nanoprobe_lang::Source;
use nanoprobe_lang::bytes::{bytes_of, text_of};
use nanoprobe_lang::libraries::ordered;

/// The libraries of these directories, each after the libraries on which it depends. As in DTrace, an unreadable
/// directory or file is skipped, and of files with the same name the one in the first directory counts.
///
/// # Errors
/// Dependencies that are missing or circular.
pub fn read(folders: &[String]) -> Result<Vec<Source>, String> {
    let mut libraries: Vec<Source> = Vec::new();
    for folder in folders {
        let Ok(files) = std::fs::read_dir(OsStr::from_bytes(&bytes_of(folder))) else {
            continue;
        };
        let names = files.filter_map(|file| Some(text_of(file.ok()?.file_name().as_bytes())));
        let mut names: Vec<String> = names.filter(|name| name.ends_with(".d")).collect();
        names.sort_unstable();
        for name in names {
            let is_known = |library: &Source| library.name.rsplit('/').next() == Some(&name);
            if libraries.iter().any(is_known) {
                continue;
            }
            let path = format!("{folder}/{name}");
            if let Ok(bytes) = std::fs::read(OsStr::from_bytes(&bytes_of(&path))) {
                libraries.push(Source::library(path, text_of(&bytes)));
            }
        }
    }
    ordered(libraries).map_err(|error| error.to_string())
}
