//! Stacks: one frame a line.

use std::io::{Result, Write};

use nanoprobe_lang::program::SymbolKind;

use crate::number::{self, Shape};

/// Names for addresses of the target.
pub trait Symbolizer {
    /// The address as DTrace writes it: ``module`function+0x1f``, ``module`function`` at its first byte,
    /// ``module`0x4005d0`` where no function is known, `0x4005d0` where nothing is.
    fn symbolize(&mut self, address: u64) -> String;

    /// The address that stands for all those of which the same name is printed: the start of the function, or of the
    /// module; the address itself where none is known.
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

/// Prints a new line, then each frame indented, up to the first zero.
pub(crate) fn stack(
    out: &mut dyn Write,
    frames: &[u64],
    indent: usize,
    shape: Shape,
    symbolizer: &mut dyn Symbolizer,
) -> Result<()> {
    writeln!(out)?;
    for address in frames.iter().take_while(|address| **address != 0) {
        write!(out, "{:indent$}", "")?;
        out.write_all(&number::text(symbolizer.symbolize(*address).as_bytes(), shape))?;
        writeln!(out)?;
    }
    Ok(())
}
