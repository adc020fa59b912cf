//! Events while tracing: records, faults, timers, the clauses that fire in the tracer.

use nanoprobe_arena::layout::ErrorRecord;
use nanoprobe_arena::{Memory as _, Record, Structure as _};
use nanoprobe_lang::interpret::{ClauseFault, Fault, FaultKind, run_clause};
use nanoprobe_lang::layout::RECORD_HEADER_BYTES;
use nanoprobe_target::Process;

use super::Tracing;
use crate::error::SessionError;
use crate::interpreter_world::TracerWorld;
use crate::layout::SPECULATIONS_OFFSET;
use crate::probes::Place;
use crate::sampled::SampledThread;
use crate::session::elsewhere::Sighted;
use crate::session::output::Output;
use crate::tracer_state::Elsewhere;
use crate::{clock, drain};

impl Tracing {
    /// The records up to now.
    pub(in crate::session) fn take_records(&mut self) -> Result<(), SessionError> {
        self.take_records_until(clock::tsc()).map(drop)
    }

    /// One round of records; yields whether there was any.
    pub(in crate::session) fn take_records_until(&mut self, horizon: u64) -> Result<bool, SessionError> {
        let Some((memory, shared)) = self.arena.shared() else {
            return Ok(false);
        };
        let layout = &self.known.compiled.layout;
        let records = self.consumer.round(memory, layout, shared.ring_policy, horizon)?;
        let any = !records.is_empty();
        for record in records {
            let (epid, failed) = drain::enabling_of(&record);
            let is_behind = self.handlers_stopped.is_some_and(|stopped| stopped.is_before(&record));
            if is_behind || self.known.enablings.get(epid).is_none() {
                continue;
            }
            if failed {
                let Some(error) = ErrorRecord::from_bytes(&record.payload) else {
                    continue;
                };
                let fault = Fault {
                    kind: FaultKind::from_code(error.fault),
                    value: error.value,
                };
                self.note_fault(
                    epid,
                    ClauseFault {
                        fault,
                        action: error.action,
                    },
                )?;
            } else {
                let time = record.tsc;
                self.recorded(output(record, epid), time)?;
            }
        }
        Ok(any)
    }

    /// Hands a record to the user, now or when its speculation is committed.
    fn recorded(&mut self, output: Output, time: u64) -> Result<(), SessionError> {
        let Output::Record { epid, ref bytes, .. } = output else {
            return Ok(());
        };
        let Some((_, enabling, layout)) = self.known.enabling(epid) else {
            return Ok(());
        };
        let Some(clause) = self.known.program().clauses.get(enabling.clause) else {
            return Ok(());
        };
        if !nanoprobe_export::is_speculative(clause) {
            self.outputs.push_back(output);
            return Ok(());
        }
        let record = bytes.clone();
        let taken = self.speculations.take(clause, layout, &record, time, output);
        self.outputs.extend(taken.print);
        for id in taken.freed {
            let index = u64::try_from(id - 1)
                .ok()
                .filter(|index| *index < self.known.compiled.layout.speculations);
            if let Some(index) = index {
                self.memory().store_u64(SPECULATIONS_OFFSET + 8 * index, 0)?;
            }
        }
        Ok(())
    }

    pub(in crate::session) fn note_fault(&mut self, epid: u32, fault: ClauseFault) -> Result<(), SessionError> {
        let arguments = [
            0,
            i64::from(epid),
            i64::from(fault.action),
            -1,
            i64::from(fault.fault.kind.dtrace_code()),
            fault.fault.value as i64,
            0,
            0,
            0,
            0,
        ];
        let known = &self.known;
        let enabling = known.enabling(epid);
        let is_error_clause = enabling.is_some_and(|(probe, ..)| probe.place == Place::Error);
        let has_error_clause = known.enablings().any(|enabling| {
            let probe = known.probe(enabling.probe);
            probe.is_some_and(|probe| probe.place == Place::Error)
        });
        if is_error_clause {
            // As in DTrace, a fault in an ERROR clause is only counted.
            self.tracer.errors_in_error += 1;
            return Ok(());
        }
        self.outputs.push_back(Output::Fault { epid, fault });
        if !has_error_clause {
            return Ok(());
        }
        self.fire_all(|place| *place == Place::Error, arguments)
    }

