//! From symbols to functions. Aliases are folded, extents found, labels and data left out, and cold fragments attached.
//!
//! A function is an address in executable code to which a symbol of type FUNC or IFUNC points. A global label without
//! a type counts, too, because assembly code often lacks types. If the symbol does not state an extent:
//!
//! ```text
//!   an FDE begins there              up to that FDE's end
//!   it lies inside a sized symbol    not a function but a label inside of one: left out
//!   it lies inside an FDE            up to that FDE's end; left out if another symbol precedes it there
//!   else                             up to the next symbol (of data also), FDE or section end
//! ```

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use nanoprobe_patch::order::sort_by_numbers;

use crate::address::{AddressRange, ImageAddress};
use crate::elf::Elf;
use crate::frames::Frames;
use crate::function::{Fragment, Function, FunctionKind};
use crate::go::Go;
use crate::name::{cold_parent, preference};
use crate::symbol_table::{self, Symbol, SymbolKind};

/// How many functions of one name are examined as a fragment's parent.
const PARENTS_MAX: usize = 64;
/// The limit of code that is searched for references to fragments, in multiples of all code.
const SEARCH_BUDGET_FACTOR: u64 = 8;
/// Symbols that linkers define to mark the text's end.
const MARKERS: [&str; 4] = ["etext", "_etext", "__etext", "runtime.etext"];

/// A module's functions.
#[derive(Clone, Debug, Default)]
pub(crate) struct Functions {
    /// Sorted by address; of several at one address, IFUNCs last.
    pub list: Vec<Function>,
    /// Fragments whose function is unknown.
    pub orphans: Vec<Fragment>,
    /// The addresses of data symbols in the code, sorted.
    pub data: Vec<u64>,
}

/// The functions of `elf`, by its own symbols and those of its separate debug file. If neither has a full table, also
/// by Go's tables.
pub(crate) fn find(elf: &Elf, frames: &Frames, debug: Option<&Elf>, go: Option<&Go>) -> Functions {
    let mut candidates = Vec::new();
    let mut data = Vec::new();
    for table in std::iter::once(elf).chain(debug) {
        symbol_table::for_each(table, |symbol| {
            if elf.executable_at(symbol.address.0).is_some() {
                match symbol.kind {
                    SymbolKind::Object => data.push(symbol.address.0),
                    SymbolKind::Function | SymbolKind::Ifunc => candidates.push(symbol),
                    SymbolKind::Label if symbol.global && !MARKERS.contains(&&*symbol.name) => candidates.push(symbol),
                    SymbolKind::Label | SymbolKind::ThreadLocal => {}
                }
            }
            true
        });
    }
    let is_stripped = !std::iter::once(elf).chain(debug).any(symbol_table::has_full_table);
    if let Some(go) = go.filter(|_| is_stripped) {
        candidates.extend(go.named(elf).map(|(name, address, size)| Symbol {
            name: name.into(),
            address: ImageAddress(address),
            size,
            kind: SymbolKind::Function,
            global: true,
            default_version: true,
        }));
    }
    data.sort_unstable();
    data.dedup();
    let mut list = fold(candidates);
    find_extents(elf, frames, &data, &mut list);
    let orphans = attach_fragments(elf, &mut list);
    let mut found = Functions { list, orphans, data };
    found.sort();
    found
}

impl Functions {
    /// Puts the list in order.
    pub fn sort(&mut self) {
        sort_by_numbers(&mut self.list, |function| {
            (function.address.0, u64::from(function.kind != FunctionKind::Code))
        });
        self.list.shrink_to_fit();
    }
}

/// One function for each address (and kind) to which symbols point, without an extent if no symbol has one.
fn fold(mut candidates: Vec<Symbol<'_>>) -> Vec<Function> {
    let is_ifunc = |symbol: &Symbol<'_>| symbol.kind == SymbolKind::Ifunc;
    candidates.sort_by(|left, right| {
        // A symbol with a size is the function; a symbol without a size is a label at its start.
        let key = |symbol: &Symbol<'_>| (symbol.address, is_ifunc(symbol), symbol.size == 0, !symbol.global);
        let size = |symbol: &Symbol<'_>| (symbol.size == 0, symbol.size);
        key(left)
            .cmp(&key(right))
            .then_with(|| preference(&left.name, &right.name))
            .then_with(|| size(left).cmp(&size(right)))
    });
    candidates
        .chunk_by(|left, right| left.address == right.address && is_ifunc(left) == is_ifunc(right))
        .filter_map(|same| {
            let first = same.first()?;
            let mut known = HashSet::new();
            let distinct = same
                .iter()
                .filter(|symbol| same.len() == 1 || known.insert(&*symbol.name));
            let mut names = distinct.map(|symbol| &*symbol.name);
            Some(Function {
                name: names.next()?.into(),
                aliases: names.map(Into::into).collect(),
                address: first.address,
                size: same
                    .iter()
                    .map(|symbol| symbol.size)
                    .find(|size| *size > 0)
                    .unwrap_or(0),
                kind: match first.kind {
                    SymbolKind::Ifunc => FunctionKind::Ifunc {
                        resolver: first.address,
                    },
                    _ => FunctionKind::Code,
                },
                fragments: Vec::new(),
                global: same.iter().any(|symbol| symbol.global),
                is_named: true,
            })
        })
        .collect()
}

