//! The other sessions of a run: before a clause prints or clears aggregations, the values of all processes are taken;
//! after a `clear()` or `trunc()`, minima and maxima begin anew in all of them, before anything else is taken.

use nanoprobe_export::Epoch;
use nanoprobe_session::Attached;

use super::aggregating::Aggregated;
use super::members::Member;

/// The sessions of a run without the one whose records are printed.
#[derive(Default)]
pub(super) struct Others<'o, 'a> {
    first: Option<&'o mut Attached>,
    /// The members before it and after it.
    members: [&'o mut [Member<'a>]; 2],
    /// Whether their values were taken since the records were.
    are_loaded: bool,
}

impl<'o, 'a> Others<'o, 'a> {
    /// For records of the first session, `first` is `None`.
    pub fn new(first: Option<&'o mut Attached>, members: [&'o mut [Member<'a>]; 2]) -> Others<'o, 'a> {
        Others {
            first,
            members,
            are_loaded: false,
        }
    }

    /// Takes the values of all. A record may follow from a call in another process, whose values are there by then. So
    /// they are taken after the records, and once for all of these.
    pub fn load(&mut self, aggregated: &mut Aggregated) -> Result<(), anyhow::Error> {
        if std::mem::replace(&mut self.are_loaded, true) {
            return Ok(());
        }
        if let Some(first) = &mut self.first {
            aggregated.load(first.tracing_mut())?;
        }
        for member in self.members.iter_mut().flat_map(|members| members.iter_mut()) {
            member.load_into(aggregated)?;
        }
        Ok(())
    }

    /// Minima and maxima begin anew. If they did so only after their next reading, an extreme from before the `clear()`
    /// would come back with it.
    pub fn begin_epochs(&mut self, epochs: &[Epoch]) -> Result<(), anyhow::Error> {
        let members = self.members.iter_mut().flat_map(|members| members.iter_mut());
        let members = members.map(|member| &mut member.session);
        for session in self.first.iter_mut().map(|first| &mut **first).chain(members) {
            session.tracing_mut().begin_epochs(epochs)?;
        }
        Ok(())
    }
}
