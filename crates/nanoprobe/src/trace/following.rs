//! The rounds of a run that follows executed programs: requests are answered, programs begin and end, and their output
//! joins that of the first process.

use std::time::Duration;

use nanoprobe_session::{Acquired, Attached, Came, Losses, Prepared, Programs, SessionError};
use nanoprobe_target::Process;

use super::executed::Executed;
use super::reporting::{Told, milliseconds, stood};
use super::run::Trace;
use crate::output::{detached, message};

/// How long a round waits while a thread is about to execute, or a program loads its libraries.
const HURRIED: Duration = Duration::from_micros(100);
/// The same when nothing is to be expected, and the first process has ended.
const IDLE: Duration = Duration::from_millis(1);

impl Trace<'_> {
    /// What the first process has done since the last round.
    pub(super) fn round(&mut self, attached: &mut Attached) -> Result<(), anyhow::Error> {
        let is_hurried = self.executed.as_ref().is_some_and(Executed::is_hurried);
        let outputs = if is_hurried || attached.has_ended() {
            std::thread::sleep(if is_hurried { HURRIED } else { IDLE });
            attached.poll()?
        } else {
            attached.step()?
        };
        if attached.known().is_loaded() {
            self.announce(attached.known(), attached.patches())?;
        }
        self.print(attached.tracing_mut(), outputs)?;
        let Some(mut executed) = self.executed.take() else {
            return Ok(());
        };
        let result = self.follow(&mut executed, attached);
        self.executed = Some(executed);
        result
    }

    fn follow(&mut self, executed: &mut Executed, attached: &mut Attached) -> Result<(), anyhow::Error> {
        attached.serve(&mut executed.programs)?;
        for session in &mut executed.sessions {
            // An arena that is damaged is reported below.
            let _ = session.serve(&mut executed.programs);
        }
        // One program in each round: the threads of all processes want to see a living tracer.
        match executed.programs.take() {
            Some(Came::Left(text)) => self.printer.sink().warning(&mut self.out, &text)?,
            Some(Came::Program(acquired)) => self.begin_program(executed, attached, acquired)?,
            None => {}
        }
        let mut index = 0;
        while let Some(session) = executed.sessions.get_mut(index) {
            let polled = session.poll();
            let is_over = polled.is_err() || session.is_finished();
            match polled {
                Ok(outputs) => self.print(session.tracing_mut(), outputs)?,
                Err(error) => message(&error),
            }
            if executed.prints_aggregations {
                self.aggregated.load(session.tracing_mut())?;
            }
            self.exit_status = self.exit_status.or(session.tracing().exit_status());
            if is_over {
                let session = executed.sessions.swap_remove(index);
                self.end_program(executed, session)?;
            } else {
                index += 1;
            }
        }
        let epochs = std::mem::take(&mut self.epochs);
        if !epochs.is_empty() {
            attached.tracing_mut().begin_epochs(&epochs)?;
            for session in &mut executed.sessions {
                session.tracing_mut().begin_epochs(&epochs)?;
            }
        }
        Ok(())
    }

    /// Places the probes in a program that stands before its first instruction, and lets it run.
    fn begin_program(
        &mut self,
        executed: &mut Executed,
        attached: &mut Attached,
        acquired: Acquired,
    ) -> Result<(), anyhow::Error> {
        let Some(process) = acquired.process().cloned() else {
            return Ok(());
        };
        let pid = process.pid();
        let program = process.facts().executable.display().to_string();
        let is_same = |session: &Attached| session.known().process().map(Process::pid) == Some(pid);
        for session in executed
            .sessions
            .iter_mut()
            .chain([attached])
            .filter(|session| is_same(session))
        {
            session.replaced()?;
        }
        let begun = Prepared::new(executed.compiled.clone(), acquired).and_then(Prepared::begin);
        match begun {
            Ok((session, begun)) => {
                self.verbose(format_args!(
                    "process {pid} executes {program}, and is traced, too: attach {:.1} ms, {}, {} sites",
                    milliseconds(begun.took),
                    stood(&begun.pauses),
                    begun.patches
                ));
                executed.sessions.push(session);
            }
            Err(SessionError::Interrupted) => {}
            // It has ended.
            Err(_) if process.try_wait().is_some() => {}
            Err(error) => {
                let text = format!("process {pid} executes {program}, which is not traced: {error}");
                self.printer.sink().warning(&mut self.out, &text)?;
            }
        }
        Ok(())
    }

    /// Takes the last records and the aggregations of a program.
    fn end_program(&mut self, executed: &mut Executed, session: Attached) -> Result<(), anyhow::Error> {
        self.was_placed |= session.has_places();
        executed.note_matches(session.known());
        let (mut ended, gone) = match session.end() {
            Ok(ended) => ended,
            // The other programs are traced further.
            Err(error) => {
                message(&error);
                return Ok(());
            }
        };
        while let Some(outputs) = ended.remaining()? {
            self.print(ended.tracing_mut(), outputs)?;
        }
        self.aggregated.load(ended.tracing_mut())?;
        detached(&gone);
        let tracing = ended.tracing();
        Told::new(self.arguments, self.sources).losses(tracing, self.printer.sink(), &mut self.out)?;
        self.seen.counted(tracing.losses()? != Losses::default());
        Ok(())
    }

    /// Lets all threads go that are about to execute programs, and takes the probes out of the executed programs.
    pub(super) fn end_programs(&mut self) -> Result<(), anyhow::Error> {
        let Some(mut executed) = self.executed.take() else {
            return Ok(());
        };
        executed.programs = Programs::new(0);
        let mut result = Ok(());
        for session in std::mem::take(&mut executed.sessions) {
            let ended = self.end_program(&mut executed, session);
            result = result.and(ended);
        }
        self.executed = Some(executed);
        result
    }
}
