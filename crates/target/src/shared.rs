//! Memory that the tracer shares with its target.
//!
//! A borrowed thread of the target makes a nameless file. The other threads run on, and may put anything at the number
//! of its descriptor at any time, for instance a handle to a file that belongs to another user. So the tracer never
//! opens that number with its own rights:
//!
//! 1. It takes a handle (O_PATH). That opens nothing: whatever is there notices nothing, and nothing can
//!    be read or written.
//! 2. The handle is proven to show what was meant ([`doubt`]): a nameless, empty file of the kernel's own, whose name
//!    holds a random number of this attach. Only the target could have made it, so no other file is written to.
//! 3. The handle, which is ours and cannot change, is opened. This open file description is the tracer's alone.
//! 4. Through it the tracer sets the size, and seals it: no page of the mapping can be cut off later. It takes a lock
//!    ([`crate::is_locked`]) that shows every other tracer that this one lives.
//! 5. The target maps the descriptor. The map must show the proven file at the address.

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use nanoprobe_patch::TargetAddress;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use rustix::fs::{FileType, MemfdFlags, Mode, OFlags, Stat};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::error::RemoteError;
use crate::map::Mapping;
use crate::remote::Remote;
use crate::remote_calls::Protection;
use crate::{ProcessId, ThreadId, raw};

/// Memory that target and tracer share.
#[derive(Debug)]
pub struct SharedMemory {
    /// Where the target has it.
    pub address: TargetAddress,
    /// Its size.
    pub bytes: u64,
    /// The tracer's: to be mapped, and kept open as long as the tracer is to count as alive. The target keeps no
    /// descriptor.
    pub file: OwnedFd,
}

/// What distinguishes a file from all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity {
    device: u64,
    inode: u64,
}

impl Identity {
    fn of(status: &Stat) -> Identity {
        Identity {
            device: status.st_dev,
            inode: status.st_ino,
        }
    }

    /// Whether the file is the one that a mapping shows.
    fn is_of(self, mapping: &Mapping) -> bool {
        let device = (rustix::fs::major(self.device), rustix::fs::minor(self.device));
        (device, self.inode) == (mapping.device, mapping.inode)
    }
}

/// The seals that the file has in the end. One more, against execution, comes from the kernel where that is its
/// setting.
const SEALS: SealFlag = SealFlag::F_SEAL_SHRINK
    .union(SealFlag::F_SEAL_GROW)
    .union(SealFlag::F_SEAL_SEAL);

