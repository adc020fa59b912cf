//! Several formats at once: each of them receives every call.

use nanoprobe_lang::interpret::ClauseFault;
use nanoprobe_lang::options::Options;

use crate::Error;
use crate::console::Console;
use crate::event::{Event, ProbeName};
use crate::sink::{Action, Ended, Loss, Matched, Sink, Unplaced, View};

/// The sinks are called one after another. They share the console: one of them writes to it, and the
/// others write to their own files.
#[derive(Default)]
pub struct Several(pub Vec<Box<dyn Sink>>);

impl Several {
    fn each(&mut self, mut told: impl FnMut(&mut dyn Sink) -> Result<(), Error>) -> Result<(), Error> {
        self.0.iter_mut().try_for_each(|sink| told(&mut **sink))
    }
}

impl Sink for Several {
    fn list_begins(&mut self, out: &mut dyn Console) -> Result<(), Error> {
        self.each(|sink| sink.list_begins(out))
    }

    fn listed(&mut self, out: &mut dyn Console, probe: &ProbeName) -> Result<(), Error> {
        self.each(|sink| sink.listed(out, probe))
    }

    fn listed_arguments(&mut self, out: &mut dyn Console, types: &[String]) -> Result<(), Error> {
        self.each(|sink| sink.listed_arguments(out, types))
    }

    fn matched(&mut self, out: &mut dyn Console, found: &Matched) -> Result<(), Error> {
        self.each(|sink| sink.matched(out, found))
    }

    fn refused(&mut self, out: &mut dyn Console, new: &[Unplaced]) -> Result<(), Error> {
        self.each(|sink| sink.refused(out, new))
    }

    fn record_begins(&mut self, out: &mut dyn Console, options: &Options, event: &Event<'_>) -> Result<(), Error> {
        self.each(|sink| sink.record_begins(out, options, event))
    }

    fn action(&mut self, out: &mut dyn Console, view: &mut View<'_>, action: Action<'_>) -> Result<(), Error> {
        self.each(|sink| sink.action(out, view, action))
    }

    fn record_ends(&mut self, out: &mut dyn Console, options: &Options, event: &Event<'_>) -> Result<(), Error> {
        self.each(|sink| sink.record_ends(out, options, event))
    }

    fn fault(&mut self, out: &mut dyn Console, epid: u32, probe: &ProbeName, fault: &ClauseFault) -> Result<(), Error> {
        self.each(|sink| sink.fault(out, epid, probe, fault))
    }

    fn rested(&mut self, out: &mut dyn Console) -> Result<(), Error> {
        self.each(|sink| sink.rested(out))
    }

    fn warning(&mut self, out: &mut dyn Console, text: &str) -> Result<(), Error> {
        self.each(|sink| sink.warning(out, text))
    }

    fn losses(&mut self, out: &mut dyn Console, losses: &[Loss]) -> Result<(), Error> {
        self.each(|sink| sink.losses(out, losses))
    }

    fn exited(&mut self, out: &mut dyn Console, pid: Option<i32>, how: Ended) -> Result<(), Error> {
        self.each(|sink| sink.exited(out, pid, how))
    }

    fn child_exited(&mut self, out: &mut dyn Console, pid: i32, how: Ended) -> Result<(), Error> {
        self.each(|sink| sink.child_exited(out, pid, how))
    }

    fn interrupted(&mut self, out: &mut dyn Console) -> Result<(), Error> {
        self.each(|sink| sink.interrupted(out))
    }

    fn ended(&mut self, out: &mut dyn Console) -> Result<(), Error> {
        self.each(|sink| sink.ended(out))
    }

    fn aggregations(&mut self, out: &mut dyn Console, view: &mut View<'_>) -> Result<(), Error> {
        self.each(|sink| sink.aggregations(out, view))
    }

    fn unplaced(&mut self, out: &mut dyn Console, first: &Unplaced) -> Result<(), Error> {
        self.each(|sink| sink.unplaced(out, first))
    }

    fn nothing_seen(&mut self, out: &mut dyn Console, text: &str) -> Result<(), Error> {
        self.each(|sink| sink.nothing_seen(out, text))
    }

    fn finish(&mut self, out: &mut dyn Console, status: i32) -> Result<(), Error> {
        self.each(|sink| sink.finish(out, status))
    }
}
