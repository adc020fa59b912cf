//! The agent's unwinding tables: rows compiled from each module's call frame information, and a table of modules.
//!
//! Rows of a module are written once. The table of modules is written anew whenever modules come, and published by
//! one store. The old one stays in place for threads that are still reading it.

use nanoprobe_arena::layout::{UnwindModule, UnwindRow, UnwindTable};
use nanoprobe_arena::{ControlBlock, Memory as _, Structure as _};
use nanoprobe_patch::TargetAddress;
use nanoprobe_symbols::unwind_rows;
use nanoprobe_text::modules::Modules;

use crate::attachment::Attachment;
use crate::error::SessionError;
use crate::interpreted::Interpreted;

/// Writes the rows of the modules from index `first` on, and publishes the table of all.
///
/// # Errors
/// The arena is full.
pub fn publish(
    attachment: &mut Attachment,
    interpreted: &mut Interpreted,
    modules: &Modules,
    first: usize,
) -> Result<(), SessionError> {
    let arena = attachment.addresses.arena.0;
    for (index, module) in modules.list().iter().enumerate().skip(first) {
        let rows = unwind_rows(module);
        let mut bytes = Vec::with_capacity(rows.len() * UnwindRow::BYTES);
        for row in &rows {
            bytes.extend_from_slice(&row.to_bytes());
        }
        let place = attachment.room.growth.put(bytes, 8)?;
        let bias = module.bias();
        let range = module.image_range();
        attachment.unwind_modules.push((
            index,
            UnwindModule {
                start: bias.to_target(range.start).0,
                end: bias.to_target(range.end).0,
                base: bias.to_target(module.unwind_base()).0,
                rows_offset: place.0 - arena,
                row_count: rows.len() as u64,
            },
        ));
    }
    let mut loaded: Vec<UnwindModule> = attachment
        .unwind_modules
        .iter()
        .filter(|(index, _)| modules.is_loaded(*index))
        .map(|(_, module)| *module)
        .collect();
    loaded.sort_by_key(|module| module.start);
    let runtimes_offset = interpreted.publish(attachment, modules)?;
    let mut bytes = UnwindTable {
        module_count: loaded.len() as u64,
        runtimes_offset,
    }
    .to_bytes();
    for module in &loaded {
        bytes.extend_from_slice(&module.to_bytes());
    }
    let place: TargetAddress = attachment.room.growth.put(bytes, 8)?;
    let pieces = attachment.room.growth.take_written();
    let memory = attachment.memory()?;
    for (address, bytes) in pieces {
        memory.write(address.0 - arena, &bytes)?;
    }
    interpreted.look_for_java(Some(memory), attachment.process.memory(), true)?;
    Ok(ControlBlock::open(memory)?.publish_unwind(place.0 - arena)?)
}