impl Remote<'_> {
    /// Makes memory that both see, readable and writable, at exactly this address of the target. The target keeps no
    /// descriptor; the memory is zero, and its size cannot be changed.
    ///
    /// # Errors
    /// [`RemoteError`]; nothing is left in the target then.
    pub fn create_shared(
        &mut self,
        name: &str,
        address: TargetAddress,
        bytes: u64,
    ) -> Result<SharedMemory, RemoteError> {
        let pid = self.process().pid();
        let name = unique_name(name).map_err(|errno| failed(pid, "naming", errno))?;
        let descriptor = self.memfd_create(&name)?;
        let shared = match own_handle(pid, self.tid(), descriptor, &name) {
            Ok(handle) => self.share(&handle, descriptor, address, bytes),
            Err(error) => Err(error),
        };
        let closed = self.close_shared(descriptor, &name);
        let shared = shared?;
        if let Err(error) = closed {
            self.unmap(address, bytes)?;
            return Err(error);
        }
        Ok(shared)
    }

    /// Sizes, seals and locks the file, and has the target map it.
    fn share(
        &mut self,
        handle: &OwnedFd,
        descriptor: i32,
        address: TargetAddress,
        bytes: u64,
    ) -> Result<SharedMemory, RemoteError> {
        let pid = self.process().pid();
        let (file, identity) = own_file(pid, handle, bytes)?;
        let flags = libc::MAP_SHARED | libc::MAP_FIXED_NOREPLACE;
        // Without access first: see `Remote::map`.
        self.map_at(address, bytes, Protection::None, flags, descriptor as u64)?;
        let finished = self.check_mapping(address, bytes, identity).and_then(|()| {
            self.find_out_whether_locked(address, bytes);
            let locked = self.process().locks_new_memory();
            if locked.load(std::sync::atomic::Ordering::Relaxed) {
                self.unlock(address, bytes)?;
            }
            self.protect(address, bytes, Protection::ReadWrite)
        });
        if let Err(error) = finished {
            self.unmap(address, bytes)?;
            return Err(error);
        }
        Ok(SharedMemory { address, bytes, file })
    }

    /// Whether the target has mapped the proven file, and not what another thread has put at its number meanwhile.
    fn check_mapping(&self, address: TargetAddress, bytes: u64, identity: Identity) -> Result<(), RemoteError> {
        let map = self.process().map()?;
        let end = address.0.saturating_add(bytes);
        let found = map.find(address);
        let is_ours = |mapping: &&Mapping| {
            mapping.start == address && mapping.end.0 == end && mapping.permissions.shared && identity.is_of(mapping)
        };
        if found.filter(is_ours).is_some() {
            return Ok(());
        }
        let shown = found.and_then(Mapping::path).map(|path| path.display().to_string());
        Err(RemoteError::Replaced {
            pid: self.process().pid(),
            place: format!("address {address}"),
            found: shown.unwrap_or_else(|| "other memory".to_owned()),
        })
    }

    /// Closes the target's descriptor, unless it shows something of the target's by now: that is not ours to close.
    fn close_shared(&mut self, descriptor: i32, name: &str) -> Result<(), RemoteError> {
        let link = std::fs::read_link(format!("/proc/{}/fd/{descriptor}", self.tid()));
        match link {
            Ok(link) if !is_named(&link, name) => Ok(()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            _ => match self.close(descriptor) {
                // A thread of the target's has been faster.
                Err(RemoteError::Call {
                    errno: Errno::EBADF, ..
                }) => Ok(()),
                closed => closed,
            },
        }
    }
}

/// The name, and a number after it that could not be known before.
fn unique_name(name: &str) -> Result<String, Errno> {
    Ok(format!("{name}-{:016x}", raw::random_number()?))
}

/// Whether a link of /proc/PID/fd shows a file of the kernel's memory by that name.
fn is_named(link: &Path, name: &str) -> bool {
    link.as_os_str().as_encoded_bytes() == format!("/memfd:{name} (deleted)").as_bytes()
}

/// Our limit on the size of files, raised for one of this size; as before when it is dropped.
///
/// Beyond the limit a file is not only refused: the kernel sends a signal that kills.
struct RaisedLimit(Option<Rlimit>);

impl RaisedLimit {
    fn to(bytes: u64) -> Result<RaisedLimit, Errno> {
        let before = getrlimit(Resource::Fsize);
        if before.current.is_none_or(|limit| limit >= bytes) {
            return Ok(RaisedLimit(None));
        }
        let raised = Rlimit {
            current: Some(bytes),
            maximum: before.maximum.map(|limit| limit.max(bytes)),
        };
        // Only root may raise it further than its maximum.
        setrlimit(Resource::Fsize, raised).map_err(|_| Errno::EFBIG)?;
        Ok(RaisedLimit(Some(before)))
    }
}

impl Drop for RaisedLimit {
    fn drop(&mut self) {
        if let Some(before) = self.0.take() {
            // Lowering a limit is always allowed.
            let _ = setrlimit(Resource::Fsize, before);
        }
    }
}

/// A handle to what is at the descriptor, proven to be the file of that name. Nothing is opened.
fn own_handle(pid: ProcessId, tid: ThreadId, descriptor: i32, name: &str) -> Result<OwnedFd, RemoteError> {
    let path = format!("/proc/{tid}/fd/{descriptor}");
    let replaced = |found: String| RemoteError::Replaced {
        pid,
        place: format!("descriptor {descriptor}"),
        found,
    };
    let handle = match rustix::fs::open(&path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) {
        Err(rustix::io::Errno::NOENT) => return Err(replaced("nothing".to_owned())),
        other => other.map_err(|errno| failed(pid, "opening", of(errno)))?,
    };
    match doubt(&handle, name).map_err(|errno| failed(pid, "looking at", errno))? {
        None => Ok(handle),
        Some(found) => Err(replaced(found)),
    }
}

