//! The tables of two tracers of one process, as a third one reads them: the sites, the regions, the host's image, its
//! list of guests, and the tables by which its agent redirects traps.
//!
//! The input is three pieces of one length: the two arenas, and the first one's code. Their addresses lead to memory
//! around them, without a process: a file with holes, in which each address is an offset.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use nanoprobe_session::{ToldOfOthers, rehearse_others};
use nanoprobe_target::{Map, Memory};
use rustix::fs::MemfdFlags;

/// Where the three pieces lie. `tests/corpus.rs` uses the same.
pub const PIECES: [u64; 3] = [0x7000_0000_0000, 0x7100_0000_0000, 0x6000_0000_0000];
/// The end of the file.
const END: u64 = 1 << 47;

/// All three pieces.
pub fn tracers(data: &[u8]) {
    if let Some(told) = told(data) {
        assert!(
            told.arenas <= 2 && told.sites <= data.len() / 8 + 2,
            "more than there are bytes"
        );
    }
}

/// What was read of the two tracers.
pub fn told(data: &[u8]) -> Option<ToldOfOthers> {
    let file = File::from(rustix::fs::memfd_create("fuzzed", MemfdFlags::CLOEXEC).ok()?);
    file.set_len(END).ok()?;
    let length = data.len().div_ceil(PIECES.len()).max(1);
    for (piece, at) in data.chunks(length).zip(PIECES) {
        file.write_all_at(piece, at).ok()?;
    }
    rehearse_others(&Memory::of_file(file), &map(length as u64)).ok()
}

fn map(bytes: u64) -> Map {
    let bytes = bytes.next_multiple_of(4096);
    let [first, second, code] = PIECES;
    Map::parse(
        format!(
            "400000-410000 r-xp 00000000 08:01 7 /usr/bin/program\n\
             {code:x}-{:x} r-xp 00000000 00:00 0\n\
             {first:x}-{:x} rw-s 00000000 00:01 9 /memfd:nanoprobe-0123456789abcdef (deleted)\n\
             {second:x}-{:x} rw-s 00000000 00:01 10 /memfd:nanoprobe-123456789abcdef0 (deleted)\n",
            code + bytes,
            first + bytes,
            second + bytes,
        )
        .as_bytes(),
    )
}
