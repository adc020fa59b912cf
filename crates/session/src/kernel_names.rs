//! Names of the kernel's functions. There is one kernel, so all sessions share them. They are read when the first one
//! is needed; functions of modules that are loaded later have no names.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use nanoprobe_lang::program::SymbolKind;
use nanoprobe_symbols::kernel::{KERNEL_START, KernelSymbols};
use nanoprobe_target::proc_file;

const LIST: &str = "/proc/kallsyms";
static SYMBOLS: OnceLock<KernelSymbols> = OnceLock::new();
static IS_TOLD: AtomicBool = AtomicBool::new(false);

/// Whether this is an address of the kernel's.
pub fn is_kernels(address: u64) -> bool {
    address >= KERNEL_START
}

/// Where the list cannot be read there are no names.
fn symbols() -> &'static KernelSymbols {
    SYMBOLS.get_or_init(|| KernelSymbols::parse(&proc_file::read(LIST).unwrap_or_default()))
}

/// The name of an address, as those of programs are written; the address itself if it is not known.
pub fn name_of(address: u64) -> String {
    name_at(address, address)
}

/// The name of a return address, which belongs to the call before it.
pub fn name_of_return(address: u64) -> String {
    name_at(address, address.saturating_sub(1))
}

fn name_at(address: u64, of: u64) -> String {
    match symbols().find(of) {
        Some(found) => match address - found.start {
            0 => format!("{}`{}", found.module, found.name),
            offset => format!("{}`{}+{offset:#x}", found.module, found.name),
        },
        None => format!("{address:#x}"),
    }
}

/// The start of the function or module around an address; the address itself where none is known.
pub fn start_of(address: u64, kind: SymbolKind) -> u64 {
    let start = match kind {
        SymbolKind::Address => None,
        SymbolKind::Function => symbols().find(address).map(|found| found.start),
        SymbolKind::Module => symbols().module_start(address),
    };
    start.unwrap_or(address)
}

/// Reads the names, which takes a tenth of a second. Returns what to tell if there are none; once.
pub fn prepare() -> Option<&'static str> {
    if !symbols().is_empty() || IS_TOLD.swap(true, Ordering::Relaxed) {
        return None;
    }
    if !symbols().is_hidden() {
        return Some("/proc/kallsyms lists no functions of the kernel, so stack( ) shows addresses");
    }
    Some(
        "the kernel hides where its functions lie, so stack( ) shows addresses: names need CAP_SYSLOG and at most 1 in \
         /proc/sys/kernel/kptr_restrict, or 0 there and at most 1 in perf_event_paranoid",
    )
}
