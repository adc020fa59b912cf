//! The arena as `nanoprobe restore` reads it: the control block and its tables, of whichever version.

use nanoprobe_arena::{Bytes, ControlBlock};

/// An arena from its first byte on.
pub fn restore(data: &[u8]) {
    let memory = Bytes::from(data);
    let Ok(control) = ControlBlock::open(&memory) else {
        return;
    };
    let _current = control.is_current();
    let _head = control.read();
    let room = data.len() / 8 + 1;
    for count in [
        control.sites().map(|sites| sites.len()),
        control.regions().map(|regions| regions.len()),
        control.regions_ever().map(|regions| regions.len()),
        control.semaphores().map(|semaphores| semaphores.len()),
    ]
    .into_iter()
    .flatten()
    {
        assert!(count <= room, "more than there are bytes");
    }
    let _other = (
        control.exit_status(),
        control.contexts_in_use(),
        control.library_events(),
    );
}
