//! Frees memory that is no longer needed: replaced tables of redirects, and detours of unloaded libraries.
//!
//! A program may load and unload a library all day. Each time its patches are placed anew, and new tables replace
//! the old ones. The old memory cannot be used again at once: a thread may be in the middle of a look-up, or in a
//! detour, or come back to one from a signal handler. So when much of the code block is used, all threads are
//! stopped once, and looked at as at the end ([`crate::detach`]). If no thread is in our code, or on its way back
//! to it, all memory that is not current is free. Otherwise this is tried again later.

use std::mem::offset_of;
use std::time::{Duration, Instant};

use nanoprobe_agent::Function as AgentFunction;
use nanoprobe_arena::Structure as _;
use nanoprobe_arena::layout::{Control, TABLE_ROWS, Tables};
use nanoprobe_patch::TargetAddress;

use super::Attachment;
use crate::detach::{self, stacks::Restorer};
use crate::error::SessionError;
use crate::site_table::springboard_sites;
use crate::threads::{self, Take, Traced};

/// Replaced tables may take this much of the code block before their room is given back.
const REPLACED_BYTES_MAX: u64 = 8 << 20;
/// How many rows may be taken before the room is given back.
const ROWS_MAX: u64 = TABLE_ROWS / 2;
/// When this many patches are gone with their libraries, their room is given back.
const GONE_MAX: usize = 1 << 13;
/// How long to wait before the next attempt when a thread was in our code.
const PATIENCE: Duration = Duration::from_millis(20);

/// The tables of redirections that lie in the code block.
#[derive(Debug, Default)]
pub(crate) struct Tabled {
    current: Option<Piece>,
    replaced: Vec<Piece>,
    tried: Option<Instant>,
}

/// A row's tables: redirects and origins, with their bytes.
type Piece = [(TargetAddress, u64); 2];

impl Tabled {
    /// Notes that these tables are now the current ones.
    pub fn publish(&mut self, tables: Piece) {
        self.replaced.extend(self.current.replace(tables));
    }

    fn replaced_bytes(&self) -> u64 {
        self.replaced.iter().flatten().map(|(_, bytes)| bytes).sum()
    }
}

impl Attachment {
    /// Frees the contexts and slots of threads that are gone, when there are few left for new ones.
    ///
    /// # Errors
    /// The arena is damaged.
    pub(crate) fn reuse_threads(&mut self, of_children: u64, take: &mut Take<'_>) -> Result<(), SessionError> {
        if self.regions.is_empty() || self.patches.is_empty() {
            return Ok(());
        }
        let arena = self.arena.as_ref().ok_or(SessionError::NotAttached)?;
        let traced = Traced {
            process: &self.process,
            arena: arena.memory(),
            arena_address: self.addresses.arena,
            layout: &self.layout,
            table: self.addresses.table,
            thread_key: self.parameters.thread_key,
            of_children,
        };
        threads::reuse(&mut self.threads, &traced, take)
    }

    /// Gives back the room of replaced tables and of patches that are gone, if this is much and no thread is in our
    /// code.
    ///
    /// # Errors
    /// The target cannot be stopped or written.
    pub(crate) fn collect(&mut self) -> Result<(), SessionError> {
        let much = self.tables.tabled.replaced_bytes() > REPLACED_BYTES_MAX
            || self.tables.published.taken() > ROWS_MAX
            || self.gone.len() > GONE_MAX;
        let is_time = self.tables.tabled.tried.is_none_or(|tried| tried.elapsed() >= PATIENCE);
        let Some(current) = self.tables.tabled.current.filter(|_| much && is_time) else {
            return Ok(());
        };
        self.tables.tabled.tried = Some(Instant::now());
        // On a busy machine a stop takes long, and a program that finds no heartbeat afterwards does not wait for
        // the tracer.
        let _heartbeat = self.heartbeat();
        // The map shows where stacks end. It is read while the program still runs.
        let map = self.process.map()?;
        let patches = self.patches.iter().chain(&self.retired);
        let springboards: Vec<_> = patches.flat_map(springboard_sites).collect();
        let restorer = self.agent(AgentFunction::Restorer);
        let answer = TargetAddress(self.addresses.arena.0 + offset_of!(Control, library_ack) as u64);
        let process = self.process.clone();
        let mut stopped = process.stop()?;
        let restorer = Restorer::of(process.pid(), restorer.0);
        let code = detach::our_code(&self.regions, &springboards, &[], restorer, self.actions.host.as_ref());
        if detach::is_anyone_inside(&process, &mut stopped, &code, answer, &map)? {
            stopped.release();
            return Ok(());
        }
        // The first row needs no byte, so no byte may select another row.
        let taken = self.tables.published.taken();
        let first = self.tables.published.first();
        let [(redirects, _), (origins, _)] = current;
        let tables = Tables {
            redirects: redirects.0,
            origins: origins.0,
        };
        let tables = (self.tables.published.tables(first), tables.to_bytes().into());
        self.write_code(&[tables])?;
        let bytes = (self.tables.published.byte(first), vec![0; taken as usize].into());
        self.write_code(&[bytes])?;
        stopped.release();
        self.tables.published.begin_again();
        for (address, bytes) in std::mem::take(&mut self.tables.tabled.replaced).into_iter().flatten() {
            self.room.code.release(address, bytes);
        }
        for patch in std::mem::take(&mut self.gone) {
            self.room.near.release(patch.detour, patch.room);
        }
        // The tables still describe the patches that are gone. They would be wrong for new detours in the same place.
        self.tables.are_old = true;
        Ok(())
    }
}
