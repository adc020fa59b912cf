//! Scalar variables in the arena: globals, which the tracer's clauses share with the target's
//! threads, and, for debugging, those of a thread. An integer is held in eight bytes, extended from
//! its width; a string in `strsize` bytes.

use crate::error::Corrupt;
use crate::memory::Memory;

/// The integer at `offset`.
pub fn read_integer<M: Memory>(memory: &M, offset: u64) -> Result<i64, Corrupt> {
    Ok(memory.load_u64(offset)? as i64)
}

/// Assigns the integer at `offset`; it already has the variable's width.
pub fn write_integer<M: Memory>(memory: &M, offset: u64, value: i64) -> Result<(), Corrupt> {
    Ok(memory.store_u64(offset, value as u64)?)
}

/// The bytes of the string variable of `capacity` bytes at `offset`, without the NUL. All of them,
/// if there is no NUL.
pub fn read_string<M: Memory>(memory: &M, offset: u64, capacity: u64) -> Result<Vec<u8>, Corrupt> {
    let mut bytes = memory.copy(offset, capacity)?;
    if let Some(end) = bytes.iter().position(|byte| *byte == 0) {
        bytes.truncate(end);
    }
    Ok(bytes)
}

/// Assigns the string variable of `capacity` bytes at `offset`. The string is cut to leave room for
/// the NUL, and the rest is zeroed, as `np_strcpy` does.
pub fn write_string<M: Memory>(memory: &M, offset: u64, capacity: u64, value: &[u8]) -> Result<(), Corrupt> {
    let Some(room) = capacity.checked_sub(1) else {
        return Ok(());
    };
    crate::memory::check(memory.bytes(), offset, capacity)?;
    let mut bytes: Vec<u8> = value
        .iter()
        .copied()
        .take_while(|byte| *byte != 0)
        .take(room as usize)
        .collect();
    bytes.resize(capacity as usize, 0);
    Ok(memory.write(offset, &bytes)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Bytes;

    #[test]
    fn strings_end_where_they_must() {
        let memory = Bytes::from([0xff; 32].as_slice());
        write_string(&memory, 8, 8, b"longer than that").unwrap();
        assert_eq!(read_string(&memory, 8, 8).unwrap(), b"longer ");
        assert_eq!(memory.load_u64(16), Ok(u64::MAX));
        write_string(&memory, 8, 8, b"ab\0cd").unwrap();
        assert_eq!(memory.copy(8, 8).unwrap(), b"ab\0\0\0\0\0\0");
        assert!(write_string(&memory, 30, 8, b"").is_err());
    }

    #[test]
    fn integers_keep_their_sign() {
        let memory = Bytes::zeroed(8);
        write_integer(&memory, 0, -2).unwrap();
        assert_eq!(read_integer(&memory, 0), Ok(-2));
    }
}
