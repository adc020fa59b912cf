//! Cgroups, and the containers that they name.
//!
//! Docker, podman and Kubernetes give each container a cgroup with its ID of 64 hexadecimal digits in its name:
//!
//! ```text
//!   docker           /docker/ID                        /system.slice/docker-ID.scope
//!   podman           /machine.slice/libpod-ID.scope    /libpod_parent/libpod-ID
//!   Kubernetes       /kubepods/.../podUID/ID           /kubepods.slice/.../cri-containerd-ID.scope, crio-ID.scope
//! ```

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use crate::processes;

use nanoprobe_target::proc_file;

/// Where cgroups are mounted, and the hierarchies of version 1 below.
const ROOT: &str = "/sys/fs/cgroup";
/// The number of digits of a container's ID.
const ID_DIGITS: usize = 64;
/// How many cgroups below one are looked at.
const FOLDERS_MAX: usize = 10_000;
/// The number of containers that a message lists.
const LISTED_MAX: usize = 20;

/// Whether a folder is a cgroup.
fn is_cgroup(folder: &Path) -> bool {
    folder.join("cgroup.procs").is_file()
}

/// The folders of a cgroup that is given by its folder, or by its path in the hierarchy. In version 1 there may be
/// several, one in each hierarchy.
pub fn folders(path: &str) -> Vec<PathBuf> {
    if is_cgroup(Path::new(path)) {
        return vec![PathBuf::from(path)];
    }
    let below = path.trim_start_matches('/');
    let hierarchies = fs::read_dir(ROOT).into_iter().flatten().flatten();
    let roots = std::iter::once(PathBuf::from(ROOT)).chain(hierarchies.map(|entry| entry.path()));
    let mut found: Vec<PathBuf> = Vec::new();
    for folder in roots.map(|root| root.join(below)).filter(|folder| is_cgroup(folder)) {
        // Hierarchies have links with other names.
        let folder = fs::canonicalize(&folder).unwrap_or(folder);
        if !found.contains(&folder) {
            found.push(folder);
        }
    }
    found
}

/// The processes of a cgroup and of those below it.
pub fn members(folder: &Path) -> Vec<i32> {
    let mut pids = Vec::new();
    let mut folders = vec![folder.to_owned()];
    let mut looked = 0;
    while let Some(folder) = folders.pop() {
        looked += 1;
        if looked > FOLDERS_MAX {
            break;
        }
        let text = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
        // Processes of other pid namespaces are shown as 0.
        pids.extend(
            text.lines()
                .filter_map(|line| line.parse::<i32>().ok())
                .filter(|pid| *pid > 0),
        );
        let below = fs::read_dir(&folder).into_iter().flatten().flatten();
        folders.extend(
            below
                .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
                .map(|entry| entry.path()),
        );
    }
    pids
}

/// A container, by the ID in the names of its cgroups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Container {
    id: String,
}

impl Container {
    /// The only container that has processes and whose ID begins like this.
    ///
    /// # Errors
    /// There is none, or the list of those that there are.
    pub fn find(prefix: &str) -> Result<Container, String> {
        let wanted = prefix.to_ascii_lowercase();
        if wanted.is_empty() || !wanted.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(format!(
                "--container {prefix}: this is not the beginning of a container's ID, which has hexadecimal digits only"
            ));
        }
        let mut found: BTreeMap<String, usize> = BTreeMap::new();
        for pid in processes::pids() {
            for id in ids_of(pid).into_iter().filter(|id| id.starts_with(&wanted)) {
                *found.entry(id).or_default() += 1;
            }
        }
        chosen(prefix, &found)
    }

    pub fn id(&self) -> &str {
        &self.id
    }

    /// Whether a process is in this container.
    pub fn has(&self, pid: i32) -> bool {
        ids_of(pid).contains(&self.id)
    }
}

