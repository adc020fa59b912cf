//! Functions without a symbol, which are known only from the call frame information of a stripped module.
//!
//! Stripping leaves the FDEs. Each describes one piece of code, which is a function if it is entered as one:
//!
//! | an FDE without a symbol | is |
//! |---|---|
//! | in a section `.plt`, `.plt.sec`, ...; without sections, at a jump through a slot | linkage stubs: nothing |
//! | at whose start a frame is built already | a part of a function, entered by jumps or by an exception |
//! | of the code that returns from a signal | a part, entered by a handler's return |
//! | to which only jumps of one function lead, and a jump is conditional or the code jumps back | a part |
//! | into which the code before it goes on | a part |
//! | any other | a function |
//!
//! A function is named after its address in the image, as objdump and gdb show it: `0x2f4a0`. No compiler makes
//! symbols that begin with a digit. A part is named after its function, if that is known (`0x2f4a0.cold`), else after
//! its own address, with `.part`.
//!
//! Nothing proves that the rest are functions. A part of a function without a frame, entered by a plain jump alone,
//! looks like the target of a tail call. So no code may rely on these being functions if a mistake would break the
//! program: the memory below the stack pointer may be live at such a start.

use std::collections::HashMap;

use gimli::{BaseAddresses, FrameDescriptionEntry, UnwindSection};
use nanoprobe_patch::order::sort_by_numbers;
use nanoprobe_patch::{CodeView, FunctionExtent, TargetAddress, analyze};

use crate::address::{AddressRange, ImageAddress};
use crate::elf::Elf;
use crate::frames::{FirstRow, Frame, Frames, Slice, Visitor};
use crate::function::{Fragment, Function, FunctionKind};
use crate::functions::Functions;
use crate::references::{Owner, Owners, References};

/// The most pieces that get names: the largest programs have a million functions.
const PIECES_MAX: usize = 1 << 21;
/// Pieces larger than this are not decoded to see how they end.
const DECODED_BYTES_MAX: u64 = 1 << 20;
/// The limit of all decoded bytes, as a multiple of the size of all code.
const DECODED_FACTOR: u64 = 2;

/// A piece of code that an FDE describes and no symbol names.
struct Piece {
    range: AddressRange,
    frame: Frame,
    /// Whether the piece's first instruction may be a function's entry.
    may_be_called: bool,
}

/// Adds the functions that no symbol names, and the parts of functions.
pub(crate) fn add(elf: &Elf, frames: &Frames, functions: &mut Functions) {
    let pieces = find(elf, frames, functions);
    if pieces.is_empty() {
        return;
    }
    let owners = Owners::of(functions, pieces.iter().map(|piece| piece.range));
    let starts = pieces.iter().map(|piece| piece.range.start.0).collect();
    let mut references = References::find(elf, starts, &owners);
    let undecided: Vec<usize> = (0..pieces.len())
        .filter(|number| pieces.get(*number).is_some_and(|piece| piece.may_be_called))
        .filter(|number| !references.is_called(*number))
        .collect();
    references.find_pointers(elf, &undecided);
    let all_code: u64 = elf.executable.iter().map(|range| range.len()).sum();
    let mut budget = all_code.saturating_mul(DECODED_FACTOR);
    let mut parts: HashMap<usize, Option<Owner>> = HashMap::new();
    for (number, piece) in pieces.iter().enumerate() {
        let jumping = references.only_jump(number);
        if !piece.may_be_called {
            parts.insert(number, jumping.map(|(owner, _)| owner));
        } else if !references.is_called(number) {
            let part_of = match jumping {
                Some((owner, true)) => Some(owner),
                Some((owner, false)) => Some(owner).filter(|owner| owners.is_left_into(elf, piece.range, *owner)),
                None if references.is_jumped_to(number) => None,
                None => goes_on_into(elf, frames, piece, &mut budget).and_then(|before| owners.at(before)),
            };
            if let Some(owner) = part_of {
                parts.insert(number, Some(owner));
            }
        }
    }
    name(&pieces, &parts, functions);
}