/// Why a handle is not to the empty, nameless file of that name, which the kernel keeps in memory; `None`: it is.
fn doubt(handle: &OwnedFd, name: &str) -> Result<Option<String>, Errno> {
    let shown =
        std::fs::read_link(link_of(handle)).map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or(0)))?;
    let status = rustix::fs::fstat(handle).map_err(of)?;
    // On this device the kernel keeps what has never had a name in any folder.
    let own = rustix::fs::memfd_create("nanoprobe-own", MemfdFlags::CLOEXEC).map_err(of)?;
    let device = rustix::fs::fstat(&own).map_err(of)?.st_dev;
    let is_ours = FileType::from_raw_mode(status.st_mode) == FileType::RegularFile
        && status.st_dev == device
        && status.st_nlink == 0
        && status.st_size == 0
        && is_named(&shown, name);
    Ok((!is_ours).then(|| shown.display().to_string()))
}

/// The proven file, opened by the tracer, of that size, sealed and locked.
fn own_file(pid: ProcessId, handle: &OwnedFd, bytes: u64) -> Result<(OwnedFd, Identity), RemoteError> {
    let step = |step: &'static str| move |errno| failed(pid, step, errno);
    let status = rustix::fs::fstat(handle).map_err(of).map_err(step("looking at"))?;
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let file = rustix::fs::open(link_of(handle), flags, Mode::empty());
    let file = file.map_err(of).map_err(step("opening"))?;
    lock(&file).map_err(step("locking"))?;
    let limit = RaisedLimit::to(bytes).map_err(step("sizing"))?;
    rustix::fs::ftruncate(&file, bytes)
        .map_err(of)
        .map_err(step("sizing"))?;
    drop(limit);
    fcntl(&file, FcntlArg::F_ADD_SEALS(SEALS)).map_err(step("sealing"))?;
    let seals = SealFlag::from_bits_retain(fcntl(&file, FcntlArg::F_GET_SEALS).map_err(step("sealing"))?);
    // Until it was sealed, the target could change its size again, or seal it against our writes.
    let sealed = rustix::fs::fstat(&file).map_err(of).map_err(step("looking at"))?;
    let identity = Identity::of(&status);
    let unwanted = SealFlag::F_SEAL_WRITE | SealFlag::F_SEAL_FUTURE_WRITE;
    let is_whole = u64::try_from(sealed.st_size) == Ok(bytes) && Identity::of(&sealed) == identity;
    if is_whole && seals.contains(SEALS) && !seals.intersects(unwanted) {
        Ok((file, identity))
    } else {
        Err(RemoteError::Replaced {
            pid,
            place: "the memory's file".to_owned(),
            found: format!("{} bytes under the seals {:#x}", sealed.st_size, seals.bits()),
        })
    }
}

/// Takes the lock that says that a tracer lives: see [`crate::is_locked`].
fn lock(file: &OwnedFd) -> Result<(), Errno> {
    let whole = libc::flock {
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    fcntl(file, FcntlArg::F_OFD_SETLK(&whole)).map(drop)
}

fn link_of(file: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

fn of(errno: rustix::io::Errno) -> Errno {
    Errno::from_raw(errno.raw_os_error())
}

fn failed(pid: ProcessId, step: &'static str, errno: Errno) -> RemoteError {
    let hint = match errno {
        Errno::EFBIG => "; the size of nanoprobe's files is limited (ulimit -f): raise the limit",
        Errno::EMFILE => "; nanoprobe may open too few files (ulimit -n): raise the limit",
        Errno::EPERM | Errno::EAGAIN => "; the process itself has sealed or locked it first: it keeps tracers out",
        Errno::EACCES => "; are both in the same mount and user namespace?",
        _ => "",
    };
    RemoteError::Shared { pid, step, errno, hint }
}
