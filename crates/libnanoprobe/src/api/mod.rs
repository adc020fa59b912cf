//! The C interface: `nanoprobe.h`, function by function. Each checks its arguments, asks the engine, and answers.

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

/// A name from C; `None` for NULL and the empty string.
///
/// # Safety
/// `text` is NULL, or a string.
unsafe fn name<'a>(text: *const c_char) -> Result<Option<&'a str>, Error> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller promises a string, and `text` is not NULL here.
    let text = unsafe { CStr::from_ptr(text) };
    let text = text
        .to_str()
        .map_err(|_| Error::Argument("a symbol that is not UTF-8"))?;
    Ok((!text.is_empty()).then_some(text))
}

/// Checks a structure of a newer header, which is larger than ours. The bytes after the known fields must be zero,
/// since this library does not know what they ask for.
///
/// # Safety
/// `structure` has `size` bytes.
unsafe fn check_rest<T>(structure: *const T, size: usize) -> Result<(), Error> {
    const LARGEST: usize = 4096;
    if size > LARGEST {
        return Err(Error::Argument("its size is not valid: begin it with NP_SIZE"));
    }
    let rest = size.saturating_sub(size_of::<T>());
    // SAFETY: the caller promises this many bytes after the known fields.
    let rest = unsafe { std::slice::from_raw_parts(structure.add(1).cast::<u8>(), rest) };
    match rest.iter().all(|byte| *byte == 0) {
        true => Ok(()),
        false => Err(Error::Argument(
            "fields that this version of the library does not know are set",
        )),
    }
}

/// The structures whose addresses are in an array.
///
/// # Safety
///
/// There are `count` pointers at `array`, and no thread writes them meanwhile.
unsafe fn array<'a, T>(array: *const *mut T, count: usize) -> Result<&'a [*mut T], Error> {
    if count == 0 {
        return Ok(&[]);
    }
    if array.is_null() || count > crate::hit::PROBES_MAX {
        return Err(Error::Argument("an array without elements, or with too many"));
    }
    // SAFETY: the caller promises `count` pointers.
    let pointers = unsafe { std::slice::from_raw_parts(array, count) };
    if pointers.iter().any(|pointer| pointer.is_null()) {
        return Err(Error::Argument("NULL among the structures"));
    }
    Ok(pointers)
}
