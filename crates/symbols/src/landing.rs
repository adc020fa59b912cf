//! Landing pads: the places at which exceptions enter functions (the language-specific data area,
//! `.gcc_except_table`).
//!
//! ```text
//!   LPStart encoding, LPStart     the address from which landing pads count; omitted: the function's start
//!   TType encoding, TType offset
//!   call-site encoding, length    then entries: start, length, landing pad (0: none), action
//! ```
//!
//! Only the unwinder jumps to a landing pad, so following control flow does not find landing pads.

use std::ops::Range;

use gimli::{BaseAddresses, FrameDescriptionEntry, Pointer, Reader, UnwindSection};

use crate::elf::Elf;
use crate::frames::{Frame, Slice, Visitor};

/// How many entries are read of one function at most; the tables may be hostile.
const CALL_SITES_MAX: usize = 1 << 16;

/// Collects the landing pads of frames.
pub(crate) struct LandingPads<'e> {
    pub elf: &'e Elf,
    /// The usual place of the tables. A table elsewhere may extend to the end of its segment.
    pub table: Range<u64>,
    pub frames: &'e [Frame],
    pub found: Vec<u64>,
}

impl Visitor for LandingPads<'_> {
    fn visit<'a, S: UnwindSection<Slice<'a>>>(
        &mut self,
        index: usize,
        _: &S,
        _: &BaseAddresses,
        description: &FrameDescriptionEntry<Slice<'a>>,
    ) {
        let (Some(Pointer::Direct(address)), Some(frame)) = (description.lsda(), self.frames.get(index)) else {
            return;
        };
        let rest = match self.table.contains(&address) {
            true => self.table.end - address,
            false => u64::MAX,
        };
        if let Some(bytes) = self.elf.some_at(address, rest) {
            // Malformed data ends the list.
            let _ = self.read(Slice::new(bytes, gimli::LittleEndian), frame.start);
        }
    }
}

impl LandingPads<'_> {
    fn read(&mut self, mut data: Slice<'_>, function: u64) -> gimli::Result<()> {
        const OMITTED: u8 = 0xff;
        let base = match data.read_u8()? {
            OMITTED => function,
            // No compiler writes another encoding.
            _ => return Ok(()),
        };
        if data.read_u8()? != OMITTED {
            data.read_uleb128()?;
        }
        let encoding = data.read_u8()?;
        let length = usize::try_from(data.read_uleb128()?).unwrap_or(usize::MAX);
        let mut sites = data.split(length)?;
        for _ in 0..CALL_SITES_MAX {
            if sites.is_empty() {
                break;
            }
            let _start = value(&mut sites, encoding)?;
            let _length = value(&mut sites, encoding)?;
            let pad = value(&mut sites, encoding)?;
            let _action = sites.read_uleb128()?;
            if pad != 0 {
                self.found.push(base.wrapping_add(pad));
            }
        }
        Ok(())
    }
}

/// A value in one of the encodings that are relative to an address (DW_EH_PE_udata4 and the like).
fn value(data: &mut Slice<'_>, encoding: u8) -> gimli::Result<u64> {
    match encoding & 0x0f {
        0x00 | 0x04 | 0x0c => data.read_u64(),
        0x01 => data.read_uleb128(),
        0x02 | 0x0a => data.read_u16().map(u64::from),
        0x03 | 0x0b => data.read_u32().map(u64::from),
        _ => Err(gimli::Error::UnknownPointerEncoding(gimli::DwEhPe(encoding))),
    }
}
