//! The kernel's uprobes and uretprobes on the same functions, in the two forms that a tool would use.
//!
//! Counted: a perf event on the `uprobe` PMU, in counting mode. Nothing is recorded, so this is the
//! least that the kernel can do for a hit, and the ratios use it. Recorded: an event of tracefs,
//! which writes a record into the kernel's ring at every hit.

use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::os::fd::{FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

/// The kinds of the kernel's probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Counted,
    ReturnCounted,
    Recorded,
    ReturnRecorded,
}

/// An enabled probe; dropping it removes it.
pub enum Probe {
    Perf(OwnedFd),
    Tracefs(Tracefs),
}

impl Probe {
    /// How often the probe has fired.
    pub fn hits(&self) -> Result<u64> {
        match self {
            Probe::Perf(event) => count_of(event),
            Probe::Tracefs(tracefs) => tracefs.hits(),
        }
    }
}

/// Enables a probe at an offset of a file, for one process (tracefs: for all processes that run the file).
pub fn attach(kind: Kind, pid: u32, program: &Path, offset: u64) -> Result<Probe> {
    // SAFETY: a plain query.
    ensure!(unsafe { libc::geteuid() } == 0, "the kernel's uprobes need root");
    match kind {
        Kind::Counted => perf(pid, program, offset, false).map(Probe::Perf),
        Kind::ReturnCounted => perf(pid, program, offset, true).map(Probe::Perf),
        Kind::Recorded => Tracefs::enable(program, offset, 'p').map(Probe::Tracefs),
        Kind::ReturnRecorded => Tracefs::enable(program, offset, 'r').map(Probe::Tracefs),
    }
}

/// `struct perf_event_attr` up to its version 1 (72 bytes).
#[repr(C)]
#[derive(Default)]
struct PerfEventAttributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint_type: u32,
    /// Address of the file's name.
    config1: u64,
    /// Offset in the file.
    config2: u64,
}

