//! Rules by which processes are found: all that run a file, all of a cgroup, all of a container.
//!
//! A look costs a system call or two for each process of the machine. A process that was no member at the last look
//! may be one now: it may have executed the file, or have been moved. So each look is at all processes.

use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use super::cgroups::{self, Container};
use crate::processes::{self, file_of, is_tracer};

/// How processes are found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rule {
    /// `--exe`: those that run this file, by its device and inode.
    Executable { path: PathBuf, file: (u64, u64) },
    /// `--cgroup`: those of these cgroups, which are folders, and of the cgroups below them.
    Cgroup { path: String, folders: Vec<PathBuf> },
    /// `--container`
    Container(Container),
}

impl Rule {
    /// `--exe PATH`
    ///
    /// # Errors
    /// There is no such file.
    pub fn executable(path: &str) -> Result<Rule, String> {
        let metadata = fs::metadata(path).map_err(|error| format!("--exe {path}: {error}"))?;
        match metadata.is_file() {
            true => Ok(Rule::Executable {
                path: PathBuf::from(path),
                file: (metadata.dev(), metadata.ino()),
            }),
            false => Err(format!("--exe {path}: this is no file that a process can run")),
        }
    }

    /// `--cgroup PATH`
    ///
    /// # Errors
    /// There is no such cgroup.
    pub fn cgroup(path: &str) -> Result<Rule, String> {
        let folders = cgroups::folders(path);
        match folders.is_empty() {
            true => Err(format!(
                "--cgroup {path}: there is no such cgroup: give its folder (/sys/fs/cgroup/...), or its path below that"
            )),
            false => Ok(Rule::Cgroup {
                path: path.to_owned(),
                folders,
            }),
        }
    }

    /// `--container ID`
    ///
    /// # Errors
    /// No process is in such a container, or the beginning of an ID is that of several.
    pub fn container(id: &str) -> Result<Rule, String> {
        Container::find(id).map(Rule::Container)
    }

    /// The processes that the rule means now, in the order of their numbers, but no nanoprobe. `None`: none can come
    /// any more.
    pub fn look(&self) -> Option<Vec<i32>> {
        let mut pids = match self {
            Rule::Executable { file, .. } => {
                let runs = |pid: &i32| file_of(*pid) == Some(*file);
                processes::pids().filter(runs).collect()
            }
            Rule::Cgroup { folders, .. } => {
                if folders.iter().all(|folder| !folder.exists()) {
                    return None;
                }
                folders.iter().flat_map(|folder| cgroups::members(folder)).collect()
            }
            Rule::Container(container) => processes::pids()
                .filter(|pid| container.has(*pid))
                .collect::<Vec<i32>>(),
        };
        pids.sort_unstable();
        pids.dedup();
        pids.retain(|pid| !is_tracer(*pid));
        Some(pids)
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Rule::Executable { path, .. } => write!(to, "--exe {}", path.display()),
            Rule::Cgroup { path, .. } => write!(to, "--cgroup {path}"),
            Rule::Container(container) => write!(to, "--container {}", container.id()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::processes::may_trace;

    #[test]
    fn this_process_runs_its_file_and_is_never_found() {
        let own = std::process::id().cast_signed();
        let path = fs::read_link("/proc/self/exe").expect("a link");
        let rule = Rule::executable(path.to_str().expect("a path")).expect("a file");
        assert_eq!(
            file_of(own),
            match &rule {
                Rule::Executable { file, .. } => Some(*file),
                _ => None,
            }
        );
        assert!(is_tracer(own) && may_trace(own));
        assert!(!rule.look().expect("files stay").contains(&own));
        assert!(Rule::executable("/nothing").is_err_and(|what| what.starts_with("--exe /nothing: ")));
        assert!(Rule::executable("/").is_err_and(|what| what.contains("no file")));
    }
}
