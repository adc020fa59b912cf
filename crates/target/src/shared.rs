//! Memory that the tracer shares with its target.
//!
//! A borrowed thread of the target makes a nameless file. The target's other threads run on, and may replace the file
//! under that descriptor's number at any time, for example by a handle to a file of another user. So the tracer never
//! opens that number with its own rights:
//!
//! 1. It takes a handle (O_PATH). That does not open the file: the handle has no effect on the file, and cannot be
//!    used to read or write it.
//! 2. It proves that the handle leads to the intended file ([`doubt`]): a nameless, empty file of the kernel's own,
//!    whose name holds a random number of this attach. Only the target could have made such a file, so no other file
//!    is written.
//! 3. It opens the handle, which is the tracer's own and cannot change. This open file description belongs to the
//!    tracer alone.
//! 4. Through it the tracer sets the size, and seals it: no page of the mapping can be cut off later. It takes a lock
//!    ([`crate::is_locked`]), from which other tracers see that this tracer lives.
//! 5. The target maps the descriptor. The map must show the proven file at the address.
//! 6. In a program that has not executed anything yet, the open file description is marked, for the question whether
//!    the memory is still mapped ([`SharedFile`]).

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::OnceLock;

use nanoprobe_patch::TargetAddress;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use rustix::fs::{FileType, MemfdFlags, Mode, OFlags, Stat};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::error::RemoteError;
use crate::map::Mapping;
use crate::remote::Remote;
use crate::remote_calls::Protection;
use crate::shared_file::SharedFile;
use crate::{ProcessId, ThreadId, raw};

/// Memory that target and tracer share.
#[derive(Debug)]
pub struct SharedMemory {
    /// The memory's address in the target.
    pub address: TargetAddress,
    pub bytes: u64,
    /// The tracer's descriptor, for mapping the memory. As long as the tracer keeps it open, other tracers see that
    /// this tracer lives. The target keeps no descriptor.
    pub file: SharedFile,
}

/// The numbers that identify a file.
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

    /// Whether a mapping shows this file.
    fn is_of(self, mapping: &Mapping) -> bool {
        let device = (rustix::fs::major(self.device), rustix::fs::minor(self.device));
        (device, self.inode) == (mapping.device, mapping.inode)
    }
}

/// The final seals of the file. On some systems the kernel adds a seal against execution.
const SEALS: SealFlag = SealFlag::F_SEAL_SHRINK
    .union(SealFlag::F_SEAL_GROW)
    .union(SealFlag::F_SEAL_SEAL);

impl Remote<'_> {
    /// Makes memory that tracer and target share, readable and writable, at exactly this address of the target. The
    /// target keeps no descriptor; the memory is zero, and its size cannot be changed.
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
        if self.process().begins() {
            // The kernel fills nothing.
            self.map_at(address, bytes, Protection::ReadWrite, flags, descriptor as u64)?;
            if let Err(error) = self.check_mapping(address, bytes, identity) {
                self.unmap(address, bytes)?;
                return Err(error);
            }
            let mut file = SharedFile::new(file);
            file.mark(self.process().pidfd(), descriptor);
            return Ok(SharedMemory { address, bytes, file });
        }
        // The memory is first mapped without access: see `Remote::map`.
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
        let file = SharedFile::new(file);
        Ok(SharedMemory { address, bytes, file })
    }

    /// Checks that the target has mapped the proven file, and not a file that another thread has put under the
    /// descriptor's number.
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

    /// Closes the target's descriptor. If its number leads to another file by now, that descriptor stays open,
    /// because it is the program's.
    fn close_shared(&mut self, descriptor: i32, name: &str) -> Result<(), RemoteError> {
        let link = std::fs::read_link(format!("/proc/{}/fd/{descriptor}", self.tid()));
        match link {
            Ok(link) if !is_named(&link, name) => Ok(()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            _ => match self.close(descriptor) {
                // Another thread of the target has closed the descriptor first.
                Err(RemoteError::Call {
                    errno: Errno::EBADF, ..
                }) => Ok(()),
                closed => closed,
            },
        }
    }
}

/// The name, followed by a number that no process can predict.
fn unique_name(name: &str) -> Result<String, Errno> {
    Ok(format!("{name}-{:016x}", raw::random_number()?))
}

/// Whether a link of /proc/PID/fd shows a memfd of this name.
fn is_named(link: &Path, name: &str) -> bool {
    link.as_os_str().as_encoded_bytes() == format!("/memfd:{name} (deleted)").as_bytes()
}

/// Our limit on the size of files, raised for one file of this size. Dropping it restores the limit.
///
/// A write beyond the limit would not only fail: the kernel would also send a signal that kills.
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
        // Only root may raise the hard limit.
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

/// A handle to the file under this descriptor, after a proof that the file has this name. Taking the handle opens
/// no file.
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

/// Why a handle does not lead to the empty memfd of this name; `None` if it does.
fn doubt(handle: &OwnedFd, name: &str) -> Result<Option<String>, Errno> {
    let shown =
        std::fs::read_link(link_of(handle)).map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or(0)))?;
    let status = rustix::fs::fstat(handle).map_err(of)?;
    let device = device_of_memfds().map_err(of)?;
    let is_ours = FileType::from_raw_mode(status.st_mode) == FileType::RegularFile
        && status.st_dev == device
        && status.st_nlink == 0
        && status.st_size == 0
        && is_named(&shown, name);
    Ok((!is_ours).then(|| shown.display().to_string()))
}

/// All memfds lie on the same device of the kernel, so a memfd of our own shows the device.
fn device_of_memfds() -> Result<u64, rustix::io::Errno> {
    static DEVICE: OnceLock<u64> = OnceLock::new();
    if let Some(known) = DEVICE.get() {
        return Ok(*known);
    }
    let own = rustix::fs::memfd_create("nanoprobe-own", MemfdFlags::CLOEXEC)?;
    let device = rustix::fs::fstat(&own)?.st_dev;
    Ok(*DEVICE.get_or_init(|| device))
}

/// The proven file: opened by the tracer, with this size, sealed and locked.
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
    // Until the tracer sealed the file, the target could change the size again, or seal the file against the
    // tracer's writes.
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

/// Takes the lock that shows that this tracer lives: see [`crate::is_locked`].
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