/// The pieces, ascending. None overlaps a function or another piece.
fn find(elf: &Elf, frames: &Frames, functions: &Functions) -> Vec<Piece> {
    let mut known: Vec<AddressRange> = functions.list.iter().map(Function::extent).collect();
    let fragments = functions.list.iter().flat_map(|function| &function.fragments);
    known.extend(fragments.chain(&functions.orphans).map(|fragment| fragment.range));
    let stubs = elf
        .sections
        .iter()
        .filter(|section| section.name.starts_with(".plt"))
        .map(|section| AddressRange::new(section.address, section.address.saturating_add(section.bytes)));
    known.extend(stubs);
    sort_by_numbers(&mut known, |range| (range.start.0, range.end.0));
    let mut known = known.into_iter().peekable();
    // The highest end so far.
    let mut covered = ImageAddress(0);
    let mut pieces = Vec::new();
    for frame in &frames.list {
        let range = AddressRange::new(frame.code_start(), frame.end);
        while let Some(passed) = known.next_if(|next| next.start < range.end) {
            covered = covered.max(passed.end);
        }
        if range.start < covered || range.is_empty() || is_stub(elf, range) {
            continue;
        }
        covered = range.end;
        pieces.push(Piece {
            range,
            frame: *frame,
            may_be_called: false,
        });
        if pieces.len() >= PIECES_MAX {
            break;
        }
    }
    let of_pieces: Vec<Frame> = pieces.iter().map(|piece| piece.frame).collect();
    frames.with_descriptions(elf, &of_pieces, &mut Begins { pieces: &mut pieces });
    pieces
}

/// Whether code begins with a jump through a slot, `jmp [rip + x]`, in a module whose sections do not tell which code
/// is a stub.
fn is_stub(elf: &Elf, range: AddressRange) -> bool {
    if !elf.sections.is_empty() {
        return false;
    }
    let code = elf.some_at(range.start.0, 8).unwrap_or_default();
    let code = code.strip_prefix(&[0xf3, 0x0f, 0x1e, 0xfa]).unwrap_or(code);
    let code = code.strip_prefix(&[0xf2]).unwrap_or(code);
    code.starts_with(&[0xff, 0x25])
}

/// Notes which pieces begin as a called function does.
struct Begins<'p> {
    pieces: &'p mut [Piece],
}

impl Visitor for Begins<'_> {
    fn visit<'a, S: UnwindSection<Slice<'a>>>(
        &mut self,
        index: usize,
        section: &S,
        bases: &BaseAddresses,
        description: &FrameDescriptionEntry<Slice<'a>>,
    ) {
        let mut built = false;
        FirstRow(&mut built).visit(index, section, bases, description);
        if let Some(piece) = self.pieces.get_mut(index) {
            piece.may_be_called = !built && !description.is_signal_trampoline();
        }
    }
}

/// The last byte of the code before a piece, if control flow continues from that code into the piece.
fn goes_on_into(elf: &Elf, frames: &Frames, piece: &Piece, budget: &mut u64) -> Option<ImageAddress> {
    let last = piece.frame.start.checked_sub(1)?;
    let before = frames.at(last).filter(|before| before.end == piece.frame.start)?;
    let size = before.end - before.code_start();
    if size > DECODED_BYTES_MAX {
        return None;
    }
    *budget = budget.checked_sub(size)?;
    let start = TargetAddress(before.code_start());
    let bytes = elf.at_address(start.0, size)?;
    let extent = FunctionExtent {
        start,
        size,
        fragments: Vec::new(),
    };
    analyze(&CodeView { start, bytes }, &extent)
        .goes_on_after_its_end()
        .then_some(ImageAddress(last))
}

/// Adds the pieces, with their names, to the functions. `parts`: the pieces that are parts, each with its owner.
fn name(pieces: &[Piece], parts: &HashMap<usize, Option<Owner>>, functions: &mut Functions) {
    let mut made: HashMap<usize, usize> = HashMap::new();
    functions.list.reserve_exact(pieces.len() - parts.len());
    for (number, piece) in pieces
        .iter()
        .enumerate()
        .filter(|(number, _)| !parts.contains_key(number))
    {
        made.insert(number, functions.list.len());
        functions.list.push(Function {
            name: piece.range.start.to_string().into(),
            aliases: Vec::new(),
            address: piece.range.start,
            size: piece.range.len(),
            kind: FunctionKind::Code,
            fragments: Vec::new(),
            global: false,
            is_named: false,
        });
    }
    for (number, piece) in pieces.iter().enumerate() {
        let Some(owner) = parts.get(&number) else { continue };
        let parent = match owner {
            Some(Owner::Function(index)) => Some(*index),
            // This is a part of a part; the search for its function ends here.
            Some(Owner::Piece(of)) => made.get(of).copied(),
            None => None,
        };
        let parent = parent.and_then(|index| functions.list.get_mut(index));
        let name = match &parent {
            Some(parent) => format!("{}.cold", parent.name),
            None => format!("{}.part", piece.range.start),
        };
        let part = Fragment {
            name: name.into(),
            range: piece.range,
        };
        parent
            .map_or(&mut functions.orphans, |parent| &mut parent.fragments)
            .push(part);
    }
    for function in &mut functions.list {
        function.fragments.sort_by_key(|fragment| fragment.range.start);
    }
    functions.sort();
}
