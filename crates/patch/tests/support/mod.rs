//! Functions of real ELF files, for tests over code that nobody wrote for us.

#![allow(dead_code)]

use std::ops::Range;
use std::path::Path;

use nanoprobe_patch::{CodeView, FunctionExtent, FunctionMap, TargetAddress, analyze};
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
