//! The agent's image in this process: its signal handlers redirect, emulate and step as they do in a target.
//!
//! The agent's thread table is not the one in which detours look for contexts ([`crate::stubs`]). So
//! a thread that the agent has noted for a step is still unknown to the detours.

use std::mem::{offset_of, size_of};

use nanoprobe_agent::{Function, ImageHeader, image_with, redirect_table};
use nanoprobe_arena::Structure as _;
use nanoprobe_arena::layout::{
    Control, KEY_FSBASE, MAGIC, Step, TABLE_BYTES, TABLE_MAGIC, TABLE_SLOTS, TABLE_STEPS, Tables,
};

use crate::memory::{map_anywhere, read_word, write};

/// Room for the redirects of a patching, and for the only row of tables after it.
const REDIRECTS_BYTES: usize = 1 << 16;

/// The addresses of the image and its tables.
#[derive(Clone, Copy)]
pub struct Agent {
    image: u64,
    table: u64,
    redirects: u64,
}

impl Agent {
    /// Maps the agent's image, which is never unmapped.
    pub fn map() -> Agent {
        let (table, redirects) = (map_anywhere(TABLE_BYTES), map_anywhere(REDIRECTS_BYTES + 4096));
        let row = redirects + REDIRECTS_BYTES as u64;
        let tables = Tables {
            redirects,
            origins: redirects,
        };
        write(row, &tables.to_bytes());
        write(table + TABLE_MAGIC as u64, &MAGIC.to_le_bytes());
        let bytes = image_with(ImageHeader {
            control: map_anywhere(size_of::<Control>()),
            table,
            tables: row,
            thread_key_mode: KEY_FSBASE,
            // The agent makes no system calls if it has nothing to pass to the program; and then the executor ends the
            // run itself.
            allow_syscalls: true,
            ..ImageHeader::default()
        });
        let image = map_anywhere(bytes.len());
        write(image, &bytes);
        Agent {
            image,
            table,
            redirects,
        }
    }

    /// Sets the destinations of traps, which are ascending.
    pub fn redirect(&self, redirects: &[[u64; 2]]) {
        let bytes = redirect_table(redirects.iter().map(|[from, to]| (*from, *to)));
        assert!(bytes.len() <= REDIRECTS_BYTES, "{} redirects", redirects.len());
        write(self.redirects, &bytes);
    }

    /// The handler of SIGTRAP and SIGILL.
    pub fn on_trap(&self) -> u64 {
        self.image + u64::from(Function::OnTrap.offset())
    }

    /// The handler of faults.
    pub fn on_fault(&self) -> u64 {
        self.image + u64::from(Function::OnFault.offset())
    }

    /// Whether an address lies in the agent's code.
    pub fn is_inside(&self, address: u64) -> bool {
        address.wrapping_sub(self.image) < nanoprobe_agent::IMAGE.len() as u64
    }

    /// The address of the thread's `struct np_step`, while it steps.
    pub fn step(&self, thread: u64) -> Option<u64> {
        (0..TABLE_SLOTS as u64)
            .find(|slot| thread != 0 && read_word(self.table + slot * 16) == thread)
            .map(|slot| self.table + (TABLE_STEPS + slot as usize * size_of::<Step>()) as u64)
            .filter(|step| read_word(step + offset_of!(Step, emulation) as u64) != 0)
    }

    /// The effects of `np_cancel_step`, except that it does not clear the trap flag or restore the mask.
    pub fn cancel(&self, step: u64) {
        write(step + offset_of!(Step, emulation) as u64, &[0; 8]);
    }
}
