//! Stacks: one frame on each line.

use std::collections::HashMap;
use std::io::{Result, Write};

use nanoprobe_lang::program::SymbolKind;

use crate::number::{self, Shape};

/// The place of an instruction in a source file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    pub file: String,
    pub line: u64,
}

/// The module that contains an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModulePlace {
    /// Its first address in the target, and the address after its last.
    pub start: u64,
    pub end: u64,
    pub path: String,
    /// The linker's hash of the module's contents, in hexadecimal digits; empty if there is no hash.
    pub build_id: String,
}

/// Names for addresses of the target.
pub trait Symbolizer {
    /// The address as DTrace writes it: ``module`function+0x1f``; ``module`function`` at its first byte.
    /// ``module`0x4005d0`` if no function is known; `0x4005d0` if no module is known.
    fn symbolize(&mut self, address: u64) -> String;

    /// As [`Symbolizer::symbolize`], for a return address. After a call that does not return, it may be the
    /// first byte of another function. It still belongs to the function with the call.
    fn symbolize_return(&mut self, address: u64) -> String {
        self.symbolize(address)
    }

    /// The function of a frame of interpreted code, without its line; `None`: the frame is machine code.
    fn interpreted_function(&mut self, frame: u64) -> Option<String> {
        let _ = frame;
        None
    }

    /// Whether a frame is code that was made at run time, and has no name. (A return address is that of the call's last
    /// byte.)
    fn is_nameless_code(&mut self, address: u64) -> bool {
        let _ = address;
        false
    }

    /// Whether this is an address of the target. Otherwise it is a number that only this trait understands.
    fn is_address(&mut self, address: u64) -> bool {
        let _ = address;
        true
    }

    /// The address without a function's name, as with `noresolve`: `module:0x1f` with the offset in the
    /// mapping, or the address itself.
    fn unresolved(&mut self, address: u64) -> String {
        format!("{address:#x}")
    }

    /// One address for all addresses with the same printed name: the start of the function, or of the module.
    /// It is the address itself if neither is known.
    fn start_of(&mut self, address: u64, kind: SymbolKind) -> u64;

    /// The name of a function as its source has it; `None`: the two names are the same.
    fn function_name(&mut self, name: &str) -> Option<String> {
        let _ = name;
        None
    }

    /// For each of these addresses the place in the source, if it is known. One call takes all addresses, because each
    /// table of lines has to be read from its start.
    fn sources(&mut self, addresses: &[u64]) -> HashMap<u64, Source> {
        let _ = addresses;
        HashMap::new()
    }

    /// The module that contains an address.
    fn module(&mut self, address: u64) -> Option<ModulePlace> {
        let _ = address;
        None
    }
}

/// The name that `uaddr`, `usym` and `umod` print for an address.
pub(crate) fn name_of(symbolizer: &mut dyn Symbolizer, address: u64, kind: SymbolKind) -> String {
    let start = symbolizer.start_of(address, kind);
    let name = symbolizer.symbolize(start);
    match (kind, name.split_once('`')) {
        (SymbolKind::Module, Some((module, _))) => module.to_owned(),
        _ => name,
    }
}

/// The names of a stack's frames, innermost first, up to the first zero. The first address is the
/// thread's position; the others are return addresses.
pub(crate) fn frame_names<'a>(
    frames: &'a [u64],
    symbolizer: &'a mut dyn Symbolizer,
) -> impl Iterator<Item = (u64, String)> + 'a {
    let frames = frames.iter().copied().take_while(|address| *address != 0);
    frames
        .enumerate()
        .map(|(index, address)| (address, name_of_frame(address, index != 0, symbolizer)))
}

/// The text of a frame of code that was made at run time, and that nothing names.
pub const NAMELESS_CODE: &str = "[jit]";

fn name_of_frame(frame: u64, is_return: bool, symbolizer: &mut dyn Symbolizer) -> String {
    let name = match is_return {
        true => symbolizer.symbolize_return(frame),
        false => symbolizer.symbolize(frame),
    };
    // The address itself: no module has it.
    if name.starts_with("0x") && symbolizer.is_nameless_code(frame - u64::from(is_return)) {
        return NAMELESS_CODE.to_owned();
    }
    name
}

/// The name of a frame's function, without the place in it.
pub(crate) fn function_of_frame(frame: u64, is_return: bool, symbolizer: &mut dyn Symbolizer) -> String {
    if let Some(function) = symbolizer.interpreted_function(frame) {
        return function;
    }
    without_offset(&name_of_frame(frame, is_return, symbolizer)).to_owned()
}

pub(crate) fn without_offset(name: &str) -> &str {
    name.rsplit_once("+0x").map_or(name, |(function, _)| function)
}

/// Prints a new line, then each frame indented, up to the first zero. `named`: with the names of functions.
pub(crate) fn stack(
    out: &mut dyn Write,
    frames: &[u64],
    indent: usize,
    shape: Shape,
    symbolizer: &mut dyn Symbolizer,
    named: bool,
) -> Result<()> {
    writeln!(out)?;
    let names: Vec<String> = match named {
        true => frame_names(frames, symbolizer).map(|(_, name)| name).collect(),
        false => {
            let frames = frames.iter().take_while(|address| **address != 0);
            frames.map(|address| symbolizer.unresolved(*address)).collect()
        }
    };
    for name in names {
        write!(out, "{:indent$}", "")?;
        out.write_all(&number::text(name.as_bytes(), shape))?;
        writeln!(out)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_do_not_divide_functions() {
        assert_eq!(without_offset("a.out`main+0x1f"), "a.out`main");
        assert_eq!(without_offset("a.out`main"), "a.out`main");
        assert_eq!(without_offset("0x401000"), "0x401000");
    }
}