/// Gives every function of `list` (sorted by address) an extent inside its section, or drops it.
fn find_extents(elf: &Elf, frames: &Frames, data: &[u64], list: &mut Vec<Function>) {
    let starts: Vec<u64> = list.iter().map(|function| function.address.0).collect();
    let mut covered = 0; // the highest end of a sized function so far
    list.retain_mut(|function| {
        let start = function.address.0;
        let Some(range) = elf.executable_at(start) else {
            return false;
        };
        let end = if function.size > 0 {
            start.saturating_add(function.size)
        } else if let Some(frame) = frames.starting_at(start) {
            frame.end
        } else if start < covered {
            return false;
        } else if let Some(frame) = frames.at(start) {
            // The FDE of glibc's __restore_rt begins a byte early, for unwinders that look up the address before.
            let first_inside = starts.get(starts.partition_point(|other| *other < frame.start));
            if first_inside != Some(&start) {
                return false;
            }
            frame.end
        } else {
            let next = |sorted: &[u64]| sorted.get(sorted.partition_point(|other| *other <= start)).copied();
            let next_frame = frames.next(start).map(|frame| frame.start);
            [next(&starts), next(data), next_frame]
                .into_iter()
                .flatten()
                .min()
                .unwrap_or(u64::MAX)
        };
        let end = end.min(range.end.0);
        function.size = end - start;
        covered = covered.max(end);
        true
    });
}

/// Moves the cold fragments from `list` to their functions; returns those without a function.
fn attach_fragments(elf: &Elf, list: &mut Vec<Function>) -> Vec<Fragment> {
    let is_fragment = |function: &Function| function.names().all(|name| cold_parent(name).is_some());
    let fragments: Vec<Function> = list.extract_if(.., |function| is_fragment(function)).collect();
    let mut parents: HashMap<Cow<'_, str>, Vec<usize>> = HashMap::new();
    for fragment in &fragments {
        parents.extend(cold_parent(&fragment.name).map(|parent| (parent.into(), Vec::new())));
    }
    for (index, function) in list.iter().enumerate() {
        for name in function.names() {
            if let Some(indices) = parents.get_mut(name).filter(|indices| indices.len() < PARENTS_MAX) {
                indices.push(index);
            }
        }
    }
    let all_code: u64 = elf.executable.iter().map(|range| range.len()).sum();
    let mut budget = all_code.saturating_mul(SEARCH_BUDGET_FACTOR);
    let mut orphans = Vec::new();
    let mut called = Vec::new();
    for fragment in &fragments {
        let candidates = cold_parent(&fragment.name)
            .and_then(|parent| parents.get(parent))
            .map_or(&[][..], |all| all);
        let parent = match parent_of(elf, list, candidates, fragment.address.0, &mut budget) {
            Parent::Calls => {
                called.push(fragment.clone());
                continue;
            }
            Parent::Is(index) => list.get_mut(index),
            Parent::Unknown => None,
        };
        let part = Fragment {
            name: fragment.name.clone(),
            range: fragment.extent(),
        };
        parent.map_or(&mut orphans, |parent| &mut parent.fragments).push(part);
    }
    list.extend(called);
    orphans
}

enum Parent {
    /// The fragment is a part of that function.
    Is(usize),
    /// The fragment is called, so it is a function: LLVM's hot-cold splitter turns cold code into functions with such
    /// names.
    Calls,
    Unknown,
}

/// The function to which a fragment belongs. Several functions may have the right name (static functions), so it is
/// the function that jumps to the fragment. If no jump is visible, it is the only function of that name.
fn parent_of(elf: &Elf, list: &[Function], candidates: &[usize], fragment: u64, budget: &mut u64) -> Parent {
    let mut jumping = None;
    for index in candidates {
        let Some(function) = list.get(*index) else { continue };
        let Some(left) = budget.checked_sub(function.size) else {
            break;
        };
        *budget = left;
        let code = elf.at_address(function.address.0, function.size).unwrap_or(b"");
        match reference(code, function.extent(), fragment) {
            Some(Reference::Call) => return Parent::Calls,
            Some(Reference::Jump) => jumping = jumping.or(Some(*index)),
            None => {}
        }
    }
    match (jumping, candidates) {
        (Some(index), _) | (None, &[index]) => Parent::Is(index),
        _ => Parent::Unknown,
    }
}

enum Reference {
    Call,
    Jump,
}

/// How `code`, at `place`, refers to `target`: a `call rel32` (E8), `jmp rel32` (E9) or `jcc rel32` (0F 8x), at any
/// byte. It is very unlikely that four arbitrary bytes lead to exactly that target.
fn reference(code: &[u8], place: AddressRange, target: u64) -> Option<Reference> {
    let mut found = None;
    for (index, window) in code.windows(5).enumerate() {
        let &[opcode, d0, d1, d2, d3] = window else { break };
        if opcode & 0xfe != 0xe8 && opcode & 0xf0 != 0x80 {
            continue;
        }
        let next = place.start.0.wrapping_add(index as u64 + 5);
        if next.wrapping_add_signed(i32::from_le_bytes([d0, d1, d2, d3]).into()) != target {
            continue;
        }
        if opcode == 0xe8 {
            return Some(Reference::Call);
        }
        let escaped = index.checked_sub(1).and_then(|before| code.get(before)) == Some(&0x0f);
        if opcode == 0xe9 || escaped {
            found = Some(Reference::Jump);
        }
    }
    found
}
