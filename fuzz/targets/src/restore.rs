//! The arena as `nanoprobe restore` reads it: the control block, of any version, its tables, and
//! everything that they lead to: text, semaphores, replaced return addresses, a stack.
//!
//! The input is the arena. Its addresses lead to memory around it, without a process: a file with holes, in which each
//! address is an offset.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use nanoprobe_arena::{Bytes, ControlBlock};
use nanoprobe_session::{Detached, Standing, rehearse_restore};
use nanoprobe_target::{Map, Memory};
use rustix::fs::MemfdFlags;

/// The address at which the arena is mapped. `tests/corpus.rs` uses the same.
pub const ARENA: u64 = 0x7000_0000_0000;
/// The place of a copy of a piece of the input, which serves as the pool of replaced return addresses.
pub const POOL: u64 = 0x6000_0000_0000;
/// The end of the file.
const END: u64 = 1 << 47;
/// The size of a table of threads, which is mapped but never touched.
const TABLE: u64 = 0x5000_0000_0000;

/// The input is an arena from its first byte on.
pub fn restore(data: &[u8]) {
    read(data);
    for is_child in [false, true] {
        if let Some(detached) = rehearsed(data, is_child) {
            let entries = data.len() / 8 + 1;
            // The springboards may be examined a second time.
            assert!(detached.restored <= 2 * entries, "more than there are bytes");
        }
    }
}

/// The report of `restore` for the traced process or a child of it. The last words give the place of its thread.
pub fn rehearsed(data: &[u8], is_child: bool) -> Option<Detached> {
    let memory = memory(data).ok()?;
    let word = |index: usize| {
        let bytes = data.get(data.len().saturating_sub(48).checked_add(8 * index)?..)?;
        Some(u64::from_le_bytes(*bytes.first_chunk()?))
    };
    let word = |index| word(index).unwrap_or(0);
    let standing = Standing {
        rip: word(0),
        rsp: word(1),
        held: [2, 3, 4, 5].map(word),
    };
    rehearse_restore(&memory, &map(data.len() as u64), is_child, standing).ok()
}

fn memory(data: &[u8]) -> std::io::Result<Memory> {
    let file = File::from(rustix::fs::memfd_create("fuzzed", MemfdFlags::CLOEXEC)?);
    file.set_len(END)?;
    file.write_all_at(data, ARENA)?;
    file.write_all_at(data.get(data.len() / 2..).unwrap_or_default(), POOL)?;
    Ok(Memory::of_file(file))
}

fn map(bytes: u64) -> Map {
    let end = ARENA + bytes.next_multiple_of(4096).max(4096);
    Map::parse(
        format!(
            "400000-410000 r-xp 00000000 08:01 7 /usr/bin/program\n\
             410000-420000 rw-p 00010000 08:01 7 /usr/bin/program\n\
             {TABLE:x}-{:x} rw-p 00000000 00:00 0\n\
             {POOL:x}-{:x} rw-p 00000000 00:00 0\n\
             {ARENA:x}-{end:x} rw-s 00000000 00:01 9 /memfd:nanoprobe-0123456789abcdef (deleted)\n",
            TABLE + (1 << 24),
            POOL + (1 << 24),
        )
        .as_bytes(),
    )
}

/// Reads the arena as a tracer reads its own.
fn read(data: &[u8]) {
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
