//! A module's code: its bytes, the extents of functions, the gaps between them, and the places that are entered from
//! elsewhere.

use std::sync::Arc;

use nanoprobe_patch::{Padding, Replacement, Shift};

use super::Module;
use crate::address::{AddressRange, Bias, ImageAddress};
use crate::elf::Segment;
use crate::function::Function;
use crate::landing::LandingPads;
use crate::pointers;
use crate::restartable::{RestartableSequence, Sequences};

impl Module {
    /// The bias of the code in answers that all copies of a module share. Two GiB on either side of such code are
    /// addresses, too, so nothing in an answer is cut off.
    pub const ANSWERS_BIAS: Bias = Bias(1 << 46);

    /// The original bytes of code: `bytes` of them at `address`; `None` if some of them are not in an executable
    /// segment's part of the file.
    pub fn code_at(&self, address: ImageAddress, bytes: u64) -> Option<&[u8]> {
        let end = address.0.checked_add(bytes)?;
        let inside = |segment: &&Segment| {
            let segment_end = segment.address.saturating_add(segment.file_bytes);
            segment.executable && segment.address <= address.0 && end <= segment_end
        };
        let segment = self.elf.segments.iter().find(inside)?;
        self.elf
            .at_offset(segment.offset.checked_add(address.0 - segment.address)?, bytes)
    }

    /// Whether the instruction before `address` is a call (direct, or through a register or memory), judged by its
    /// bytes.
    pub fn follows_call(&self, address: ImageAddress) -> bool {
        let before = |bytes: u64| self.code_at(ImageAddress(address.0.checked_sub(bytes)?), bytes);
        (2..=CALL_BYTES_MAX).rev().find_map(before).is_some_and(ends_with_call)
    }

    /// `bytes` bytes of constant data: in the file's part of a segment that is not writable, and
    /// so not relocated either.
    pub fn constant_at(&self, address: ImageAddress, bytes: u64) -> Option<&[u8]> {
        let end = address.0.checked_add(bytes)?;
        let inside = |segment: &&Segment| {
            let segment_end = segment.address.saturating_add(segment.file_bytes);
            !segment.writable && segment.address <= address.0 && end <= segment_end
        };
        let segment = self.elf.segments.iter().find(inside)?;
        self.elf
            .at_offset(segment.offset.checked_add(address.0 - segment.address)?, bytes)
    }

    /// The addresses in `range` that are entered other than by a branch, ascending. These are the starts of
    /// functions, fragments and FDEs, the landing pads of exceptions, and the sites of static probes (which are
    /// instructions in any case). They are also the addresses at which Go's runtime continues after a recovered
    /// panic.
    pub fn entered_from_elsewhere(&self, range: AddressRange) -> Vec<ImageAddress> {
        let mut found = self.named().index.spans_starting_in(range);
        let frames = self.frames().overlapping(range.start.0..range.end.0);
        found.extend(frames.iter().map(|frame| frame.start));
        if let Some(table) = self.landing_pads.clone() {
            let mut pads = LandingPads {
                elf: &self.elf,
                table,
                frames,
                found,
            };
            self.frames().with_descriptions(&self.elf, frames, &mut pads);
            found = pads.found;
        }
        let sites = self.answers.static_sites.get_or_init(|| {
            let mut sites: Vec<u64> = self.static_probes().iter().map(|probe| probe.address.0).collect();
            sites.sort_unstable();
            sites
        });
        let first = sites.partition_point(|site| *site < range.start.0);
        found.extend(sites.iter().skip(first).take_while(|site| **site < range.end.0));
        self.find_recoveries(range, &mut found);
        found.retain(|address| range.contains(ImageAddress(*address)));
        found.sort_unstable();
        found.dedup();
        found.into_iter().map(ImageAddress).collect()
    }

    /// Adds the places at which functions of Go are entered after a recovered panic: at their call of
    /// `runtime.deferreturn`, to which no branch leads.
    fn find_recoveries(&self, range: AddressRange, found: &mut Vec<u64>) {
        let look = || {
            self.functions()
                .iter()
                .find(|function| &*function.name == "runtime.deferreturn")
        };
        let address = || self.linkage.go.then(look).flatten().map(|function| function.address.0);
        let Some(deferreturn) = self.answers.deferreturn.get_or_init(address) else {
            return;
        };
        let code = self.elf.at_address(range.start.0, range.len()).unwrap_or_default();
        for (call, window) in (range.start.0..).zip(code.windows(5)) {
            if let &[0xe8, d0, d1, d2, d3] = window {
                let distance = i64::from(i32::from_le_bytes([d0, d1, d2, d3]));
                if call.wrapping_add(5).wrapping_add_signed(distance) == *deferreturn {
                    found.push(call);
                }
            }
        }
    }

