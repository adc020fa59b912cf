//! What the dynamic linker has loaded, asked without reading the map: how often
//! it has loaded something and let something go, and where its modules are.
//!
//! Asked outside of the engine's lock: the linker's own is held meanwhile, and who holds
//! that may be waiting for the engine. A forked child asks no more: one of its parent's
//! other threads may have held the linker's lock, which nobody lets go there (a thread of
//! ours, here; or one that throws, or loads something). It reads the map instead, each time.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// When the map was last read, in numbers of the linker's; see [`Loaded::is_known`].
static KNOWN: [AtomicU64; 2] = [AtomicU64::new(u64::MAX), AtomicU64::new(u64::MAX)];

/// This process is a child.
static IS_FORKED: AtomicBool = AtomicBool::new(false);

/// What it had loaded when it was asked.
#[derive(Debug, Default)]
pub struct Loaded {
    /// Its `dlpi_adds` and `dlpi_subs`; `None`: it does not tell.
    changes: Option<[u64; 2]>,
    /// Nothing has changed since the map was read; then `starts` is empty.
    is_same: bool,
    /// The page in which each module's first segment begins.
    starts: Vec<u64>,
}

impl Loaded {
    /// Asks.
    pub fn now() -> Loaded {
        let mut loaded = Loaded::default();
        if IS_FORKED.load(Ordering::Relaxed) {
            return loaded;
        }
        // SAFETY: the visitor takes what it is given here.
        unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut loaded).cast()) };
        loaded
    }

    /// From now on the linker is not asked: the map is read.
    pub fn forked() {
        IS_FORKED.store(true, Ordering::Relaxed);
    }

    /// The map has been read since this was asked: yields where the modules are, unless that is known.
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

    /// Whether nothing has been loaded or let go since the map was read.
    pub fn is_same(&self) -> bool {
        self.is_same
    }
}

unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, size: usize, loaded: *mut c_void) -> c_int {
    // SAFETY: the linker's structure, of the size that it says, and what `now` gave.
    let (info, loaded) = unsafe { (&*info, &mut *loaded.cast::<Loaded>()) };
    if size < size_of::<libc::dl_phdr_info>() {
        // One that does not count.
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
    // SAFETY: so many program headers of a module that stays while the linker shows it.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
    let first = headers.iter().find(|header| header.p_type == libc::PT_LOAD);
    loaded
        .starts
        .extend(first.map(|header| info.dlpi_addr.wrapping_add(header.p_vaddr) & !0xfff));
    0
}
