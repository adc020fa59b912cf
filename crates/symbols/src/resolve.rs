//! From an address to a name: a sorted index over functions and fragments.

use nanoprobe_patch::order::sort_by_numbers;

use crate::address::{AddressRange, ImageAddress};
use crate::elf::Elf;
use crate::frames::Frames;
use crate::function::Function;
use crate::functions::Functions;

/// How many spans that begin before an address are searched for the one that contains it: functions nest one or two
/// deep.
const NESTING_MAX: usize = 32;

/// A range of code, and its owner.
#[derive(Clone, Copy, Debug)]
struct Span {
    range: AddressRange,
    owner: Owner,
    /// The highest end among this span and all spans before it.
    reach: ImageAddress,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    Orphan(u32),
    Fragment(u32, u32),
    Function(u32),
}

impl Owner {
    /// The order of spans that have the same range.
    fn place(self) -> (u64, u64) {
        match self {
            Owner::Orphan(number) => (0, number.into()),
            Owner::Fragment(function, part) => (1 << 32 | u64::from(function), part.into()),
            Owner::Function(number) => (2 << 32 | u64::from(number), 0),
        }
    }
}

/// The spans, sorted by start; if several have one start, the preferred one is last.
#[derive(Clone, Debug, Default)]
pub(crate) struct Index {
    spans: Vec<Span>,
    /// The addresses at which something begins or data lies, sorted: each ends the padding after a function.
    starts: Vec<u64>,
}

impl Index {
    pub fn of(elf: &Elf, frames: &Frames, functions: &Functions) -> Self {
        let mut spans = Vec::with_capacity(functions.list.len());
        let span = |range, owner| Span {
            range,
            owner,
            reach: ImageAddress(0),
        };
        // In the list, IFUNCs come after the code at the same address. In this index the code is preferred, so it must
        // come last.
        for (index, function) in functions.list.iter().enumerate() {
            spans.push(span(function.extent(), Owner::Function(index as u32)));
            for (part, fragment) in function.fragments.iter().enumerate() {
                spans.push(span(fragment.range, Owner::Fragment(index as u32, part as u32)));
            }
        }
        for (index, fragment) in functions.orphans.iter().enumerate() {
            spans.push(span(fragment.range, Owner::Orphan(index as u32)));
        }
        sort_by_numbers(&mut spans, |span| {
            let (first, second) = span.owner.place();
            (!first, !second)
        });
        sort_by_numbers(&mut spans, |span| (span.range.start.0, !span.range.end.0));
        let mut reach = ImageAddress(0);
        for span in &mut spans {
            reach = reach.max(span.range.end);
            span.reach = reach;
        }
        let mut starts: Vec<u64> = spans.iter().map(|span| span.range.start.0).collect();
        starts.extend(frames.list.iter().map(|frame| frame.start));
        starts.extend(&functions.data);
        starts.extend(elf.executable.iter().map(|range| range.start.0));
        starts.sort_unstable();
        starts.dedup();
        Self { spans, starts }
    }

    /// The span with the highest start that holds `address`.
    fn holding(&self, address: ImageAddress) -> Option<&Span> {
        let before = self.spans.partition_point(|span| span.range.start <= address);
        let candidates = self.spans.get(..before)?.iter().rev().take(NESTING_MAX);
        candidates
            .take_while(|span| span.reach > address)
            .find(|span| span.range.contains(address))
    }

    /// The extent of the innermost function or fragment that holds `address`.
    pub fn span_at(&self, address: ImageAddress) -> Option<AddressRange> {
        self.holding(address).map(|span| span.range)
    }

    /// The starts of functions and fragments in a range.
    pub fn spans_starting_in(&self, range: AddressRange) -> Vec<u64> {
        let first = self.spans.partition_point(|span| span.range.start < range.start);
        let inside = self
            .spans
            .iter()
            .skip(first)
            .take_while(|span| span.range.start < range.end);
        inside.map(|span| span.range.start.0).collect()
    }

    /// Whether a function or fragment begins at `address`.
    pub fn is_start(&self, address: ImageAddress) -> bool {
        self.spans
            .binary_search_by_key(&address, |span| span.range.start)
            .is_ok()
    }

    /// The range of the named fragment that holds `address`.
    pub fn fragment_at(&self, address: ImageAddress) -> Option<AddressRange> {
        let span = self.holding(address)?;
        (!matches!(span.owner, Owner::Function(_))).then_some(span.range)
    }

    /// See [`crate::Module::function_at`].
    pub fn function_at<'a>(&self, functions: &'a Functions, address: ImageAddress) -> Option<&'a Function> {
        match self.holding(address)?.owner {
            Owner::Function(index) | Owner::Fragment(index, _) => functions.list.get(index as usize),
            Owner::Orphan(_) => None,
        }
    }

    /// See [`crate::Module::padding_after`].
    pub fn padding_after(&self, elf: &Elf, frames: &Frames, end: ImageAddress) -> AddressRange {
        let nothing = AddressRange::new(end.0, end.0);
        let Some(range) = elf.executable_at(end.0) else {
            return nothing;
        };
        if self.holding(end).is_some() || frames.at(end.0).is_some() {
            return nothing;
        }
        let next = self.starts.get(self.starts.partition_point(|start| *start < end.0));
        AddressRange::new(end.0, next.map_or(range.end.0, |next| range.end.0.min(*next)))
    }

    /// See [`crate::Module::gap_after`]: the gap ends at the next known address, whatever the sections say.
    pub fn gap_after(&self, elf: &Elf, frames: &Frames, end: ImageAddress) -> AddressRange {
        let gap = elf.gap_after(end.0);
        let known = |address| self.holding(ImageAddress(address)).is_some() || frames.at(address).is_some();
        let next = self.starts.get(self.starts.partition_point(|start| *start < end.0));
        match next {
            _ if gap.is_empty() || known(end.0) => AddressRange::new(end.0, end.0),
            Some(next) => AddressRange::new(end.0, gap.end.0.min(*next)),
            None => gap,
        }
    }

    /// See [`crate::Module::resolve`].
    pub fn resolve<'a>(&self, functions: &'a Functions, address: ImageAddress) -> Option<(&'a str, u64)> {
        let span = self.holding(address)?;
        let name = match span.owner {
            Owner::Function(index) => &functions.list.get(index as usize)?.name,
            Owner::Fragment(index, part) => &functions.list.get(index as usize)?.fragments.get(part as usize)?.name,
            Owner::Orphan(index) => &functions.orphans.get(index as usize)?.name,
        };
        Some((name, address.0 - span.range.start.0))
    }
}
