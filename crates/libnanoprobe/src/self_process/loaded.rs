//! The dynamic linker's modules: their addresses, and the number of loads and unloads. This is found out without
//! reading /proc/self/maps.
//!
//! The linker is asked without holding the engine's lock, since asking takes the linker's lock, and a thread that
//! holds that lock may be waiting for the engine. A forked child does not ask: another thread of its parent may have
//! held the linker's lock (because it asked here, threw an exception, or loaded something), and in the child no
//! thread releases it. The child reads the map each time instead.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The linker's two counts when the map was last read; see [`Loaded::is_known`].
static KNOWN: [AtomicU64; 2] = [AtomicU64::new(u64::MAX), AtomicU64::new(u64::MAX)];

/// Whether this process is a forked child.
static IS_FORKED: AtomicBool = AtomicBool::new(false);

/// The linker's answer.
#[derive(Debug, Default)]
pub struct Loaded {
    /// The linker's `dlpi_adds` and `dlpi_subs`; `None`: it does not report them.
    changes: Option<[u64; 2]>,
    /// Nothing has changed since the map was read; then `starts` is empty.
    is_same: bool,
    /// The page in which each module's first segment begins.
    starts: Vec<u64>,
}

impl Loaded {
    /// Asks the linker.
    pub fn now() -> Loaded {
        let mut loaded = Loaded::default();
        if IS_FORKED.load(Ordering::Relaxed) {
            return loaded;
        }
        // SAFETY: `visit` expects a `Loaded` as its last argument.
        unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut loaded).cast()) };
        loaded
    }

    /// Called in a forked child: from now on the map is read, and the linker is not asked any more.
    pub fn forked() {
        IS_FORKED.store(true, Ordering::Relaxed);
    }

    /// Notes that the map has been read since the linker answered. Yields where the modules are, unless that was
    /// known before.
    pub fn is_known(self) -> Option<Vec<u64>> {
        if self.is_same {
            return None;
        }
        let numbers = self.changes.unwrap_or([u64::MAX; 2]);
        for (known, number) in KNOWN.iter().zip(numbers) {
            known.store(number, Ordering::Relaxed);
        }
        Some(self.starts)
    }

    /// Whether nothing has been loaded or unloaded since the map was read.
    pub fn is_same(&self) -> bool {
        self.is_same
    }
}

unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, size: usize, loaded: *mut c_void) -> c_int {
    // SAFETY: `info` is the linker's structure, and `loaded` is what `now` has passed.
    let (info, loaded) = unsafe { (&*info, &mut *loaded.cast::<Loaded>()) };
    if size < size_of::<libc::dl_phdr_info>() {
        // This linker does not count what it loads.
        return 1;
    }
    let changes = [info.dlpi_adds, info.dlpi_subs];
    loaded.changes = Some(changes);
    if KNOWN.each_ref().map(|known| known.load(Ordering::Relaxed)) == changes {
        loaded.is_same = true;
        return 1;
    }
    if info.dlpi_phdr.is_null() {
        return 0;
    }
    // SAFETY: the linker says how many program headers there are, and the module stays while the linker shows it.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
    let first = headers.iter().find(|header| header.p_type == libc::PT_LOAD);
    loaded
        .starts
        .extend(first.map(|header| info.dlpi_addr.wrapping_add(header.p_vaddr) & !0xfff));
    0
}