    /// The restartable sequences with a part in a range: a byte of the sequence, the byte before it, the signature,
    /// or the abort address after the signature.
    pub fn restartable_in(&self, range: AddressRange) -> Vec<RestartableSequence> {
        self.answers
            .restartable
            .get_or_init(|| Sequences::of(&self.elf))
            .touching(range)
    }

    /// The addresses in `range`, which is code, to which pointers in the module's data lead.
    pub fn code_pointers(&self, range: AddressRange) -> Vec<ImageAddress> {
        let all = self.answers.pointers.get_or_init(|| pointers::find(&self.elf));
        let first = all.partition_point(|address| *address < range.start.0);
        let inside = all.iter().skip(first).take_while(|address| **address < range.end.0);
        inside.copied().map(ImageAddress).collect()
    }

    /// Whether the functions were found already, here or in a module that shares them.
    pub fn has_found_functions(&self) -> bool {
        self.found.is_named()
    }

    /// The places before system calls that a caller searches once: the answer to one of four questions. All copies of
    /// the module share it, so it must follow from the module's code alone. The places lie where the code would lie
    /// with [`Module::ANSWERS_BIAS`].
    pub fn replacements_once(&self, question: [bool; 2], search: impl FnOnce() -> Vec<Replacement>) -> &[Replacement] {
        let [neither, second, first, both] = &self.answers.replacements;
        let answer = match question {
            [false, false] => neither,
            [false, true] => second,
            [true, false] => first,
            [true, true] => both,
        };
        answer.get_or_init(search)
    }

    /// The padding in a function and after it, as the target has it, which a caller finds once for all copies of the
    /// module. It must follow from the module's code alone.
    pub fn padding_once(&self, extent: AddressRange, find: impl FnOnce() -> Vec<Padding>) -> Vec<Padding> {
        let [kept, own] = [Module::ANSWERS_BIAS, self.bias].map(|bias| bias.to_target(ImageAddress(0)));
        let moved = |padding: Vec<Padding>, shift: Shift| padding.iter().map(|padding| padding.moved(shift)).collect();
        let find = || moved(find(), Shift::new(own, kept));
        let found = self.found.asked.padding((extent.start.0, extent.end.0), find);
        moved(found, Shift::new(kept, own))
    }

    /// The indexes of the functions that answer to a question, which a caller finds once for all copies of the module.
    /// The question must say all on which the answer depends.
    pub fn functions_once(&self, question: String, find: impl FnOnce() -> Vec<usize>) -> Arc<[usize]> {
        self.found.asked.matching(question, find)
    }

