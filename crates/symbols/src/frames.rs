//! Call frame information: which code each FDE describes.
//!
//! An FDE is the compiler's own statement of where a piece of code begins and ends, and stripping does not remove it.
//! So FDEs give extents to functions without a symbol, or whose symbol has no extent. They also distinguish a
//! function from a cold fragment: at a function's entry the CFA is `rsp + 8`, in a fragment the frame is already
//! built.
//!
//! Hostile tables cannot cause unbounded work. Only a CIE that was met while walking the section once is accepted (an
//! FDE may not point into the middle of other data). Long CIEs are refused, since every FDE executes its CIE's
//! instructions again.

use std::collections::HashMap;
use std::ops::Range;

use gimli::{
    BaseAddresses, CfaRule, CieOrFde, CommonInformationEntry, DebugFrame, EhFrame, EhFrameHdr, EndianSlice,
    FrameDescriptionEntry, LittleEndian, Register, RegisterRule, UnwindContext, UnwindOffset, UnwindSection,
    UnwindTable,
};
use nanoprobe_patch::order::{sort_by_number, sort_by_numbers};
use object::elf;

use crate::elf::Elf;

/// The largest size of a CIE: compilers write 20 to 70 bytes.
const CIE_BYTES_MAX: usize = 512;

pub(crate) type Slice<'a> = EndianSlice<'a, LittleEndian>;

/// DWARF's number of the stack pointer on x86-64.
pub(crate) const RSP: Register = Register(7);

/// The code that one FDE describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub start: u64,
    pub end: u64,
    /// Whether the frame describes the code that returns from a signal. The frame then begins one byte before the code,
    /// because unwinders look up the byte before a return address.
    pub is_signal_trampoline: bool,
    /// The offset of the FDE in its section.
    offset: usize,
}

impl Frame {
    /// The address of the first instruction.
    pub fn code_start(&self) -> u64 {
        self.start.saturating_add(u64::from(self.is_signal_trampoline))
    }
}

/// The code of all FDEs, sorted by start, each start once.
#[derive(Clone, Debug, Default)]
pub(crate) struct Frames {
    pub list: Vec<Frame>,
    source: Option<Source>,
}

/// The place of the call frame information in the file.
#[derive(Clone, Copy, Debug)]
struct Source {
    offset: u64,
    bytes: u64,
    address: u64,
    debug_frame: bool,
}

impl Frames {
    /// Reads .eh_frame; if it is missing or empty, .debug_frame.
    pub fn of(elf: &Elf) -> Self {
        for source in [eh_frame(elf), debug_frame(elf)].into_iter().flatten() {
            let Some(bytes) = elf.at_offset(source.offset, source.bytes) else {
                continue;
            };
            let bases = bases(elf, &source);
            let list = if source.debug_frame {
                Walk::new(&DebugFrame::new(bytes, LittleEndian), &bases).frames(elf)
            } else {
                Walk::new(&EhFrame::new(bytes, LittleEndian), &bases).frames(elf)
            };
            if !list.is_empty() {
                return Self {
                    list,
                    source: Some(source),
                };
            }
        }
        Self::default()
    }

    /// The frame that holds `address`.
    pub fn at(&self, address: u64) -> Option<&Frame> {
        let index = self
            .list
            .partition_point(|frame| frame.start <= address)
            .checked_sub(1)?;
        self.list.get(index).filter(|frame| address < frame.end)
    }

    /// The frame that begins at `address`.
    pub fn starting_at(&self, address: u64) -> Option<&Frame> {
        self.at(address).filter(|frame| frame.start == address)
    }

    /// The frames that begin in a range, and the frame that holds the range's start.
    pub fn overlapping(&self, range: Range<u64>) -> &[Frame] {
        let behind = self.list.partition_point(|frame| frame.start < range.end);
        let mut first = self.list.partition_point(|frame| frame.start < range.start);
        if self.at(range.start).is_some_and(|frame| frame.start < range.start) {
            first -= 1;
        }
        self.list.get(first..behind).unwrap_or_default()
    }

    /// The first frame that begins at `address` or after it.
    pub fn next(&self, address: u64) -> Option<&Frame> {
        self.list.get(self.list.partition_point(|frame| frame.start < address))
    }

