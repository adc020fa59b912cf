//! The code that probes are placed in: its extents in the target, its decoded parts, and the starts of its
//! instructions. Pure.
//!
//! ```text
//!   module, function  ->  extent          as the symbol states, or as an IFUNC chose (placement)
//!   module, address   ->  extent          of the function around it, by symbol, else by unwinding table
//!   extent            ->  parts           followed: the main part first, then the cold parts it jumps to
//!   parts             ->  Instructions    where each instruction starts: what offsets are checked against
//! ```
//!
//! An offset counts from the function's entry, modulo 2^64: a cold part may lie below its function, and the offsets of
//! its instructions are then very large (`ffffffffffffff80` is 128 bytes below the entry).

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use nanoprobe_patch::{CodeView, FunctionExtent, FunctionMap, Padding, RunPlan, TargetAddress, analyze, follow};
use nanoprobe_symbols::{FunctionKind, ImageAddress, Module};

use crate::decoded::{Decoded, KnownPadding};
use crate::image::Image;

/// Functions larger than this are not analysed: no compiler emits them, and a damaged symbol table may claim them.
const FUNCTION_BYTES_MAX: u64 = 16 << 20;
/// How far from a function padding is useful: the reach of a short jump, plus the length of the padding.
const NEIGHBOURHOOD_BYTES: u64 = 192;
/// How many functions before a function, and after it, are searched for padding.
const NEIGHBOURS_MAX: usize = 4;
/// How many functions in a row without room for a jump are examined.
const SHORT_FUNCTIONS_MAX: usize = 4;
/// How much padding an alignment makes at most.
const ALIGNMENT_PADDING_MAX: u64 = 15;
/// How much padding after a function is examined.
const PADDING_BYTES_MAX: u64 = 64;

/// The offsets at which the instructions of a function start.
#[derive(Clone, Debug, Default)]
pub struct Instructions {
    entry: u64,
    parts: Vec<Part>,
}

#[derive(Clone, Debug)]
struct Part {
    range: Range<u64>,
    starts: Vec<u64>,
    undecodable: Option<u64>,
}

/// Why no instruction starts at an offset. All numbers are offsets from the entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoInstruction {
    /// The offset lies outside of the function, whose main part has this many bytes.
    Outside {
        /// Bytes of the main part.
        bytes: u64,
    },
    /// The offset lies inside of an instruction, or in data.
    Inside {
        /// The nearest instruction before it.
        before: Option<u64>,
        /// The nearest instruction after it.
        after: Option<u64>,
    },
    /// The offset lies at, or after, bytes that are no known instruction.
    Undecodable {
        /// The first such byte.
        at: u64,
    },
}

impl Instructions {
    /// The instructions of the code that begins at `extent.start`; empty if the file does not have this code.
    pub fn of(module: &Module, extent: &Range<u64>) -> Instructions {
        let parts = parts(module, extent).unwrap_or_default();
        let part = |map: &FunctionMap| Part {
            range: map.start().0..map.start().0.saturating_add(map.size()),
            starts: map.instructions().map(|(address, _)| address.0).collect(),
            undecodable: map.undecodable().map(|address| address.0),
        };
        Instructions {
            entry: extent.start,
            parts: parts.iter().map(part).collect(),
        }
    }

    /// The instructions of a function with one part, made from its entry, its size, and their offsets.
    pub fn made(entry: u64, bytes: u64, offsets: &[u64]) -> Instructions {
        Instructions {
            entry,
            parts: vec![Part {
                range: entry..entry + bytes,
                starts: offsets.iter().map(|offset| entry + offset).collect(),
                undecodable: None,
            }],
        }
    }

    /// The offset of every instruction, those of the main part first.
    pub fn offsets(&self) -> impl Iterator<Item = u64> + '_ {
        let starts = self.parts.iter().flat_map(|part| &part.starts);
        starts.map(|address| address.wrapping_sub(self.entry))
    }

    /// Checks that an instruction starts at an offset.
    ///
    /// # Errors
    /// The reason why no instruction starts there.
    pub fn check(&self, offset: u64) -> Result<(), NoInstruction> {
        let address = self.entry.wrapping_add(offset);
        let offset_of = |address: u64| address.wrapping_sub(self.entry);
        let Some(part) = self.parts.iter().find(|part| part.range.contains(&address)) else {
            let main = self.parts.first().map_or(0..0, |part| part.range.clone());
            return Err(NoInstruction::Outside {
                bytes: main.end - main.start,
            });
        };
        if let Some(at) = part.undecodable.filter(|at| *at <= address) {
            return Err(NoInstruction::Undecodable { at: offset_of(at) });
        }
        let next = part.starts.partition_point(|start| *start < address);
        if part.starts.get(next) == Some(&address) {
            return Ok(());
        }
        let before = next.checked_sub(1).and_then(|index| part.starts.get(index));
        Err(NoInstruction::Inside {
            before: before.copied().map(offset_of),
            after: part.starts.get(next).copied().map(offset_of),
        })
    }
}

