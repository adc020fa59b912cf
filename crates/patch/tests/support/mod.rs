//! Functions of real ELF files, for tests over code that nobody wrote for us.

#![allow(dead_code, reason = "each test uses its part")]

use std::ops::Range;
use std::path::Path;

use nanoprobe_patch::{
    Built, CodeView, FunctionExtent, FunctionMap, RunPlan, Tactic, TargetAddress, analyze, is_trapping_byte,
};
use object::{Object, ObjectSection, ObjectSymbol, SymbolKind};

/// Where the tests pretend that the file is loaded.
pub const LOAD_ADDRESS: u64 = 0x5555_5555_4000;

/// A function's name and place in the text.
pub struct Function {
    pub name: String,
    pub range: Range<u64>,
    /// Up to the next function or the section's end.
    pub view: Range<u64>,
}

/// The text of a file and its functions, at [`LOAD_ADDRESS`].
pub struct Text {
    pub address: u64,
    pub bytes: Vec<u8>,
    pub functions: Vec<Function>,
}

impl Text {
    /// `None` when there is no such file.
    pub fn read(path: &Path) -> Option<Text> {
        let data = std::fs::read(path).ok()?;
        let file = object::File::parse(&*data).unwrap();
        let section = file.section_by_name(".text").unwrap();
        let text = section.address()..section.address() + section.size();
        let mut ranges: Vec<(u64, u64, String)> = file
            .symbols()
            .chain(file.dynamic_symbols())
            .filter(|symbol| symbol.kind() == SymbolKind::Text && text.contains(&symbol.address()) && symbol.size() > 0)
            .map(|symbol| (symbol.address(), symbol.size(), symbol.name().unwrap_or("?").to_owned()))
            .collect();
        ranges.sort();
        ranges.dedup_by_key(|(address, _, _)| *address);
        let functions = ranges
            .iter()
            .enumerate()
            .map(|(index, (address, size, name))| {
                let next = ranges.get(index + 1).map_or(text.end, |(next, _, _)| *next);
                let range = address + LOAD_ADDRESS..(address + size).min(text.end) + LOAD_ADDRESS;
                let view = range.start..(next + LOAD_ADDRESS).max(range.end);
                Function {
                    name: name.clone(),
                    range,
                    view,
                }
            })
            .collect();
        Some(Text {
            address: text.start + LOAD_ADDRESS,
            bytes: section.data().unwrap().to_vec(),
            functions,
        })
    }

    pub fn bytes_at(&self, range: Range<u64>) -> &[u8] {
        &self.bytes[(range.start - self.address) as usize..(range.end - self.address) as usize]
    }

    pub fn analyze(&self, function: &Function) -> FunctionMap {
        let code = CodeView {
            start: TargetAddress(function.range.start),
            bytes: self.bytes_at(function.view.clone()),
        };
        let size = function.range.end - function.range.start;
        analyze(
            &code,
            &FunctionExtent {
                start: code.start,
                size,
                fragments: Vec::new(),
            },
        )
    }

    /// The text's pages, as the target's map would have them.
    pub fn mapping(&self) -> Range<u64> {
        LOAD_ADDRESS..(self.address + self.bytes.len() as u64 + 0x20_0000) & !4095
    }

    /// What is free around it.
    pub fn holes(&self) -> Vec<Range<u64>> {
        vec![0x10_0000..self.mapping().start, self.mapping().end..0x7fff_0000_0000]
    }
}

/// I1: every original instruction's start in a patch is the patch's start or traps and is redirected; nothing else of
/// the text changes.
pub fn check_invariant<'a>(text: &dyn Fn(Range<u64>) -> &'a [u8], map: &FunctionMap, run: &RunPlan, built: &Built) {
    let name = run.start;
    assert_eq!(built.address, run.start);
    assert_eq!(
        built.original,
        text(run.start.0..run.start.0 + built.original.len() as u64),
        "{name}"
    );
    assert_eq!(built.patched.len(), built.original.len());
    assert!(built.patched.len() <= 16);
    assert_eq!(built.detour.len(), run.detour_length, "{name}");
    let end = run.start.0 + built.patched.len() as u64;
    // A pun changes only what it displaces: all that is behind equals the original, and is not redirected.
    let jump = match run.tactic {
        Tactic::Trap => 1,
        Tactic::Pun => run.length,
        _ => 5,
    };
    if run.tactic == Tactic::Pun {
        assert!((1..5).contains(&run.length), "{name}");
        assert_eq!(built.patched.len(), 5);
        assert_eq!(built.patched[run.length..], built.original[run.length..], "{name}");
        let redirected_behind = built.redirects.iter().any(|redirect| redirect.from >= run.end());
        assert!(!redirected_behind, "{name}: {built:x?}");
    }
    let int3_here = |address: TargetAddress| text(address.0..address.0 + 1) == [0xcc];
    let mut changed = jump;
    for (start, _) in map
        .instructions()
        .filter(|(start, _)| (run.start.0..end).contains(&start.0))
    {
        let offset = (start.0 - run.start.0) as usize;
        if offset == 0 && run.tactic != Tactic::Trap || int3_here(start) {
            continue;
        }
        let byte = built.patched[offset];
        let redirected = built.redirects.iter().any(|redirect| redirect.from == start);
        if offset >= jump && !redirected {
            assert_eq!(byte, built.original[offset], "{name}");
            continue;
        }
        changed += usize::from(offset >= jump);
        assert!(is_trapping_byte(byte) && redirected, "{name}: {start} in {built:x?}");
    }
    // Nothing else is changed: the jump, and a byte at each site behind it.
    let differing = built
        .original
        .iter()
        .zip(&built.patched)
        .skip(jump)
        .filter(|(old, new)| old != new)
        .count();
    assert_eq!(differing, changed - jump, "{name}");
    for redirect in &built.redirects {
        assert!(is_trapping_byte(
            built.patched[(redirect.from.0 - run.start.0) as usize]
        ));
    }
    assert_eq!(built.moves.len(), run.instructions.len());
}
