//! `np_list`: everything that is registered.

use std::ffi::{CString, c_char, c_int, c_void};

use nanoprobe_patch::TargetAddress;

use super::probe::tactic_number;
use crate::engine::engine;
use crate::error::answer;
use crate::hit;

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

/// What `np_list` calls.
pub type Visit = unsafe extern "C" fn(info: *const Info, user: *mut c_void) -> c_int;

/// `np_list`.
///
/// # Safety
/// `visit` takes each structure and `user`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn np_list(visit: Visit, user: *mut c_void) -> c_int {
    let mut found = Vec::new();
    {
        let engine = match engine() {
            Ok(engine) => engine,
            Err(error) => return answer(Err(error)),
        };
        for function in engine.functions() {
            let module = engine.own().modules().list().get(function.module);
            for (address, state) in &function.sites {
                let image = module.map(|module| module.bias().to_image(TargetAddress(*address)));
                let resolved = module.zip(image).and_then(|(module, image)| module.resolve(image));
                let (symbol, offset) = resolved.unwrap_or(("", 0));
                let text = |text: &str| CString::new(text).unwrap_or_default();
                let tactic = tactic_number(function.tactic_at(*address));
                for member in state.members.iter().filter(|member| member.is_counted()) {
                    found.push((
                        *address,
                        tactic,
                        member.is_enabled(),
                        member.entry.index,
                        member.kind,
                        text(module.map_or("", |module| module.name())),
                        text(symbol),
                        offset,
                    ));
                }
            }
        }
    }
    // Without the lock: the visitor may ask for more.
    for (address, tactic, enabled, index, kind, module, symbol, offset) in &found {
        let (hits, nmissed) = hit::counts(*index);
        let info = Info {
            size: size_of::<Info>(),
            addr: *address as *mut c_void,
            kind: *kind as c_int,
            tactic: if *enabled { *tactic } else { 0 },
            enabled: c_int::from(*enabled),
            hits,
            nmissed,
            module: module.as_ptr(),
            symbol: symbol.as_ptr(),
            offset: *offset as usize,
        };
        // SAFETY: the caller's word.
        let result = unsafe { visit(&info, user) };
        if result != 0 {
            return result;
        }
    }
    0
}
