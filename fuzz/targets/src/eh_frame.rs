//! Call frame information.

use std::sync::Arc;

use nanoprobe_symbols::Module;

use crate::elf::interrogate;
use crate::image::around;

/// PT_GNU_EH_FRAME.
const HEADER: u32 = 0x6474_e550;

/// The contents of .eh_frame, and of .eh_frame_hdr.
pub fn eh_frame(data: &[u8]) {
    for name in [".eh_frame", ".other"] {
        if let Ok(module) = Module::parse(Arc::new(around(data, name, 1, HEADER)), "program") {
            interrogate(&module);
        }
    }
}
