//! Patches that are turned off while the session goes on, and that forked children have in their text, too.
//!
//! A child has the text that its parent had at the fork. So the target's text changes first, and then that of the
//! children ([`crate::followed`]), until none of them has such a patch: from then on nobody inherits one.

use std::collections::HashSet;

use nanoprobe_patch::TargetAddress;
use nanoprobe_text::Patch;

use super::Armed;
use crate::attachment::Attachment;
use crate::error::SessionError;
use crate::site_table::site_of;

impl Attachment {
    /// Takes patches out of the text, or puts them back in, while the session goes on: no detour is built anew, no
    /// count is lost. Changes the patches that `selected` accepts, and yields how many were changed. Two things are
    /// left alone: a place that another program has changed, and the hooks that keep unwinders from meeting a replaced
    /// return address. Patches that are taken out are noted for the children; those that are put back are not put back
    /// there.
    ///
    /// # Errors
    /// The target cannot be stopped or written.
    pub fn set_armed(&mut self, armed: bool, selected: &mut dyn FnMut(&Patch) -> bool) -> Result<Armed, SessionError> {
        let before = self.off.disarmed.clone();
        let done = self.change_armed(armed, selected)?;
        if armed {
            let disarmed = &self.off.disarmed;
            self.off
                .in_children
                .retain(|site| disarmed.contains(&TargetAddress(site.address)));
        } else {
            self.note_turned_off(&before);
        }
        Ok(done)
    }

    /// Notes patches that the children alone have: the target has ended, or executes another program.
    pub(crate) fn turn_off_in_children(&mut self, selected: &mut dyn FnMut(&Patch) -> bool) -> Armed {
        let before = self.off.disarmed.clone();
        let all = self.inherited();
        let mut chosen: Vec<&Patch> = all.iter().filter(|patch| !patch.stays()).collect();
        chosen.retain(|patch| !before.contains(&patch.built.address) && selected(patch));
        self.keep_together_of(all, false, &mut chosen);
        let addresses: Vec<TargetAddress> = chosen.iter().map(|patch| patch.built.address).collect();
        self.off.disarmed.extend(&addresses);
        self.note_turned_off(&before);
        Armed {
            patches: addresses.len(),
            ..Armed::default()
        }
    }

    /// The patches that children have inherited.
    pub(crate) fn inherited(&self) -> &[Patch] {
        match self.off.left_behind.as_slice() {
            [] => &self.patches,
            left => left,
        }
    }

    /// Notes the patches that have been taken out of the text since, for the children.
    fn note_turned_off(&mut self, before: &HashSet<TargetAddress>) {
        if !self.parameters.follows && !self.parameters.follows_programs {
            return;
        }
        let is_new = |patch: &&Patch| self.is_disarmed(patch) && !before.contains(&patch.built.address);
        // A child may have been forked while an older patch was in the same place. It lies in the same text: patches of
        // libraries that are gone are in neither list.
        let all = self.retired.iter().chain(self.inherited());
        let sites: Vec<_> = all.filter(is_new).map(site_of).collect();
        self.off.in_children.extend(sites);
    }
}
