//! What comes from a session, in its order.

use std::time::Instant;

use nanoprobe_lang::interpret::ClauseFault;
use nanoprobe_lang::options::Options;
use nanoprobe_syscalls::Part;
use nanoprobe_syscalls::capture::{ENTRY, RETURN, SIGNAL};

use super::stamps::Moment;
use super::{STEP, Strace};
use crate::Error;
use crate::console::Console;
use crate::event::{Event, ProbeName};
use crate::sink::{Action, Ended, Loss, Sink, Unplaced, View};

impl Sink for Strace {
    fn refused(&mut self, out: &mut dyn Console, new: &[Unplaced]) -> Result<(), Error> {
        self.text.refused(out, new)
    }

    fn record_begins(&mut self, _: &mut dyn Console, _: &Options, _: &Event<'_>) -> Result<(), Error> {
        self.values.clear();
        Ok(())
    }

    fn action(&mut self, _: &mut dyn Console, view: &mut View<'_>, action: Action<'_>) -> Result<(), Error> {
        self.clock.local = view.local;
        self.values
            .extend(action.recorded.iter().map(|(_, value)| value.clone()));
        Ok(())
    }

    fn record_ends(&mut self, out: &mut dyn Console, options: &Options, event: &Event<'_>) -> Result<(), Error> {
        let (number, thread) = (self.integer(0) as u64, self.integer(1));
        let name = event.probe.function.as_str();
        match (number, Part::of_number(number)) {
            (ENTRY, _) => self.entered(thread, name),
            (RETURN, _) => self.returned(thread, name),
            (SIGNAL, _) => self.handles(thread),
            (_, Some(part)) => self.memory(thread, name, part, options.limits().strsize as usize),
            _ => {}
        }
        self.flush(out, false)
    }

    /// An address that leads nowhere is printed as an address.
    fn fault(&mut self, _: &mut dyn Console, _: u32, _: &ProbeName, _: &ClauseFault) -> Result<(), Error> {
        Ok(())
    }

    /// A call that waits does not hold back others for ever, even if nothing more happens.
    fn rested(&mut self, out: &mut dyn Console) -> Result<(), Error> {
        let now = Instant::now();
        let step = now.duration_since(self.rested).min(STEP);
        self.rested = now;
        let step = i64::try_from(step.as_nanos()).unwrap_or_default();
        self.order.passed(self.order.latest().saturating_add(step));
        self.flush(out, false)
    }

    fn warning(&mut self, out: &mut dyn Console, text: &str) -> Result<(), Error> {
        self.text.warning(out, text)
    }

    fn losses(&mut self, out: &mut dyn Console, losses: &[Loss]) -> Result<(), Error> {
        self.text.losses(out, losses)
    }

    fn exited(&mut self, out: &mut dyn Console, pid: Option<i32>, how: Ended) -> Result<(), Error> {
        match pid {
            Some(pid) => self.process_ends(i64::from(pid), how),
            None => return Ok(()),
        }
        self.flush(out, false)
    }

    /// The end of a process that ends itself has its line already.
    fn child_exited(&mut self, out: &mut dyn Console, pid: i32, how: Ended) -> Result<(), Error> {
        match how {
            Ended::Signal { .. } => self.process_ends(i64::from(pid), how),
            Ended::Status(_) | Ended::Unknown => return Ok(()),
        }
        self.flush(out, false)
    }

    fn ended(&mut self, out: &mut dyn Console) -> Result<(), Error> {
        self.unfinished(None, Moment::now());
        self.flush(out, true)?;
        if self.style.has_summary {
            write!(out, "{}", self.summary.table())?;
        }
        Ok(())
    }

    fn unplaced(&mut self, out: &mut dyn Console, first: &Unplaced) -> Result<(), Error> {
        self.text.unplaced(out, first)
    }

    fn nothing_seen(&mut self, out: &mut dyn Console, text: &str) -> Result<(), Error> {
        self.text.nothing_seen(out, text)
    }
}