/// The extent of a function in the target. For an IFUNC it is the resolver's code, which must not be probed.
pub fn extent_of(module: &Module, function: usize) -> Option<Range<u64>> {
    let extent = module.functions().get(function)?.extent();
    Some(to_target(module, extent.start, extent.end))
}

/// The function around an address, for probes on an address. Also whether the function's start is known to be an
/// entry. If a symbol names the function, its extent counts, otherwise the unwinding tables.
pub fn extent_around(module: &Module, address: ImageAddress) -> Option<(Range<u64>, bool)> {
    if let Some(function) = module.function_at(address)
        && function.kind == FunctionKind::Code
    {
        let extent = function.extent();
        return Some((to_target(module, extent.start, extent.end), function.is_named));
    }
    let extent = module.extent_at(address).filter(|extent| extent.contains(address))?;
    Some((to_target(module, extent.start, extent.end), false))
}

/// The instructions `pause` of a function, by their addresses in the target: its own first, then those of code without
/// a name that it jumps to.
pub fn pauses(module: &Module, extent: &Range<u64>) -> Vec<u64> {
    let own = parts(module, extent).unwrap_or_default();
    let is_own = |address: TargetAddress| own.iter().any(|part| part.is_inside(address));
    let targets = own.iter().flat_map(FunctionMap::outgoing_branch_targets);
    let away: BTreeSet<ImageAddress> = targets
        .filter(|target| !is_own(**target) && own.iter().any(|part| part.jumps_to(**target)))
        .map(|target| module.bias().to_image(*target))
        .collect();
    let unnamed = away
        .into_iter()
        .filter_map(|target| match extent_around(module, target) {
            Some((other, false)) if other.start == module.bias().to_target(target).0 => parts(module, &other),
            _ => None,
        });
    let unnamed: Vec<FunctionMap> = unnamed.flatten().collect();
    let all = own.iter().chain(&unnamed).flat_map(FunctionMap::pauses);
    all.map(|address| address.0).collect()
}

/// The surroundings of functions: the padding of their neighbours, by extents.
#[derive(Clone, Debug, Default)]
pub struct Neighbours {
    padding: KnownPadding,
    /// Functions that were decoded early, because the functions before them needed their padding. Most of them are
    /// planned next.
    decoded: Decoded,
    /// The springboards that are in use: their starts and ends.
    taken: BTreeMap<u64, u64>,
    /// Places at which instructions were displaced to make room for the previous function.
    successors: BTreeSet<u64>,
}

impl Neighbours {
    /// The parts of the code at an extent: already decoded parts, or those that [`parts`] yields.
    pub fn parts(&mut self, module: &Module, extent: &Range<u64>) -> Option<Vec<FunctionMap>> {
        self.decoded.take(extent).or_else(|| parts(module, extent))
    }

    /// Gives the parts of a function their surroundings: their own padding, that of the neighbouring functions, and the
    /// function that begins at their end.
    pub fn show(&mut self, module: &Module, parts: &mut [FunctionMap]) {
        for part in parts {
            let (start, end) = self.show_around(module, part);
            let near = start.saturating_sub(NEIGHBOURHOOD_BYTES)..end.saturating_add(NEIGHBOURHOOD_BYTES);
            let taken = self.taken.range(near);
            part.show_taken(taken.map(|(start, end)| TargetAddress(*start)..TargetAddress(*end)));
            if self.successors.contains(&start) {
                part.show_that_it_is_successor();
            }
        }
    }

    /// Gives a part of a function the padding of its neighbours, for springboards. An instruction may also be
    /// displaced to make room for the short one before it. But no displaced instruction may carry a springboard, or
    /// belong to another function.
    pub fn show_all_but_hosts(&mut self, module: &Module, part: &mut FunctionMap) {
        let text = part.start().0..part.start().0.saturating_add(part.size());
        part.show_padding_for_springboards(self.padding_around(module, &text));
        part.allow_successors();
    }

