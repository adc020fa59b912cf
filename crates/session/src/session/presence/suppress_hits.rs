//! Calls that the tracer makes in the program are not counted as hits.
//!
//! An IFUNC's resolver is called in a thread of the program's, whose code may have its probes already: the linker's
//! own, when it has just loaded a library. Such calls are not the program's, so they must not fire. While the
//! thread is borrowed, its context says that a handler runs, so that no other handler starts; afterwards its counts
//! are set back.

use core::mem::offset_of;

use nanoprobe_arena::layout::{CONTEXT_SLOTS, Context};
use nanoprobe_arena::{Mapping, Memory};

use crate::drain::context_offset;
use crate::error::SessionError;
use crate::layout::ArenaLayout;

const FIELDS: [usize; 2] = [offset_of!(Context, busy), offset_of!(Context, missed)];

/// The state of a thread's contexts before it was borrowed.
pub(super) struct Unseen {
    thread_keys: [u64; 2],
    /// Bytes of static slots that are in use.
    slot_bytes: u64,
    before: Vec<Before>,
}

struct Before {
    context: u64,
    fields: [u64; FIELDS.len()],
    slots: Vec<u8>,
}

impl Unseen {
    /// Saves the state of a stopped thread that is about to be borrowed. `thread_keys`: its context has one of
    /// these, or it has none.
    ///
    /// # Errors
    /// The arena is damaged.
    pub fn begin(
        memory: &Mapping,
        layout: &ArenaLayout,
        thread_keys: [u64; 2],
        slot_bytes: u64,
    ) -> Result<Unseen, SessionError> {
        let mut unseen = Unseen {
            thread_keys,
            slot_bytes,
            before: Vec::new(),
        };
        for context in unseen.contexts(memory, layout)? {
            let mut slots = vec![0; slot_bytes as usize];
            memory.read(context + CONTEXT_SLOTS, &mut slots)?;
            let mut fields = [0; FIELDS.len()];
            for (value, field) in fields.iter_mut().zip(FIELDS) {
                *value = memory.load_u64(context + field as u64)?;
            }
            memory.store_u64(context + offset_of!(Context, busy) as u64, u64::MAX)?;
            unseen.before.push(Before { context, fields, slots });
        }
        Ok(unseen)
    }

    /// Puts the state back, before the stopped thread goes on by itself. A context that the thread got meanwhile is
    /// set to zero hits.
    ///
    /// # Errors
    /// The arena is damaged.
    pub fn end(self, memory: &Mapping, layout: &ArenaLayout) -> Result<(), SessionError> {
        for context in self.contexts(memory, layout)? {
            let before = self.before.iter().find(|before| before.context == context);
            let fields = before.map_or([0; FIELDS.len()], |before| before.fields);
            for (value, field) in fields.into_iter().zip(FIELDS) {
                memory.store_u64(context + field as u64, value)?;
            }
            match before {
                Some(before) => memory.write(context + CONTEXT_SLOTS, &before.slots)?,
                None => memory.write(context + CONTEXT_SLOTS, &vec![0; self.slot_bytes as usize])?,
            }
        }
        Ok(())
    }

    /// Contexts of an ended thread may have the same key; they are not in use.
    fn contexts(&self, memory: &Mapping, layout: &ArenaLayout) -> Result<Vec<u64>, SessionError> {
        let count = nanoprobe_arena::ControlBlock::open(memory)?.contexts_in_use()?;
        let mut contexts = Vec::new();
        for index in 0..u64::from(count) {
            let context = context_offset(layout, index);
            let key = memory.load_u64(context + offset_of!(Context, thread_key) as u64)?;
            if self.thread_keys.contains(&key) {
                contexts.push(context);
            }
        }
        Ok(contexts)
    }
}
