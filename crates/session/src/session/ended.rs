//! A session whose probes are out of the text: the last records are read, and END fires.

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
    /// Code and data that could not be removed from the target stay in use as long as this value exists.
    pub(super) presence: Option<Presence>,
    pub(super) exited: Option<Exit>,
    /// How many more rounds of records are taken at most.
    pub(super) rounds_left: Option<u64>,
}

impl Ended {
    /// The remaining output, part by part, so that the tracer needs memory for one part only; `None` at the end.
    /// The last part is what END has recorded.
    ///
    /// # Errors
    /// The arena is damaged.
    pub fn remaining(&mut self) -> Result<Option<Vec<Output>>, SessionError> {
        let Some(rounds) = self.rounds_left else {
            return Ok(None);
        };
        let tracing = &mut self.tracing;
        // A process that goes on recording although its probes are gone is not read for ever.
        self.rounds_left = rounds.checked_sub(1);
        let any = self.rounds_left.is_some() && tracing.take_records_until(u64::MAX)?;
        tracing.look_for_code()?;
        if !any {
            self.rounds_left = None;
            if let Some(exit) = self.exited.filter(|_| !tracing.known.is_member()) {
                tracing.outputs.push_back(Output::Exited(exit));
            }
            if !tracing.known.is_member() {
                tracing.fire_all(|place| *place == Place::End, [0; 10])?;
            }
        }
        Ok(Some(tracing.outputs.drain(..).collect()))
    }

    /// How the process has ended, if it has.
    pub fn exited(&self) -> Option<Exit> {
        self.exited
    }

    /// The collected data, and the tracer's knowledge of the process.
    pub fn tracing(&self) -> &Tracing {
        &self.tracing
    }

    /// As `tracing`, for a caller that takes the collected data.
    pub fn tracing_mut(&mut self) -> &mut Tracing {
        &mut self.tracing
    }

    /// The patches.
    pub fn patches(&self) -> &[Patch] {
        let presence = self.presence.as_ref();
        presence.map_or(&[], |presence| &presence.attachment.patches)
    }
}