/// The container of which there is only one. `found`: containers with the numbers of their processes.
fn chosen(prefix: &str, found: &BTreeMap<String, usize>) -> Result<Container, String> {
    let mut ids = found.keys();
    match (ids.next(), found.len()) {
        (None, _) => Err(format!(
            "--container {prefix}: no process is in a container whose ID begins like this"
        )),
        (Some(id), 1) => Ok(Container { id: id.clone() }),
        (Some(_), count) => {
            let mut text = format!("--container {prefix}: {count} containers have an ID that begins like this:");
            for (id, processes) in found.iter().take(LISTED_MAX) {
                let _ = write!(text, "\n  {id}, processes: {processes}");
            }
            if count > LISTED_MAX {
                let _ = write!(text, "\n  and {} more", count - LISTED_MAX);
            }
            Err(text)
        }
    }
}

/// The containers that the cgroups of a process name: usually one.
fn ids_of(pid: i32) -> Vec<String> {
    let text = proc_file::read_text(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    let mut ids: Vec<String> = text.lines().flat_map(ids_in).collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}

/// The containers' IDs in a line of /proc/PID/cgroup, `hierarchy:controllers:path`.
fn ids_in(line: &str) -> Vec<String> {
    let path = line.splitn(3, ':').nth(2).unwrap_or_default();
    let ids = path.split('/').filter_map(|name| {
        let name = name.strip_suffix(".scope").unwrap_or(name);
        // podman's own process beside the container.
        let is_beside = name.starts_with("libpod-conmon-") || name.starts_with("crio-conmon-");
        let id = name.rsplit_once(['-', ':']).map_or(name, |(_, id)| id);
        let is_id = id.len() == ID_DIGITS && id.bytes().all(|byte| byte.is_ascii_hexdigit());
        (is_id && !is_beside).then(|| id.to_ascii_lowercase())
    });
    ids.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(digit: char) -> String {
        digit.to_string().repeat(ID_DIGITS)
    }

    #[test]
    fn containers_are_found_as_docker_podman_and_kubernetes_name_them() {
        let a = id('a');
        for line in [
            format!("0::/docker/{a}"),
            format!("12:memory:/docker/{a}"),
            format!("0::/system.slice/docker-{a}.scope"),
            format!("0::/machine.slice/libpod-{a}.scope/container"),
            format!("0::/libpod_parent/libpod-{a}"),
            format!("0::/kubepods/burstable/pod0b5cfcad-9a8e-4d4c-b2b9-0ad5a1d0a0a0/{a}"),
            format!(
                "0::/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod1.slice/cri-containerd-{a}.scope"
            ),
            format!("0::/kubepods.slice/crio-{a}.scope"),
            format!("0::/system.slice/containerd.service/kubepods-pod1.slice:cri-containerd:{a}"),
            format!("0::/../../docker/{}", a.to_uppercase()),
        ] {
            assert_eq!(ids_in(&line), [a.as_str()], "{line}");
        }
        for line in [
            format!("0::/machine.slice/libpod-conmon-{a}.scope"),
            format!("0::/docker/{}", &a[1..]),
            "0::/user.slice/user-1000.slice".to_owned(),
            "0::/".to_owned(),
            String::new(),
            a.clone(),
        ] {
            assert_eq!(ids_in(&line), [""; 0], "{line}");
        }
    }

    #[test]
    fn a_beginning_of_several_ids_lists_them() {
        let (a, b) = (id('a'), format!("a{}", &id('b')[1..]));
        let found = BTreeMap::from([(a.clone(), 1), (b.clone(), 12)]);
        let error = chosen("a", &found).expect_err("two");
        assert_eq!(
            error,
            format!(
                "--container a: 2 containers have an ID that begins like this:\n  {a}, processes: 1\n  {b}, processes: 12"
            )
        );
        let only = BTreeMap::from([(a.clone(), 3)]);
        assert_eq!(chosen("a", &only), Ok(Container { id: a }));
        assert!(chosen("a", &BTreeMap::new()).is_err_and(|what| what.contains("no process")));
        for wrong in ["", "web-1", "0x12"] {
            assert!(
                Container::find(wrong).is_err_and(|what| what.contains("hexadecimal")),
                "{wrong}"
            );
        }
    }

    #[test]
    fn only_a_cgroup_has_folders() {
        for nothing in ["/tmp", "nothing-that-is/there", "/../../tmp"] {
            assert!(folders(nothing).is_empty(), "{nothing}");
        }
    }
}
