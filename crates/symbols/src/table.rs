//! The raw tables of an ELF file: entries of one size, and strings.

use object::pod;

/// Program headers beyond these are ignored: linkers make about a dozen.
pub(crate) const SEGMENTS_MAX: usize = 256;
/// Sections beyond these are ignored: linkers merge them to a few dozen.
pub(crate) const SECTIONS_MAX: usize = 4096;

/// The whole `T`s in `bytes`: an incomplete last entry is ignored.
pub(crate) fn table<T: pod::Pod>(bytes: &[u8]) -> &[T] {
    let count = bytes.len().checked_div(size_of::<T>()).unwrap_or(0);
    pod::slice_from_bytes(bytes, count).map_or(&[], |(entries, _)| entries)
}

/// The string that starts at `offset` in a string table: up to its NUL, at most `limit` bytes.
pub(crate) fn string_at(strings: &[u8], offset: u64, limit: usize) -> Option<&[u8]> {
    let rest = strings.get(usize::try_from(offset).ok()?..)?;
    let rest = rest.get(..limit).unwrap_or(rest);
    let end = rest.iter().position(|byte| *byte == 0)?;
    rest.get(..end)
}
