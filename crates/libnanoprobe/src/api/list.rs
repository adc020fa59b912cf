//! `np_list`: lists all registered probes and watchpoints.

use std::ffi::{CString, c_char, c_int, c_void};

use nanoprobe_patch::TargetAddress;
use nanoprobe_patch::order::sort_by_number;

use super::probe::tactic_number;
use crate::engine::{Engine, engine};
use crate::error::answer;
use crate::hit;

/// `enum np_kind` of a watchpoint.
const WATCHPOINT: c_int = b'w' as c_int;

/// `struct np_info`.
#[repr(C)]
#[allow(missing_docs, reason = "nanoprobe.h says what each is")]
pub struct Info {
    pub size: usize,
    pub addr: *mut c_void,
    pub kind: c_int,
    pub tactic: c_int,
    pub enabled: c_int,
    pub hits: u64,
    pub nmissed: u64,
    pub module: *const c_char,
    pub symbol: *const c_char,
    pub offset: usize,
}

/// The function that `np_list` calls for each row.
pub type Visit = unsafe extern "C" fn(info: *const Info, user: *mut c_void) -> c_int;

/// The contents of a row, before its texts are turned into pointers.
struct Found {
    address: u64,
    kind: c_int,
    tactic: c_int,
    enabled: bool,
    counts: Counts,
    module: CString,
    symbol: CString,
    offset: u64,
}

/// Where the counts of hits and missed hits come from.
enum Counts {
    /// From the counters with this index, when the row is shown.
    Index(u32),
    /// The counts are known already: hits, missed.
    Known(u64, u64),
}

fn text(text: &str) -> CString {
    CString::new(text).unwrap_or_default()
}

fn probes(engine: &Engine) -> Vec<Found> {
    let mut found = Vec::new();
    for function in engine.functions() {
        let module = engine.own().modules().list().get(function.module);
        for (address, state) in &function.sites {
            let image = module.map(|module| module.bias().to_image(TargetAddress(*address)));
            let resolved = module.zip(image).and_then(|(module, image)| module.resolve(image));
            let (symbol, offset) = resolved.unwrap_or(("", 0));
            let tactic = tactic_number(function.tactic_at(*address));
            let counted = state.members.iter().filter(|member| member.is_counted());
            found.extend(counted.map(|member| Found {
                address: *address,
                kind: member.kind as c_int,
                tactic: if member.is_enabled() { tactic } else { 0 },
                enabled: member.is_enabled(),
                counts: Counts::Index(member.entry.index),
                module: text(module.map_or("", |module| module.name())),
                symbol: text(symbol),
                offset,
            }));
        }
    }
    found
}

fn all(engine: &Engine) -> Vec<Found> {
    let mut found = probes(engine);
    found.extend(engine.watch_states().into_iter().map(|state| Found {
        address: state.place.address,
        kind: WATCHPOINT,
        tactic: 0,
        enabled: state.enabled,
        counts: Counts::Known(state.hits, state.missed),
        module: CString::default(),
        symbol: CString::default(),
        offset: 0,
    }));
    // A stable sort keeps rows at one address in the order of registration.
    sort_by_number(&mut found, |one| one.address);
    found
}

/// `np_list`.
///
/// # Safety
/// `visit` may be called with each structure and `user`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn np_list(visit: Visit, user: *mut c_void) -> c_int {
    let found = match engine() {
        Ok(engine) => all(&engine),
        Err(error) => return answer(Err(error)),
    };
    // Called without the lock, since the visitor may call the library.
    for one in &found {
        let (hits, nmissed) = match one.counts {
            Counts::Index(index) => hit::counts(index),
            Counts::Known(hits, missed) => (hits, missed),
        };
        let info = Info {
            size: size_of::<Info>(),
            addr: one.address as *mut c_void,
            kind: one.kind,
            tactic: one.tactic,
            enabled: c_int::from(one.enabled),
            hits,
            nmissed,
            module: one.module.as_ptr(),
            symbol: one.symbol.as_ptr(),
            offset: one.offset as usize,
        };
        // SAFETY: the caller promises that `visit` takes these arguments.
        let result = unsafe { visit(&info, user) };
        if result != 0 {
            return result;
        }
    }
    0
}