    /// Whether the CFA at the frame's first instruction differs from the CFA right after a call.
    pub fn begins_with_built_frame(&self, elf: &Elf, frame: &Frame) -> bool {
        let mut built = false;
        self.with_descriptions(elf, std::slice::from_ref(frame), &mut FirstRow(&mut built));
        built
    }

    /// Whether the stack pointer points at the return address at an instruction, as at a function's entry, because the
    /// frame is gone. `None` if nothing describes that address.
    pub fn is_frameless_at(&self, elf: &Elf, address: u64) -> Option<bool> {
        let frame = self.at(address)?;
        let mut found = RowAt {
            address,
            frameless: None,
        };
        self.with_descriptions(elf, std::slice::from_ref(frame), &mut found);
        found.frameless
    }

    /// Passes every one of `frames` with its FDE to `visitor`.
    pub fn with_descriptions(&self, elf: &Elf, frames: &[Frame], visitor: &mut impl Visitor) {
        let Some(source) = self.source else { return };
        let Some(bytes) = elf.at_offset(source.offset, source.bytes) else {
            return;
        };
        let bases = bases(elf, &source);
        if source.debug_frame {
            Walk::new(&DebugFrame::new(bytes, LittleEndian), &bases).visit(frames, visitor);
        } else {
            Walk::new(&EhFrame::new(bytes, LittleEndian), &bases).visit(frames, visitor);
        }
    }
}

/// Receives FDEs from either kind of section.
pub(crate) trait Visitor {
    /// `description` is the FDE of `frames[index]`.
    fn visit<'a, S: UnwindSection<Slice<'a>>>(
        &mut self,
        index: usize,
        section: &S,
        bases: &BaseAddresses,
        description: &FrameDescriptionEntry<Slice<'a>>,
    );
}

/// Notes whether the CFA at the first instruction differs from the CFA right after a call.
pub(crate) struct FirstRow<'a>(pub &'a mut bool);

impl Visitor for FirstRow<'_> {
    fn visit<'a, S: UnwindSection<Slice<'a>>>(
        &mut self,
        _: usize,
        section: &S,
        bases: &BaseAddresses,
        description: &FrameDescriptionEntry<Slice<'a>>,
    ) {
        let mut context = UnwindContext::new();
        let Ok(mut table) = UnwindTable::new(section, bases, &mut context, description) else {
            return;
        };
        let Ok(Some(row)) = table.next_row() else { return };
        let called = matches!(
            row.cfa(),
            CfaRule::RegisterAndOffset {
                register: RSP,
                offset: 8
            }
        );
        *self.0 = !called && !description.is_signal_trampoline();
    }
}

struct RowAt {
    address: u64,
    frameless: Option<bool>,
}

impl Visitor for RowAt {
    fn visit<'a, S: UnwindSection<Slice<'a>>>(
        &mut self,
        _: usize,
        section: &S,
        bases: &BaseAddresses,
        description: &FrameDescriptionEntry<Slice<'a>>,
    ) {
        let mut context = UnwindContext::new();
        let Ok(mut table) = UnwindTable::new(section, bases, &mut context, description) else {
            return;
        };
        let return_address = description.cie().return_address_register();
        while let Ok(Some(row)) = table.next_row() {
            if (row.start_address()..row.end_address()).contains(&self.address) {
                let called = matches!(
                    row.cfa(),
                    CfaRule::RegisterAndOffset {
                        register: RSP,
                        offset: 8
                    }
                );
                let in_place = row.register(return_address) == Some(RegisterRule::Offset(-8));
                self.frameless = Some(called && in_place && !description.is_signal_trampoline());
                return;
            }
        }
    }
}

/// Sorts by start; of several frames with the same start only the longest stays.
fn one_at_each_start(mut list: Vec<Frame>) -> Vec<Frame> {
    sort_by_number(&mut list, |frame| frame.offset as u64);
    sort_by_numbers(&mut list, |frame| (frame.start, !frame.end));
    list.dedup_by_key(|frame| frame.start);
    list
}

struct Walk<'s, 'a, S> {
    section: &'s S,
    bases: &'s BaseAddresses,
    common: HashMap<usize, CommonInformationEntry<Slice<'a>>>,
}

