//! A session whose probes are out of the text: what they had recorded is still to be taken, and END fires.

use nanoprobe_target::Exit;
use nanoprobe_text::Patch;

use super::output::Output;
use super::presence::Presence;
use super::tracing::Tracing;
use crate::error::SessionError;
use crate::probes::Place;

/// See the module's description.
pub struct Ended {
    pub(super) tracing: Tracing,
    /// What could not be taken back is in use as long as this lives.
    pub(super) presence: Option<Presence>,
    pub(super) exited: Option<Exit>,
    /// How many more rounds of records are taken at most.
    pub(super) rounds_left: Option<u64>,
}

impl Ended {
    /// What is still to be told, part by part, so that the tracer's memory holds
    /// one part; `None` when that was all. The last part is what END has recorded.
    ///
    /// # Errors
    /// The arena is damaged.
    pub fn remaining(&mut self) -> Result<Option<Vec<Output>>, SessionError> {
        let Some(rounds) = self.rounds_left else {
            return Ok(None);
        };
        let tracing = &mut self.tracing;
        // A process that records on, though its probes are gone, is not listened to for ever.
        self.rounds_left = rounds.checked_sub(1);
        let any = self.rounds_left.is_some() && tracing.take_records_until(u64::MAX)?;
        if !any {
            self.rounds_left = None;
            if let Some(exit) = self.exited {
                tracing.outputs.push_back(Output::Exited(exit));
            }
            tracing.fire_all(|place| *place == Place::End, [0; 10])?;
        }
        Ok(Some(tracing.outputs.drain(..).collect()))
    }

    /// What was collected, and what is known of the process.
    pub fn tracing(&self) -> &Tracing {
        &self.tracing
    }

    /// The same, to take from it.
    pub fn tracing_mut(&mut self) -> &mut Tracing {
        &mut self.tracing
    }

    /// What was patched, and how.
    pub fn patches(&self) -> &[Patch] {
        let presence = self.presence.as_ref();
        presence.map_or(&[], |presence| &presence.attachment.patches)
    }
}