    pub(in crate::session) fn fire_all(
        &mut self,
        at: impl Fn(&Place) -> bool,
        arguments: [i64; 10],
    ) -> Result<(), SessionError> {
        for index in 0..self.known.enablings.list().len() {
            let enabling = self.known.enablings.list().get(index);
            let fires = enabling
                .and_then(|enabling| self.known.probe(enabling.probe))
                .is_some_and(|probe| at(&probe.place));
            if fires {
                self.fire(index, arguments, None)?;
            }
        }
        Ok(())
    }

    /// Runs one clause in the tracer. `thread`: the thread of the target that it fires for.
    pub(in crate::session) fn fire(
        &mut self,
        index: usize,
        arguments: [i64; 10],
        thread: Option<SampledThread<'_>>,
    ) -> Result<(), SessionError> {
        self.fire_for(index, arguments, thread, None)
    }

    /// As `fire`. `foreign`: the thread is one of a process that has no session.
    pub(in crate::session) fn fire_for(
        &mut self,
        index: usize,
        arguments: [i64; 10],
        thread: Option<SampledThread<'_>>,
        foreign: Option<&Sighted<'_>>,
    ) -> Result<(), SessionError> {
        let known = &self.known;
        let compiled = &known.compiled;
        let Some(enabling) = known.enablings.list().get(index) else {
            return Ok(());
        };
        let (epid, clause) = (enabling.epid, enabling.clause);
        // After an exit() only END fires, and ERROR for what failed before it or in END.
        let place = known.probe(enabling.probe).map(|probe| &probe.place);
        let is_end = place == Some(&Place::End);
        if self.exit_status.is_some() && !is_end && place != Some(&Place::Error) {
            return Ok(());
        }
        let (Some(probe), Some(clause)) = (known.probe(enabling.probe), compiled.program.clauses.get(clause)) else {
            return Ok(());
        };
        let mut world = TracerWorld {
            memory: self.arena.memory(),
            layout: &compiled.layout,
            program: &compiled.program,
            storage: &compiled.storage,
            limits: compiled.limits,
            aggregation_bytes: compiled.options.recording.aggregation_bytes,
            speculation_bytes: compiled.options.recording.speculation_bytes,
            state: &mut self.tracer,
            arena: self.arena.shared.map(|shared| shared.address),
            target: known.process().map(Process::memory),
            target_pid: known.process().map_or(0, |process| i64::from(process.pid())),
            provider: &probe.provider,
            name: &probe.name(),
            probe_id: probe.id,
            epid,
            arguments,
            timestamp: thread.map_or_else(clock::monotonic_ns, |thread| thread.sample.time_ns),
            thread,
            elsewhere: foreign.map(|foreign| foreign as &dyn Elsewhere),
        };
        match run_clause(clause, &compiled.program, compiled.limits, &mut world) {
            Ok(outcome) => {
                // A record that would not fit into DTrace's buffer is lost here, too.
                const EPID_BYTES: u64 = 8;
                let room = compiled.options.recording.buffer_bytes;
                let fits = |payload: &Vec<u8>| EPID_BYTES + payload.len() as u64 <= room;
                if outcome.payload.as_ref().is_some_and(|payload| !fits(payload)) {
                    self.tracer.drops += 1;
                } else if let Some(payload) = outcome.payload {
                    let mut bytes = vec![0; RECORD_HEADER_BYTES as usize];
                    bytes.extend_from_slice(&payload);
                    let output = Output::Record {
                        epid,
                        cpu: thread.map_or_else(|| self.tracer.processor(), |thread| thread.sample.processor),
                        thread: thread.map_or_else(std::process::id, |thread| thread.tid),
                        bytes,
                    };
                    self.recorded(output, clock::tsc())?;
                }
                // The status that the tracer's own clauses give is the last, and counts.
                if let Some(status) = outcome.exit {
                    let was_running = self.exit_status.replace(status).is_none();
                    if was_running && !is_end {
                        self.stop_handlers()?;
                    }
                }
                Ok(())
            }
            Err(fault) => self.note_fault(epid, fault),
        }
    }
}

fn output(record: Record, epid: u32) -> Output {
    let mut bytes = vec![0; RECORD_HEADER_BYTES as usize];
    bytes.extend_from_slice(&record.payload);
    Output::Record {
        epid,
        cpu: record.cpu,
        thread: record.tid,
        bytes,
    }
}
