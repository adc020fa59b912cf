//! The processor's debug registers, for all threads of this process: perf_event_open(2).
//!
//! An event is bound to one thread, and inherited by the threads that this one creates. So an event is opened for
//! every existing thread. A thread that appears meanwhile may or may not have inherited an event. So the list of
//! threads is read before and after. If a new thread has appeared, everything is done again. (The kernel assigns
//! thread numbers in turn, so no number returns so soon.)
//!
//! The program may close our file descriptors and get others with the same numbers. So a descriptor is used only
//! after it has proved to be our event (`PERF_EVENT_IOC_ID`). They are moved to high numbers, since programs expect
//! low ones for themselves.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::Error;

const TYPE_BREAKPOINT: u32 = 5;
const ATTRIBUTE_BYTES: u32 = 128;
const DISABLED: u64 = 1;
const INHERIT: u64 = 1 << 1;
const EXCLUDE_KERNEL: u64 = 1 << 5;
const EXCLUDE_HYPERVISOR: u64 = 1 << 6;
const INHERIT_THREAD: u64 = 1 << 35;
const REMOVE_ON_EXEC: u64 = 1 << 36;
const SIGTRAP: u64 = 1 << 37;
const FD_CLOEXEC: u64 = 8;

const ENABLE: u64 = 0x2400;
const DISABLE: u64 = 0x2401;
const ID: u64 = 0x8008_2407;

/// `HW_BREAKPOINT_X`: its length must be given as that of a word.
pub const EXECUTE: u32 = 4;
/// The lowest number for the events' file descriptors, if the limit on file descriptors allows it.
const LOWEST: libc::c_int = 512;
/// How often opening begins anew. After that, the error is that new threads come too fast.
const ATTEMPTS: u32 = 100;

/// `struct perf_event_attr`, version 7.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    bp_type: u32,
    bp_addr: u64,
    bp_len: u64,
    unused: [u64; 6],
    sig_data: u64,
}

/// The bytes that a breakpoint watches, and for which accesses.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// The address of the first watched byte.
    pub address: u64,
    /// 1, 2, 4 or 8.
    pub length: u64,
    /// `HW_BREAKPOINT_*`.
    pub kind: u32,
    /// `si_perf_data` of the signals; `None`: accesses are only counted.
    pub signal: Option<u64>,
}

struct Event {
    descriptor: libc::c_int,
    id: u64,
}

/// The events of one place, in all threads.
pub struct Breakpoint {
    place: Place,
    process: u32,
    events: Vec<Event>,
    /// The number of accesses that closed events have counted.
    counted: u64,
}

impl Breakpoint {
    /// Opens the events, disabled.
    ///
    /// # Errors
    /// No debug register is left, or access to them is forbidden, or the machine has none.
    pub fn open(place: Place) -> Result<Breakpoint, Error> {
        for _ in 0..ATTEMPTS {
            let before = threads()?;
            let mut breakpoint = Breakpoint {
                place,
                process: std::process::id(),
                events: Vec::with_capacity(before.len()),
                counted: 0,
            };
            for thread in &before {
                breakpoint
                    .events
                    .extend(open(&place, *thread, INHERIT | INHERIT_THREAD)?);
            }
            if threads()?.iter().all(|thread| before.contains(thread)) {
                return Ok(breakpoint);
            }
        }
        Err(Error::Limit("threads come faster than they can be watched: try again"))
    }

    /// Starts or stops watching. The counts stay.
    ///
    /// # Errors
    /// The program has closed the file descriptors.
    pub fn enable(&self, enabled: bool) -> Result<(), Error> {
        let request = if enabled { ENABLE } else { DISABLE };
        if self.process != std::process::id() {
            return Ok(());
        }
        for event in &self.events {
            // SAFETY: our own event, which takes no argument of this request.
            if event.is_ours() && unsafe { libc::ioctl(event.descriptor, request, 0) } < 0 {
                return Err(Error::last_os("perf event"));
            }
        }
        match self.events.iter().any(Event::is_ours) {
            true => Ok(()),
            false => Err(Error::System {
                call: "the file descriptors of the watchpoint",
                error: std::io::Error::from_raw_os_error(libc::EBADF),
            }),
        }
    }

    /// Accesses so far, by all threads, including those that have ended.
    pub fn count(&self) -> u64 {
        let counts = self.events.iter().filter_map(Event::count);
        counts.fold(self.counted, u64::wrapping_add)
    }

    /// Opens new events in a child of fork, which has one thread: the inherited events belong to its parent.
    ///
    /// # Errors
    /// As [`Breakpoint::open`]. Then nothing is watched.
    pub fn forked(&mut self, counted: u64) -> Result<(), Error> {
        self.events.clear();
        self.counted = counted;
        self.process = std::process::id();
        self.events = Breakpoint::open(self.place)?.take();
        Ok(())
    }

    fn take(mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }
}

impl Drop for Breakpoint {
    fn drop(&mut self) {
        // The child's copies of the descriptors keep the parent's events open. At least they are switched off.
        let _ = self.enable(false);
    }
}