    /// Decodes a part of a function again, by its start, with its surroundings except for padding that is in use by
    /// now.
    pub fn part_again(&mut self, module: &Module, extent: &Range<u64>, start: TargetAddress) -> Option<FunctionMap> {
        let parts = self.parts(module, extent)?;
        let mut part = parts.into_iter().find(|part| part.start() == start)?;
        self.show_around(module, &mut part);
        Some(part)
    }

    fn show_around(&mut self, module: &Module, part: &mut FunctionMap) -> (u64, u64) {
        let (start, end) = (part.start().0, part.start().0.saturating_add(part.size()));
        let own = part.padding();
        part.show_padding(own.iter().cloned());
        self.padding.know(start..end, own);
        part.show_padding(self.padding_around(module, &(start..end)));
        self.show_next(module, part, 0);
        (start, end)
    }

    /// Stores the parts of a function before they are needed.
    pub(crate) fn know(&mut self, extent: Range<u64>, parts: Vec<FunctionMap>) {
        self.decoded.put(extent, parts);
    }

    /// Notes which padding is used, and which instructions must begin with a jump.
    pub fn take(&mut self, runs: &[RunPlan]) {
        let successors = runs.iter().filter_map(|run| run.successor);
        self.successors.extend(successors.map(|successor| successor.0));
        let springboards = runs.iter().filter_map(RunPlan::springboard);
        self.taken.extend(springboards.map(|springboard| {
            let Range { start, end } = springboard.range();
            (start.0, end.0)
        }));
    }

    /// Shows a part the function that begins after it, if the part's last instruction is shorter than a jump. Several
    /// functions in a row may be shorter than a jump.
    fn show_next(&mut self, module: &Module, part: &mut FunctionMap, depth: usize) {
        const JUMP_BYTES: u64 = 5;
        let end = part.start().0.saturating_add(part.size());
        let is_short =
            |(last, length): (TargetAddress, usize)| (length as u64) < JUMP_BYTES && last.0 + length as u64 == end;
        let at = module.bias().to_image(TargetAddress(end));
        let padding = module.padding_after(at).len();
        if padding + 1 >= JUMP_BYTES || !part.instructions().last().is_some_and(is_short) {
            return;
        }
        let at = module.bias().to_image(TargetAddress(end + padding));
        let Some(next) = module.extent_at(at).filter(|next| next.start == at) else {
            return;
        };
        let extent = to_target(module, next.start, next.end);
        let Some(parts) = self.parts(module, &extent) else {
            return;
        };
        if let Some(mut main) = parts.first().cloned() {
            if main.size() < JUMP_BYTES && depth < SHORT_FUNCTIONS_MAX {
                self.show_next(module, &mut main, depth + 1);
            }
            part.show_next(Arc::new(main));
        }
        self.decoded.put(extent, parts);
    }

    fn padding_around(&mut self, module: &Module, text: &Range<u64>) -> Vec<Padding> {
        let to_image = |address: u64| module.bias().to_image(TargetAddress(address));
        let low = to_image(text.start.saturating_sub(NEIGHBOURHOOD_BYTES));
        let high = to_image(text.end.saturating_add(NEIGHBOURHOOD_BYTES));
        let functions = module.functions();
        let at = |address: ImageAddress| functions.partition_point(|function| function.extent().start < address);
        let first = at(to_image(text.start)).saturating_sub(NEIGHBOURS_MAX);
        let around = functions.get(first..at(high)).unwrap_or_default().iter();
        let extents = around
            .map(|function| function.extent())
            .filter(|extent| extent.end > low);
        let mut padding = Vec::new();
        for extent in extents.take(2 * NEIGHBOURS_MAX + 1) {
            let in_target = to_target(module, extent.start, extent.end);
            if in_target == *text {
                continue;
            }
            let decoded = &mut self.decoded;
            let find = |in_target: &Range<u64>| {
                module.padding_once(extent, || decoded.padding_of(in_target, || parts(module, in_target)))
            };
            padding.extend_from_slice(self.padding.of(in_target, find));
        }
        padding
    }
}

fn to_target(module: &Module, start: ImageAddress, end: ImageAddress) -> Range<u64> {
    module.bias().to_target(start).0..module.bias().to_target(end).0
}