/// The event is opened on the thread that loops, which is the last thread of the process.
fn perf(pid: u32, program: &Path, offset: u64, is_return: bool) -> Result<OwnedFd> {
    let mut threads: Vec<i32> = std::fs::read_dir(format!("/proc/{pid}/task"))?
        .filter_map(|task| task.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    threads.sort_unstable();
    let thread = *threads.last().context("the process has no thread")?;
    open(thread, -1, program, offset, is_return)
}

/// Counts the hits of all processes, as whole process trees need. This is the least that the kernel can do: a fork or
/// an exec makes no event of its own.
pub struct Everywhere(Vec<OwnedFd>);

impl Everywhere {
    /// Enables a probe at an offset of a file, on each processor.
    pub fn attach(program: &Path, offset: u64) -> Result<Everywhere> {
        // SAFETY: a plain query.
        ensure!(unsafe { libc::geteuid() } == 0, "the kernel's uprobes need root");
        let processors = i32::try_from(crate::processors())?;
        let events = (0..processors).map(|processor| open(-1, processor, program, offset, false));
        Ok(Everywhere(events.collect::<Result<_>>()?))
    }

    /// How often the probe has fired.
    pub fn hits(&self) -> Result<u64> {
        self.0.iter().map(count_of).sum()
    }
}

fn count_of(event: &OwnedFd) -> Result<u64> {
    let mut count = [0; 8];
    let mut file = std::fs::File::from(event.try_clone()?);
    file.read_exact(&mut count).context("reading the perf event")?;
    Ok(u64::from_ne_bytes(count))
}

/// An event of a thread, on any processor (-1), or of a processor, in any thread (-1).
fn open(thread: i32, processor: i32, program: &Path, offset: u64, is_return: bool) -> Result<OwnedFd> {
    let kind = std::fs::read_to_string("/sys/bus/event_source/devices/uprobe/type")
        .context("this kernel has no uprobe PMU")?;
    let name = std::ffi::CString::new(program.as_os_str().as_encoded_bytes())?;
    let attributes = PerfEventAttributes {
        kind: kind.trim().parse().context("the uprobe PMU's type")?,
        size: size_of::<PerfEventAttributes>() as u32,
        config: u64::from(is_return),
        config1: name.as_ptr() as u64,
        config2: offset,
        ..PerfEventAttributes::default()
    };
    // SAFETY: the attributes and the name they point to live until after the call; the kernel only reads them.
    let fd = unsafe { libc::syscall(libc::SYS_perf_event_open, &attributes, thread, processor, -1, 0) };
    ensure!(fd >= 0, "perf_event_open: {}", std::io::Error::last_os_error());
    // SAFETY: the kernel gave us this descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(i32::try_from(fd)?) })
}

const EVENT: &str = "nanoprobe_bench";

/// An event of tracefs.
pub struct Tracefs {
    folder: PathBuf,
    mounted: bool,
}

/// An existing event of tracefs that is not enabled, for tools that enable it themselves. Dropping it removes the
/// event.
pub struct Defined {
    /// Removes the event when this structure is dropped.
    _event: Tracefs,
}

impl Defined {
    /// Defines the event at the entry of a function.
    pub fn new(program: &Path, offset: u64) -> Result<Defined> {
        // SAFETY: a plain query.
        ensure!(unsafe { libc::geteuid() } == 0, "the kernel's uprobes need root");
        Ok(Defined {
            _event: Tracefs::define(program, offset, 'p')?,
        })
    }

    /// The tools' name of the event.
    pub fn name(&self) -> String {
        format!("{EVENT}:probe")
    }
}

/// tracefs, mounted for tools that need it and do not mount it.
pub struct Mounted {
    _tracefs: Option<Tracefs>,
}

impl Mounted {
    /// Mounts it if it is not mounted, until this structure is dropped. A tool that does not find it fails by itself.
    pub fn new() -> Mounted {
        Mounted {
            _tracefs: Tracefs::find().ok(),
        }
    }
}

/// Events of tracefs at many places of a file. They have their own group, and are not enabled.
pub struct Group {
    tracefs: Tracefs,
}

const GROUP: &str = "nanoprobe_bench_all";

impl Group {
    /// Makes events at these offsets of a file. No other process should run the file: a tracefs event sees every
    /// process that does.
    pub fn define(program: &Path, offsets: &[u64]) -> Result<Group> {
        // SAFETY: a plain query.
        ensure!(unsafe { libc::geteuid() } == 0, "the kernel's uprobes need root");
        let group = Group {
            tracefs: Tracefs::find()?,
        };
        // The kernel takes only whole lines in a write, and at most a page.
        for some in offsets.chunks(16) {
            let lines = some
                .iter()
                .map(|offset| format!("p:{GROUP}/at_{offset:x} {}:{offset:#x}\n", program.display()));
            group.tracefs.append("uprobe_events", &lines.collect::<String>())?;
        }
        Ok(group)
    }

    /// The name by which tools enable the whole group.
    pub fn name() -> String {
        format!("{GROUP}:*")
    }

    /// The file that enables and disables the whole group.
    pub fn switch(&self) -> PathBuf {
        self.tracefs.folder.join(format!("events/{GROUP}/enable"))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = std::fs::write(self.switch(), "0\n");
        let names: Vec<String> = std::fs::read_dir(self.tracefs.folder.join(format!("events/{GROUP}")))
            .into_iter()
            .flatten()
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .filter(|name| name.starts_with("at_"))
            .collect();
        for some in names.chunks(16) {
            let lines = some.iter().map(|name| format!("-:{GROUP}/{name}\n"));
            let _ = self.tracefs.append("uprobe_events", &lines.collect::<String>());
        }
        let _ = std::fs::write(self.tracefs.folder.join("trace"), "");
    }
}

impl Tracefs {
    fn enable(program: &Path, offset: u64, letter: char) -> Result<Tracefs> {
        let tracefs = Tracefs::define(program, offset, letter)?;
        tracefs.append(&format!("events/{EVENT}/probe/enable"), "1\n")?;
        Ok(tracefs)
    }

    fn define(program: &Path, offset: u64, letter: char) -> Result<Tracefs> {
        let tracefs = Tracefs::find()?;
        let line = format!("{letter}:{EVENT}/probe {}:{offset:#x}\n", program.display());
        tracefs.append("uprobe_events", &line)?;
        Ok(tracefs)
    }

    /// The place where tracefs is mounted; if it is not, we mount it.
    fn find() -> Result<Tracefs> {
        let folder = PathBuf::from("/sys/kernel/tracing");
        let mut mounted = false;
        if !folder.join("uprobe_events").exists() {
            let status = std::process::Command::new("mount")
                .args(["-t", "tracefs", "nodev"])
                .arg(&folder)
                .status()
                .context("running mount")?;
            ensure!(status.success(), "tracefs cannot be mounted");
            mounted = true;
        }
        let tracefs = Tracefs { folder, mounted };
        if !tracefs.folder.join("uprobe_events").exists() {
            bail!("this kernel's tracefs has no uprobe_events");
        }
        Ok(tracefs)
    }

    fn append(&self, name: &str, text: &str) -> Result<()> {
        let path = self.folder.join(name);
        let mut file = OpenOptions::new()
            .append(true)
            .open(&path)
            .with_context(|| format!("opening {}", path.display()))?;
        file.write_all(text.as_bytes())
            .with_context(|| format!("writing {text:?} to {}", path.display()))
    }

    fn hits(&self) -> Result<u64> {
        let profile = std::fs::read_to_string(self.folder.join("uprobe_profile"))?;
        let line = profile
            .lines()
            .find(|line| line.split_whitespace().nth(1) == Some("probe"));
        line.and_then(|line| line.split_whitespace().nth(2)?.parse().ok())
            .context("uprobe_profile has no count")
    }
}

impl Drop for Tracefs {
    fn drop(&mut self) {
        let _ = self.append(&format!("events/{EVENT}/probe/enable"), "0\n");
        let _ = self.append("uprobe_events", &format!("-:{EVENT}/probe\n"));
        let _ = std::fs::write(self.folder.join("trace"), "");
        if self.mounted {
            let _ = std::process::Command::new("umount").arg(&self.folder).status();
        }
    }
}
