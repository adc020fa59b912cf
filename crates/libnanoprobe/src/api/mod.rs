//! The C interface: `nanoprobe.h`, function by function. Each checks what it is given, asks the engine, and answers.

mod hook;
mod jprobe;
mod list;
mod probe;
mod retprobe;
mod watchpoint;

pub use hook::*;
pub use jprobe::*;
pub use list::{Info, Visit, np_list};
pub(crate) use probe::tactic_number;
pub use probe::*;
pub use retprobe::*;
pub use watchpoint::*;

use std::ffi::{CStr, c_char};

use crate::error::Error;

/// `np_version`.
#[unsafe(no_mangle)]
pub extern "C" fn np_version() -> u32 {
    const MAJOR: u32 = 0;
    const MINOR: u32 = 1;
    MAJOR << 16 | MINOR
}

/// A name from C; NULL and the empty one are none.
///
/// # Safety
/// NULL, or a string.
unsafe fn name<'a>(text: *const c_char) -> Result<Option<&'a str>, Error> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's word.
    let text = unsafe { CStr::from_ptr(text) };
    let text = text
        .to_str()
        .map_err(|_| Error::Argument("a symbol that is not UTF-8"))?;
    Ok((!text.is_empty()).then_some(text))
}

/// A structure of a newer header, larger than ours: what is behind the
/// fields that we know must be zero, since we could not do what it asks for.
///
/// # Safety
/// `size` bytes.
unsafe fn check_rest<T>(structure: *const T, size: usize) -> Result<(), Error> {
    const LARGEST: usize = 4096;
    if size > LARGEST {
        return Err(Error::Argument("its size is no structure's: begin it with NP_SIZE"));
    }
    let rest = size.saturating_sub(size_of::<T>());
    // SAFETY: the caller's word: so many bytes are there behind those that we know.
    let rest = unsafe { std::slice::from_raw_parts(structure.add(1).cast::<u8>(), rest) };
    match rest.iter().all(|byte| *byte == 0) {
        true => Ok(()),
        false => Err(Error::Argument(
            "fields that this version of the library does not know are set",
        )),
    }
}

/// The structures of an array of pointers.
///
/// # Safety
/// `count` pointers at `array`, which nobody writes meanwhile.
unsafe fn array<'a, T>(array: *const *mut T, count: usize) -> Result<&'a [*mut T], Error> {
    if count == 0 {
        return Ok(&[]);
    }
    if array.is_null() || count > crate::hit::PROBES_MAX {
        return Err(Error::Argument("an array without elements, or with too many"));
    }
    // SAFETY: the caller's word.
    let pointers = unsafe { std::slice::from_raw_parts(array, count) };
    if pointers.iter().any(|pointer| pointer.is_null()) {
        return Err(Error::Argument("NULL among the structures"));
    }
    Ok(pointers)
}
