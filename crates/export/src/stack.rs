//! Stacks: one frame a line.

use std::io::{Result, Write};

use nanoprobe_lang::program::SymbolKind;

use crate::number::{self, Shape};

/// Names for addresses of the target.
pub trait Symbolizer {
    /// The address as DTrace writes it: ``module`function+0x1f``; ``module`function`` at its first
    /// byte; ``module`0x4005d0`` where no function is known; `0x4005d0` where no module is known.
    fn symbolize(&mut self, address: u64) -> String;

    /// The same for a return address. After a call that does not return, the return address may be
    /// the first byte of another function. It still belongs to the function with the call.
    fn symbolize_return(&mut self, address: u64) -> String {
        self.symbolize(address)
    }

    /// The address without a function's name, as with `noresolve`: `module:0x1f` with the place in
    /// the mapping, or the address itself.
    fn unresolved(&mut self, address: u64) -> String {
        format!("{address:#x}")
    }

    /// One address for all those that have the same printed name: the start of the function, or of
    /// the module. The address itself if neither is known.
    fn start_of(&mut self, address: u64, kind: SymbolKind) -> u64;
}

/// What `uaddr`, `usym` and `umod` print of an address.
pub(crate) fn name_of(symbolizer: &mut dyn Symbolizer, address: u64, kind: SymbolKind) -> String {
    let start = symbolizer.start_of(address, kind);
    let name = symbolizer.symbolize(start);
    match (kind, name.split_once('`')) {
        (SymbolKind::Module, Some((module, _))) => module.to_owned(),
        _ => name,
    }
}

/// The names of a stack's frames, innermost first, up to the first zero. The first address is where
/// the thread was; the others are return addresses.
pub(crate) fn frame_names<'a>(
    frames: &'a [u64],
    symbolizer: &'a mut dyn Symbolizer,
) -> impl Iterator<Item = (u64, String)> + 'a {
    let frames = frames.iter().copied().take_while(|address| *address != 0);
    frames.enumerate().map(|(index, address)| match index {
        0 => (address, symbolizer.symbolize(address)),
        _ => (address, symbolizer.symbolize_return(address)),
    })
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