/// The decoded parts of the code at an extent: its main part first, then the cold fragments that it jumps to.
/// `None` when the file does not have the code.
pub fn parts(module: &Module, extent: &Range<u64>) -> Option<Vec<FunctionMap>> {
    let main = view(module, extent)?;
    let alone = FunctionExtent {
        start: main.start,
        size: extent.end - extent.start,
        fragments: Vec::new(),
    };
    let image = Image(module);
    let mut first = [analyze(&main, &alone)];
    follow(&mut first, &image);
    let [first] = first;
    let mut fragments: Vec<Range<TargetAddress>> = Vec::new();
    for target in first.outgoing_branch_targets() {
        let Some(fragment) = module.cold_fragment_at(module.bias().to_image(*target)) else {
            continue;
        };
        let fragment = module.bias().to_target(fragment.start)..module.bias().to_target(fragment.end);
        let inside = fragment.contains(&main.start);
        if !inside && !fragments.contains(&fragment) {
            fragments.push(fragment);
        }
    }
    if fragments.is_empty() {
        return Some(vec![first]);
    }
    let whole = FunctionExtent {
        fragments: fragments.clone(),
        ..alone
    };
    let mut parts = vec![analyze(&main, &whole)];
    for fragment in &fragments {
        let Some(code) = view(module, &(fragment.start.0..fragment.end.0)) else {
            continue;
        };
        let mut others: Vec<Range<TargetAddress>> =
            fragments.iter().filter(|other| *other != fragment).cloned().collect();
        others.push(TargetAddress(extent.start)..TargetAddress(extent.end));
        let size = fragment.end.0.saturating_sub(fragment.start.0);
        parts.push(analyze(
            &code,
            &FunctionExtent {
                start: fragment.start,
                size,
                fragments: others,
            },
        ));
    }
    let targets: Vec<TargetAddress> = parts
        .iter()
        .flat_map(|part| part.outgoing_branch_targets().to_vec())
        .collect();
    for part in &mut parts {
        part.add_branch_targets(targets.iter().copied());
    }
    follow(&mut parts, &image);
    Some(parts)
}

/// The file's bytes of a function and of the padding after it.
fn view<'a>(module: &'a Module, extent: &Range<u64>) -> Option<CodeView<'a>> {
    let size = extent
        .end
        .checked_sub(extent.start)
        .filter(|size| *size > 0 && *size <= FUNCTION_BYTES_MAX)?;
    let start = module.bias().to_image(TargetAddress(extent.start));
    let end = module.bias().to_image(TargetAddress(extent.end));
    let padding = padding_after(module, end);
    let bytes = module
        .code_with_gap_at(start, size + padding)
        .or_else(|| module.code_at(start, size))?;
    Some(CodeView {
        start: TargetAddress(extent.start),
        bytes,
    })
}

/// How many bytes of padding may follow a function. At the end of the section, bytes without an owner are padding, too.
/// But only as many count as alignment needs, since further zeros might be data.
fn padding_after(module: &Module, end: ImageAddress) -> u64 {
    let padding = module.padding_after(end).len();
    let gap = module.gap_after(ImageAddress(end.0.saturating_add(padding))).len();
    let gap = gap.min(ALIGNMENT_PADDING_MAX.saturating_sub(padding));
    (padding + gap).min(PADDING_BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offset_that_is_no_instruction_says_why() {
        let mut found = Instructions::made(0x1000, 0x10, &[0, 1, 4]);
        let cold = Part {
            range: 0xf80..0xf90,
            starts: vec![0xf80, 0xf82],
            undecodable: Some(0xf88),
        };
        found.parts.push(cold);
        let below = |bytes: u64| bytes.wrapping_neg();
        assert_eq!(found.offsets().collect::<Vec<_>>(), [0, 1, 4, below(0x80), below(0x7e)]);
        for offset in found.offsets() {
            assert_eq!(found.check(offset), Ok(()), "{offset:x}");
        }
        let inside = |before, after| Err(NoInstruction::Inside { before, after });
        assert_eq!(found.check(3), inside(Some(1), Some(4)));
        assert_eq!(found.check(5), inside(Some(4), None));
        assert_eq!(found.check(below(0x7f)), inside(Some(below(0x80)), Some(below(0x7e))));
        assert_eq!(found.check(0x10), Err(NoInstruction::Outside { bytes: 0x10 }));
        assert_eq!(
            found.check(below(0x78)),
            Err(NoInstruction::Undecodable { at: below(0x78) })
        );
        assert_eq!(
            Instructions::default().check(0),
            Err(NoInstruction::Outside { bytes: 0 })
        );
    }
}