    /// The ranges of instructions: the executable sections, sorted and disjoint.
    pub fn executable_ranges(&self) -> impl Iterator<Item = AddressRange> + '_ {
        self.elf.executable.iter().copied()
    }

    /// The main part of a function, from its entry to its end. For an IFUNC, the main part of the resolver.
    pub fn function_extent(&self, function: &Function) -> AddressRange {
        function.extent()
    }

    /// The extent of the function that begins at `address`, or contains it: by symbol, else by FDE. The
    /// implementation that an IFUNC chose seldom has a symbol, so this is how its extent is found.
    pub fn extent_at(&self, address: ImageAddress) -> Option<AddressRange> {
        let named = self.named().index.span_at(address).filter(|span| span.start == address);
        let frame = || self.described_at(address);
        named.or_else(frame).or_else(|| self.named().index.span_at(address))
    }

    /// The code that an FDE describes around `address`. Unlike [`Module::extent_at`], this does not use symbols.
    pub fn described_at(&self, address: ImageAddress) -> Option<AddressRange> {
        let frame = self.frames().at(address.0)?;
        Some(AddressRange::new(frame.code_start(), frame.end))
    }

    /// Whether the stack pointer points at the return address before the instruction at `address`, by call frame
    /// information; `None` if none describes it.
    pub fn is_frameless_at(&self, address: ImageAddress) -> Option<bool> {
        self.frames().is_frameless_at(&self.elf, address.0)
    }

    /// The range between `end`, the end of some function, and the next known address: a function, fragment, FDE, data
    /// symbol, or the section's end. Usually it is the alignment's padding. In a stripped module it may also hold
    /// assembly code without an FDE, so the caller checks the bytes.
    pub fn padding_after(&self, end: ImageAddress) -> AddressRange {
        self.named().index.padding_after(&self.elf, self.frames(), end)
    }

    /// The bytes after a section of code that have no owner: they align the next section, or fill the segment's last
    /// page. Empty unless such a section ends at `end`. [`Module::code_with_gap_at`] yields the bytes.
    pub fn gap_after(&self, end: ImageAddress) -> AddressRange {
        self.named().index.gap_after(&self.elf, self.frames(), end)
    }

    /// As [`Module::code_at`], but up to the end of the segment's last page, which the kernel maps as well.
    pub fn code_with_gap_at(&self, address: ImageAddress, bytes: u64) -> Option<&[u8]> {
        self.elf.code_pages_at(address.0, bytes)
    }

    /// The cold fragment that contains `address`: a part of some function that is entered by jumps, with a frame
    /// already built. It is known by its symbol (`name.cold`), or it is an FDE without a symbol, whose CFA at the
    /// start is not `rsp + 8`.
    ///
    /// Without symbols, a fragment of a function without a frame looks like a separate function.
    pub fn cold_fragment_at(&self, address: ImageAddress) -> Option<AddressRange> {
        if let Some(fragment) = self.named().index.fragment_at(address) {
            return Some(fragment);
        }
        let frame = self.frames().at(address.0)?;
        let named = self.named().index.is_start(ImageAddress(frame.start));
        let in_stubs =
            self.elf.sections.iter().any(|section| {
                section.name.starts_with(".plt") && address.0.wrapping_sub(section.address) < section.bytes
            });
        let built = !named && !in_stubs && self.frames().begins_with_built_frame(&self.elf, frame);
        built.then(|| AddressRange::new(frame.start, frame.end))
    }

    /// Whether `address` lies in a cold fragment.
    pub fn is_cold_fragment(&self, address: ImageAddress) -> bool {
        self.cold_fragment_at(address).is_some()
    }
}

/// The length of the longest call without prefixes: opcode, ModRM, SIB, a displacement.
const CALL_BYTES_MAX: u64 = 7;

fn ends_with_call(code: &[u8]) -> bool {
    let form = |bytes: usize| match code.get(code.len().checked_sub(bytes)?..)? {
        [0xff, form, ..] if *form >> 3 & 7 == 2 => Some(*form),
        _ => None,
    };
    code.iter().nth_back(4) == Some(&0xe8)
        || (2..=CALL_BYTES_MAX as usize).any(|bytes| form(bytes).is_some_and(|form| bytes == 2 + operand_bytes(form)))
}

/// The number of bytes after a ModRM byte that belong to its operand: a SIB byte, a displacement.
fn operand_bytes(form: u8) -> usize {
    let scaled = usize::from(form & 7 == 4);
    match form >> 6 {
        0 if form & 7 == 5 => 4,
        0 => scaled,
        1 => scaled + 1,
        2 => scaled + 4,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::ends_with_call;

    #[test]
    fn calls_are_known_by_their_last_bytes() {
        let calls: [&[u8]; 9] = [
            &[0xe8, 1, 2, 3, 4],
            &[0x90, 0x90, 0xe8, 1, 2, 3, 4],
            &[0xff, 0xd0],
            &[0x41, 0xff, 0xd3],
            &[0xff, 0x15, 1, 2, 3, 4],
            &[0xff, 0x50, 8],
            &[0xff, 0x54, 0x24, 8],
            &[0xff, 0x93, 1, 2, 3, 4],
            &[0xff, 0x94, 0x24, 1, 2, 3, 4],
        ];
        for code in calls {
            assert!(ends_with_call(code), "{code:x?}");
        }
        // Padding, a return, jumps through registers and memory, and a truncated call.
        let others: [&[u8]; 7] = [
            &[0x90; 7],
            &[0xe9, 1, 2, 3, 4, 0xc3],
            &[0xff, 0xe0],
            &[0xff, 0x25, 1, 2, 3, 4],
            &[0xff, 0xd0, 0x90],
            &[0xd0],
            &[],
        ];
        for code in others {
            assert!(!ends_with_call(code), "{code:x?}");
        }
    }
}