impl<'s, 'a, S: UnwindSection<Slice<'a>>> Walk<'s, 'a, S> {
    fn new(section: &'s S, bases: &'s BaseAddresses) -> Self {
        Self {
            section,
            bases,
            common: HashMap::new(),
        }
    }

    /// All FDEs that describe executable code; remembers the CIEs. Everything after damage in the section is lost.
    fn frames(&mut self, elf: &Elf) -> Vec<Frame> {
        let mut list = Vec::new();
        let mut entries = self.section.entries(self.bases);
        while let Ok(Some(entry)) = entries.next() {
            match entry {
                CieOrFde::Cie(common) => self.remember(common),
                CieOrFde::Fde(partial) => {
                    let parsed = partial.parse(|_, _, offset| self.find(UnwindOffset::into(offset)));
                    let Ok(description) = parsed else { continue };
                    let start = description.initial_address();
                    let Some(range) = elf.executable_at(start) else {
                        continue;
                    };
                    let end = start.saturating_add(description.len()).min(range.end.0);
                    if start < end {
                        list.push(Frame {
                            start,
                            end,
                            is_signal_trampoline: description.is_signal_trampoline(),
                            offset: description.offset(),
                        });
                    }
                }
            }
        }
        one_at_each_start(list)
    }

    fn remember(&mut self, common: CommonInformationEntry<Slice<'a>>) {
        if common.entry_len() <= CIE_BYTES_MAX {
            self.common.insert(common.offset(), common);
        }
    }

    fn find(&self, offset: usize) -> gimli::Result<CommonInformationEntry<Slice<'a>>> {
        self.common
            .get(&offset)
            .cloned()
            .ok_or(gimli::Error::NoEntryAtGivenOffset(offset as u64))
    }

    fn visit(&mut self, frames: &[Frame], visitor: &mut impl Visitor) {
        for (index, frame) in frames.iter().enumerate() {
            let offset = frame.offset.into();
            let Ok(partial) = self.section.partial_fde_from_offset(self.bases, offset) else {
                continue;
            };
            let common_offset: usize = UnwindOffset::into(partial.cie_offset());
            if !self.common.contains_key(&common_offset) {
                // The first walk accepted this frame, so its CIE belongs to this section and is short.
                let Ok(common) = self.section.cie_from_offset(self.bases, common_offset.into()) else {
                    continue;
                };
                self.remember(common);
            }
            let Ok(description) = partial.parse(|_, _, offset| self.find(UnwindOffset::into(offset))) else {
                continue;
            };
            visitor.visit(index, self.section, self.bases, &description);
        }
    }
}

fn bases(elf: &Elf, source: &Source) -> BaseAddresses {
    let address_of = |name: &str| elf.section(name).map_or(0, |section| section.address);
    BaseAddresses::default()
        .set_eh_frame(source.address)
        .set_text(address_of(".text"))
        .set_got(address_of(".got"))
}

fn eh_frame(elf: &Elf) -> Option<Source> {
    if let Some(section) = elf.section(".eh_frame") {
        let (offset, bytes, address) = (section.offset, section.bytes, section.address);
        return elf.section_bytes(section).map(|_| Source {
            offset,
            bytes,
            address,
            debug_frame: false,
        });
    }
    // Without sections, .eh_frame_hdr leads to .eh_frame, as it does for the loader.
    let header = elf.header(elf::PT_GNU_EH_FRAME)?;
    let bytes = elf.at_offset(header.offset, header.file_bytes)?;
    let bases = BaseAddresses::default().set_eh_frame_hdr(header.address);
    let parsed = EhFrameHdr::new(bytes, LittleEndian).parse(&bases, 8).ok()?;
    let address = parsed.eh_frame_ptr().direct().ok()?;
    let (segment, skip) = elf.segments.iter().find_map(|segment| {
        let skip = address
            .checked_sub(segment.address)
            .filter(|skip| *skip < segment.file_bytes)?;
        Some((segment, skip))
    })?;
    let offset = segment.offset.checked_add(skip)?;
    Some(Source {
        offset,
        bytes: segment.file_bytes - skip,
        address,
        debug_frame: false,
    })
}

fn debug_frame(elf: &Elf) -> Option<Source> {
    let section = elf.section(".debug_frame")?;
    let (offset, bytes) = (section.offset, section.bytes);
    elf.section_bytes(section).map(|_| Source {
        offset,
        bytes,
        address: 0,
        debug_frame: true,
    })
}
