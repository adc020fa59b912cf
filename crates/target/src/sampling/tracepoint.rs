//! A tracepoint of the kernel: its number for perf_event_open(2), and where the fields of its record lie.
//!
//! Both are in tracefs. Where the machine has not mounted it, the tracer opens an instance of its own that lies in no
//! folder: nothing of the machine changes, and closing it ends it.

use std::collections::HashMap;
use std::io::Read as _;
use std::os::fd::{AsFd as _, OwnedFd};

use nix::errno::Errno;
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

/// Where tracefs is usually mounted.
const USUAL: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
/// More than any description of a tracepoint.
const TEXT_BYTES_MAX: u64 = 64 << 10;

/// A tracepoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tracepoint {
    pub number: u64,
    /// The place of each field: offset and size in bytes.
    fields: HashMap<String, (usize, usize)>,
}

impl Tracepoint {
    /// Finds `sched` and `sched_waking`, for example.
    ///
    /// # Errors
    /// The kernel's: tracefs is not there, or the tracer may not read it.
    pub fn find(group: &str, name: &str) -> Result<Tracepoint, Errno> {
        let id = format!("events/{group}/{name}/id");
        let mut last = Errno::ENOENT;
        for folder in USUAL {
            match read(None, &format!("{folder}/{id}")) {
                Ok(text) => {
                    let format = read(None, &format!("{folder}/events/{group}/{name}/format"))?;
                    return Tracepoint::parse(&text, &format).ok_or(Errno::EINVAL);
                }
                Err(error) => last = error,
            }
        }
        if last != Errno::ENOENT {
            return Err(last);
        }
        let own = own_instance().map_err(|error| Errno::from_raw(error.raw_os_error()))?;
        let text = read(Some(&own), &id)?;
        let format = read(Some(&own), &format!("events/{group}/{name}/format"))?;
        Tracepoint::parse(&text, &format).ok_or(Errno::EINVAL)
    }

    /// The content of the files `id` and `format`.
    fn parse(id: &str, format: &str) -> Option<Tracepoint> {
        // field:pid_t pid;	offset:24;	size:4;	signed:1;
        let field = |line: &str| {
            let mut parts = line.trim().strip_prefix("field:")?.split(';');
            let name = parts.next()?.rsplit([' ', '*']).next()?;
            let name = name.split('[').next()?.to_owned();
            let mut number = |key: &str| parts.next()?.trim().strip_prefix(key)?.parse().ok();
            Some((name, (number("offset:")?, number("size:")?)))
        };
        Some(Tracepoint {
            number: id.trim().parse().ok()?,
            fields: format.lines().filter_map(field).collect(),
        })
    }

    /// An integer of a record, of one to eight bytes, without a sign.
    pub fn integer(&self, record: &[u8], field: &str) -> Option<u64> {
        let mut bytes = [0; 8];
        let found = self.bytes(record, field)?;
        bytes.get_mut(..found.len())?.copy_from_slice(found);
        Some(u64::from_le_bytes(bytes))
    }

    fn bytes<'r>(&self, record: &'r [u8], field: &str) -> Option<&'r [u8]> {
        let (offset, size) = *self.fields.get(field)?;
        record.get(offset..)?.get(..size)
    }
}

/// An instance of tracefs that is mounted nowhere.
fn own_instance() -> Result<OwnedFd, rustix::io::Errno> {
    let context = fsopen("tracefs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(context.as_fd())?;
    fsmount(
        context.as_fd(),
        FsMountFlags::FSMOUNT_CLOEXEC,
        MountAttrFlags::MOUNT_ATTR_RDONLY,
    )
}

fn read(folder: Option<&OwnedFd>, path: &str) -> Result<String, Errno> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let opened = match folder {
        Some(folder) => openat(folder, path, flags, Mode::empty()),
        None => openat(CWD, path, flags, Mode::empty()),
    };
    let file = std::fs::File::from(opened.map_err(|error| Errno::from_raw(error.raw_os_error()))?);
    let mut text = String::new();
    let read = file.take(TEXT_BYTES_MAX).read_to_string(&mut text);
    read.map_err(|error| error.raw_os_error().map_or(Errno::EINVAL, Errno::from_raw))?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORMAT: &str = "name: sched_waking\nID: 309\nformat:\n\tfield:unsigned char common_flags;\toffset:2;\tsize:1;\t\
                          signed:0;\n\n\tfield:char comm[16];\toffset:8;\tsize:16;\tsigned:0;\n\tfield:pid_t pid;\t\
                          offset:24;\tsize:4;\tsigned:1;\n\nprint fmt: \"pid=%d\", REC->pid\n";

    #[test]
    fn fields_lie_where_the_description_says() {
        let tracepoint = Tracepoint::parse("309\n", FORMAT).expect("a description");
        assert_eq!(tracepoint.number, 309);
        let mut record = [0_u8; 28];
        record[2] = 8;
        record[24..].copy_from_slice(&77_u32.to_le_bytes());
        assert_eq!(tracepoint.integer(&record, "pid"), Some(77));
        assert_eq!(tracepoint.integer(&record, "common_flags"), Some(8));
        assert_eq!(tracepoint.integer(&record, "comm"), None, "no integer");
        assert_eq!(tracepoint.integer(&record, "prio"), None);
        assert_eq!(tracepoint.integer(&record[..27], "pid"), None, "a record that is cut");
    }

    #[test]
    fn other_texts_are_no_descriptions() {
        assert_eq!(Tracepoint::parse("many", FORMAT), None);
        let empty = Tracepoint::parse("7", "field:;\tfield:x\nfield:int y;\toffset:-1;\tsize:4;").expect("a number");
        assert_eq!(empty.fields, HashMap::new());
    }
}
