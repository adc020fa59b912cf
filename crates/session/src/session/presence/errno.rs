//! `errno`: where the traced program's C library keeps it.

use std::mem::offset_of;

use nanoprobe_arena::Memory as _;
use nanoprobe_arena::layout::Control;
use nanoprobe_patch::{TargetAddress, thread_local_offset};

use super::Presence;
use crate::error::SessionError;
use crate::session::known::Known;
use crate::session::tracing::Tracing;

/// The functions that yield the address of errno: in glibc and musl, and in bionic.
const FUNCTIONS: [&str; 2] = ["__errno_location", "__errno"];
/// Bytes of the function that are read.
const FUNCTION_BYTES: u64 = 32;

impl Presence {
    /// Writes the address for handlers that need it, once it is known.
    pub(super) fn publish_errno(&mut self, tracing: &mut Tracing) -> Result<(), SessionError> {
        if self.errno_known || !tracing.known.enablings.needs().reads_errno {
            return Ok(());
        }
        if let Some(offset) = errno_offset(&tracing.known) {
            self.errno_known = true;
            let memory = tracing.memory();
            memory.store_u64(offset_of!(Control, errno_offset) as u64, offset as u64)?;
        } else if tracing.known.loaded {
            self.errno_known = true;
            tracing.warn("no C library was found, or the place of errno in it is not known: errno is 0 here");
        }
        Ok(())
    }
}

fn errno_offset(known: &Known) -> Option<i64> {
    let memory = known.process()?.memory();
    let mut offsets = known.loaded_modules().filter_map(|(_, module)| {
        let symbol = FUNCTIONS.iter().find_map(|name| module.symbol(name))?;
        let code = module.code_at(symbol.address, FUNCTION_BYTES)?;
        let address = module.bias().to_target(symbol.address);
        thread_local_offset(code, address.0, |address| memory.read_u64(TargetAddress(address)).ok())
    });
    // The word of a library that is not relocated yet is 0.
    offsets.find(|offset| *offset != 0)
}
