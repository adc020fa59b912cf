//! Rules by which processes are found: all that run a file, all of a cgroup, all of a container.
//!
//! A look costs a system call or two for each process of the machine. A process that was no member at the last look
//! may be one now: it may have executed the file, or have been moved. So each look is at all processes.

use std::fmt;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use super::cgroups::{self, Container};
use crate::processes::{self, file_of, is_tracer};

/// How processes are found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rule {
    /// `--exe`: those that run the file that this path named at first, or the file that it names now, by device and
    /// inode. An upgrade replaces the file.
    Executable { path: PathBuf, first: Option<(u64, u64)> },
    /// `--name`: a pattern for the names of processes.
    Name(String),
    /// `--cgroup`: those of this cgroup, and of the cgroups below it. `waits`: it may come and go.
    Cgroup { path: String, waits: bool },
    /// `--container`
    Container(Container),
}

impl Rule {
    /// `--exe PATH`. `waits`: the file may come later.
    ///
    /// # Errors
    /// There is no such file.
    pub fn executable(path: &str, waits: bool) -> Result<Rule, String> {
        let rule = |first| Rule::Executable {
            path: PathBuf::from(path),
            first,
        };
        match fs::metadata(path) {
            Ok(metadata) if metadata.is_file() => Ok(rule(Some((metadata.dev(), metadata.ino())))),
            Ok(_) => Err(format!("--exe {path}: this is no file that a process can run")),
            Err(error) if waits && error.kind() == ErrorKind::NotFound => Ok(rule(None)),
            Err(error) => Err(format!("--exe {path}: {error}")),
        }
    }

    /// `--name PATTERN`
    ///
    /// # Errors
    /// No name is like this.
    pub fn name(pattern: &str) -> Result<Rule, String> {
        match pattern {
            "" => Err("--name: a name is needed, as nginx or php-fpm*".to_owned()),
            _ if pattern.contains('/') => Err(format!("--name {pattern}: a name has no folder; --exe takes a path")),
            _ => Ok(Rule::Name(pattern.to_owned())),
        }
    }

    /// `--cgroup PATH`. `waits`: the cgroup may come and go.
    ///
    /// # Errors
    /// There is no such cgroup.
    pub fn cgroup(path: &str, waits: bool) -> Result<Rule, String> {
        match cgroups::folders(path).is_empty() && !waits {
            true => Err(format!(
                "--cgroup {path}: there is no such cgroup: give its folder (/sys/fs/cgroup/...), or its path below that"
            )),
            false => Ok(Rule::Cgroup {
                path: path.to_owned(),
                waits,
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
            Rule::Executable { path, first } => {
                let now = fs::metadata(path).ok().map(|metadata| (metadata.dev(), metadata.ino()));
                let is_meant = |file| Some(file) == now || Some(file) == *first;
                let runs = |pid: &i32| file_of(*pid).is_some_and(is_meant);
                processes::pids().filter(runs).collect()
            }
            Rule::Name(pattern) => processes::matching(pattern),
            Rule::Cgroup { path, waits } => {
                let folders = cgroups::folders(path);
                if folders.is_empty() && !waits {
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
            Rule::Name(pattern) => write!(to, "--name {pattern}"),
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
        let rule = Rule::executable(path.to_str().expect("a path"), false).expect("a file");
        assert_eq!(
            file_of(own),
            match &rule {
                Rule::Executable { first, .. } => *first,
                _ => None,
            }
        );
        assert!(is_tracer(own) && may_trace(own));
        assert!(!rule.look().expect("files stay").contains(&own));
        assert!(Rule::executable("/nothing", false).is_err_and(|what| what.starts_with("--exe /nothing: ")));
        assert!(Rule::executable("/", true).is_err_and(|what| what.contains("no file")));
        let later = Rule::executable("/nothing", true).expect("it may come");
        assert_eq!(later.look(), Some(Vec::new()));
    }

    #[test]
    fn a_cgroup_that_may_come_is_waited_for() {
        let nothing = "nothing/such";
        assert!(Rule::cgroup(nothing, false).is_err());
        assert_eq!(
            Rule::cgroup(nothing, true).expect("it may come").look(),
            Some(Vec::new())
        );
        let gone = Rule::Cgroup {
            path: nothing.to_owned(),
            waits: false,
        };
        assert_eq!(gone.look(), None);
    }

    #[test]
    fn a_name_is_no_path() {
        assert!(Rule::name("php-fpm*").is_ok());
        assert!(Rule::name("/usr/bin/php").is_err_and(|what| what.contains("--exe")));
        assert!(Rule::name("").is_err());
    }
}
