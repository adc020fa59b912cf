//! A session among other tracers of its target: see [`crate::others`].

use std::collections::HashSet;
use std::mem::offset_of;

use nanoprobe_agent::Function as AgentFunction;
use nanoprobe_arena::Memory as _;
use nanoprobe_arena::layout::{Control, Site};
use nanoprobe_text::Patch;

use super::Attachment;
use crate::detach::remains::Own;
use crate::error::SessionError;
use crate::others::{Asked, Host, Others};
use crate::signals::guests;
use crate::site_table::{site_of, springboard_sites};

impl Attachment {
    /// The sites that the session has in the target, as the arena's table has them.
    pub(crate) fn own_sites(&self) -> Vec<Site> {
        let patches = self.patches.iter().chain(&self.retired);
        patches
            .flat_map(|patch| springboard_sites(patch).chain([site_of(patch)]))
            .collect()
    }

    /// What the session has in the target; `sites`: [`Attachment::own_sites`], if they are needed.
    pub(crate) fn own<'a>(&'a self, sites: &'a [Site]) -> Own<'a> {
        // A damaged arena only changes which of several tracers takes a trap away.
        let began = self
            .memory()
            .ok()
            .and_then(|memory| memory.load_u64(offset_of!(Control, clock_ns) as u64).ok());
        Own {
            arena: self.addresses.arena.0,
            began_ns: began.unwrap_or(0),
            regions: &self.regions,
            sites,
        }
    }

    /// Looks for other tracers. Before the first patch, an agent of theirs that handles the process's signals becomes
    /// the host of ours.
    ///
    /// # Errors
    /// Those of [`Others::of`].
    pub(crate) fn find_others(&mut self) -> Result<Others, SessionError> {
        let others = Others::of(&self.process, Some(self.addresses.arena))?;
        if !self.tables.has_image {
            self.actions.host = others.host(self.process.memory());
            let host = self.actions.host.map_or(0, |host| host.arena);
            self.memory()?.store_u64(offset_of!(Control, host) as u64, host)?;
        }
        Ok(others)
    }

    /// In which order the agents of the process are asked when a thread traps.
    pub(crate) fn asked(&self) -> Asked {
        let memory = self.process.memory();
        match &self.actions.host {
            Some(host) => guests::asked(memory, host, self.agent(AgentFunction::OnSignalOfHost)),
            // A host asks all of its guests.
            None => Asked {
                before: guests::guests_of(memory, &self.as_host()),
                after: Vec::new(),
            },
        }
    }

    fn as_host(&self) -> Host {
        Host {
            arena: self.addresses.arena.0,
            table: self.addresses.table.0,
            image: self.addresses.code.0,
        }
    }

    /// Leaves out patches on which those of other tracers rest.
    pub(crate) fn leave_covered(&self, chosen: &mut Vec<&Patch>) -> Result<(), SessionError> {
        let others = Others::of(&self.process, Some(self.addresses.arena))?;
        if others.are_none() {
            return Ok(());
        }
        let own = self.own(&[]);
        let mut free: Vec<Site> = chosen.iter().map(|patch| site_of(patch)).collect();
        others.keep_covered(&own, &mut free);
        let free: HashSet<u64> = free.iter().map(|site| site.address).collect();
        chosen.retain(|patch| free.contains(&patch.built.address.0));
        Ok(())
    }
}
