//! Stacks: one frame a line.

use std::io::{Result, Write};

use crate::number::{self, Shape};

/// Names for addresses of the target.
pub trait Symbolizer {
    /// The address as DTrace writes it: ``module`function+0x1f``, ``module`function`` at its first byte,
    /// ``module`0x4005d0`` where no function is known, `0x4005d0` where nothing is.
    fn symbolize(&mut self, address: u64) -> String;
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
