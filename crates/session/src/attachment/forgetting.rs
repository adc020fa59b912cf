//! Patches whose text is gone: of a library that was unloaded, or of a program that executes another one.

use std::ops::Range;

use nanoprobe_text::Patch;

use super::Attachment;
use crate::semaphores;

impl Attachment {
    /// Forgets the patches in this range of addresses, where the text is no longer mapped.
    pub fn forget(&mut self, range: &Range<u64>) {
        let gone = |patch: &mut Patch| range.contains(&patch.built.address.0);
        let before = self.gone.len();
        self.gone.extend(self.patches.extract_if(.., gone));
        self.gone.extend(self.retired.extract_if(.., gone));
        self.tables.are_old |= self.gone.len() > before;
        self.off.disarmed.retain(|address| !range.contains(&address.0));
        // Another library may have its own code there, in children that are forked from now on.
        self.off.in_children.retain(|site| !range.contains(&site.address));
        // A damaged arena is reported by the code that reads it.
        let _ = self.memory().and_then(|arena| semaphores::forget(arena, range));
    }

    /// Forgets all patches and mappings, because the whole address space is gone.
    pub fn leave_behind(&mut self) {
        self.process.set_scratch(None);
        self.regions.clear();
        self.off.left_behind.append(&mut self.patches);
        self.gone.append(&mut self.retired);
        self.off.disarmed.clear();
        self.parameters.reads_memory = false;
    }
}