impl Event {
    fn is_ours(&self) -> bool {
        id(self.descriptor) == Some(self.id)
    }

    fn count(&self) -> Option<u64> {
        let mut count = 0_u64;
        // SAFETY: 8 bytes that may be written.
        let read = self.is_ours() && unsafe { libc::read(self.descriptor, (&raw mut count).cast(), 8) } == 8;
        read.then_some(count)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if self.is_ours() {
            // SAFETY: our own descriptor, which is not used after this.
            unsafe { libc::close(self.descriptor) };
        }
    }
}

fn id(descriptor: libc::c_int) -> Option<u64> {
    let mut id = 0_u64;
    // SAFETY: the request writes 8 bytes; no other kind of file knows this request.
    let known = unsafe { libc::ioctl(descriptor, ID, &raw mut id) } == 0;
    known.then_some(id)
}

fn threads() -> Result<Vec<libc::pid_t>, Error> {
    let unreadable = |error| Error::System {
        call: "reading /proc/self/task",
        error,
    };
    let entries = std::fs::read_dir("/proc/self/task").map_err(unreadable)?;
    let numbers = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    Ok(numbers.collect())
}

/// Opens the event of one thread; `None`: the thread has ended.
fn open(place: &Place, thread: libc::pid_t, flags: u64) -> Result<Option<Event>, Error> {
    const { assert!(size_of::<Attributes>() == ATTRIBUTE_BYTES as usize) };
    let signals = u64::from(place.signal.is_some());
    let attributes = Attributes {
        kind: TYPE_BREAKPOINT,
        size: ATTRIBUTE_BYTES,
        sample_period: signals,
        flags: DISABLED | flags | EXCLUDE_KERNEL | EXCLUDE_HYPERVISOR | REMOVE_ON_EXEC | (SIGTRAP * signals),
        bp_type: place.kind,
        bp_addr: place.address,
        bp_len: if place.kind == EXECUTE { 8 } else { place.length },
        sig_data: place.signal.unwrap_or(0),
        ..Attributes::default()
    };
    // SAFETY: the attributes are of the size that they say.
    let opened = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw const attributes,
            thread,
            -1,
            -1,
            FD_CLOEXEC,
        )
    };
    if opened < 0 {
        let error = std::io::Error::last_os_error();
        return match error.raw_os_error() {
            Some(libc::ESRCH) => Ok(None),
            Some(libc::ENOSPC) => Err(Error::NoWatchpoint(thread)),
            Some(libc::EACCES | libc::EPERM) => Err(Error::Permission { error }),
            Some(libc::ENOENT | libc::ENODEV | libc::ENOSYS | libc::EOPNOTSUPP) => Err(Error::Unsupported(
                "this machine or kernel has no debug registers for programs",
            )),
            // The kernel does not support the requested fields.
            Some(libc::E2BIG) => Err(Error::Unsupported("the kernel is older than 5.13")),
            Some(libc::EINVAL) if place.signal.is_some() && open_plain(place, thread) => {
                Err(Error::Unsupported("the kernel is older than 5.13"))
            }
            Some(libc::EINVAL) => Err(Error::Argument("the kernel cannot watch this address")),
            _ => Err(Error::System {
                call: "perf_event_open",
                error,
            }),
        };
    }
    let low = opened as libc::c_int;
    // SAFETY: our own descriptor, which no other code knows.
    let high = unsafe { libc::fcntl(low, libc::F_DUPFD_CLOEXEC, LOWEST) };
    if high >= 0 {
        // SAFETY: as above.
        unsafe { libc::close(low) };
    }
    let descriptor = if high >= 0 { high } else { low };
    let id = id(descriptor).ok_or_else(|| Error::last_os("perf event"))?;
    Ok(Some(Event { descriptor, id }))
}

fn open_plain(place: &Place, thread: libc::pid_t) -> bool {
    let plain = Place { signal: None, ..*place };
    open(&plain, thread, 0).is_ok()
}

/// Tests whether the debug registers of this machine work: some virtual machines accept them and do nothing.
///
/// # Errors
/// They do not work; or as [`Breakpoint::open`].
pub fn try_out() -> Result<(), Error> {
    static CANARY: AtomicU64 = AtomicU64::new(0);
    const TIMES: u64 = 3;
    let place = Place {
        address: CANARY.as_ptr() as u64,
        length: 8,
        kind: 2,
        signal: None,
    };
    // SAFETY: the call takes no arguments.
    let thread = unsafe { libc::gettid() };
    let Some(event) = open(&place, thread, 0)? else {
        return Ok(());
    };
    // SAFETY: our own event.
    if unsafe { libc::ioctl(event.descriptor, ENABLE, 0) } < 0 {
        return Err(Error::last_os("perf event"));
    }
    for _ in 0..TIMES {
        CANARY.fetch_add(1, Ordering::SeqCst);
    }
    match event.count() {
        Some(TIMES) => Ok(()),
        _ => Err(Error::Unsupported("this machine's debug registers do not watch")),
    }
}
