//! A session whose probes fire.

mod running;
mod sites;

use nanoprobe_target::Exit;
use nanoprobe_text::Patch;

use super::known::Known;
use super::presence::Presence;
use super::presence::placing::plan;
use super::timers::Timers;
use super::tracing::{Arena, Tracing};
use crate::arming::Armed;
use crate::error::SessionError;
use crate::followed::Followed;
use crate::heartbeat::Heartbeat;
use crate::placement::Changes;
use crate::probes::Place;
use crate::programs::Requests;

/// See the module's description.
pub struct Attached {
    tracing: Tracing,
    /// The session's presence in the target; `None` if the program traces no process.
    presence: Option<Presence>,
    timers: Timers,
    /// The target's children, where they are followed.
    followed: Option<Followed>,
    /// The programs that it and its children execute, where they are followed.
    requests: Option<Requests>,
    exited: Option<Exit>,
    /// The process executes another program, which has a session of its own.
    is_replaced: bool,
    /// With the policy `fill`: there was no room for a record.
    filled: bool,
}

impl Attached {
    /// Fires BEGIN of a program that traces no process.
    pub(super) fn without_process(known: Known, warnings: Vec<String>) -> Result<Attached, SessionError> {
        let arena = Arena::private(known.compiled.layout.bytes)?;
        let mut tracing = Tracing::new(known, arena, warnings);
        let mut timers = Timers::default();
        tracing.initialise_variables(None)?;
        tracing.fire_all(|place| *place == Place::Begin, [0; 10])?;
        timers.start(&mut tracing);
        Ok(Attached {
            tracing,
            presence: None,
            timers,
            followed: None,
            requests: None,
            exited: None,
            is_replaced: false,
            filled: false,
        })
    }

    /// A session whose probes are placed.
    pub(super) fn to(tracing: Tracing, presence: Presence, timers: Timers) -> Attached {
        let followed = Followed::of(&presence.attachment, &tracing.known.compiled.searches);
        let requests = Requests::of(&presence.attachment, tracing.known.role);
        Attached {
            tracing,
            presence: Some(presence),
            timers,
            followed,
            requests,
            exited: None,
            is_replaced: false,
            filled: false,
        }
    }

    /// Keeps the heartbeats of these sessions going until the result is dropped. Meanwhile the tracer works on another
    /// process, maybe for seconds, and looks at none of these.
    pub fn keep_alive<'s>(sessions: impl IntoIterator<Item = &'s Attached>) -> Heartbeat {
        let presences = sessions.into_iter().filter_map(|session| session.presence.as_ref());
        Heartbeat::start(
            presences
                .filter_map(|presence| presence.attachment.arena.clone())
                .collect(),
        )
    }

    /// The tracer's knowledge of the process.
    pub fn known(&self) -> &Known {
        &self.tracing.known
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

    /// The patches of the target, or of the children that it has left when it executed another program.
    fn inherited(&self) -> &[Patch] {
        let presence = self.presence.as_ref();
        presence.map_or(&[], |presence| presence.attachment.inherited())
    }

    /// Takes patches out of the text (`armed` is false) or puts them back, while the session goes on. It changes
    /// those that `selected` accepts (see [`Attached::patches`]). Their counts and detours stay, and the program is
    /// not stopped. Patches that are taken out leave followed children, too. The result says how many patches changed.
    ///
    /// # Errors
    /// There is no target, or it cannot be written.
    pub fn set_armed(&mut self, armed: bool, selected: &mut dyn FnMut(&Patch) -> bool) -> Result<Armed, SessionError> {
        let presence = self.presence.as_mut().ok_or(SessionError::NotAttached)?;
        let changed = match self.exited {
            Some(_) if !armed => presence.attachment.turn_off_in_children(selected),
            _ => presence.attachment.set_armed(armed, selected)?,
        };
        self.turn_off_in_children();
        Ok(changed)
    }

    /// Takes patches that are off in the target out of its children.
    fn turn_off_in_children(&mut self) {
        if let (Some(followed), Some(presence)) = (&mut self.followed, &mut self.presence) {
            let messages = followed.turn_off(&mut presence.attachment, self.exited.is_none());
            messages.into_iter().for_each(|text| self.tracing.warn(text));
        }
    }

    pub(super) fn plan(&self) -> Result<Changes, SessionError> {
        let presence = self.presence.as_ref().ok_or(SessionError::NotAttached)?;
        plan(self.known(), &presence.placed)
    }
}
