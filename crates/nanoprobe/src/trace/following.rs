//! The rounds of a run that has members: requests are answered, processes come and end, and their output joins that of
//! the first session.

use std::time::{Duration, Instant};

use nanoprobe_export::Error;
use nanoprobe_session::{Acquired, Attached, Came, Compiled, Known, Losses, Output, Prepared, Programs, SessionError};
use nanoprobe_target::{Pauses, Process};

use super::anew::compile_anew;
use super::members::{Member, Members};
use super::nothing::some;
use super::others::Others;
use super::reporting::{Told, milliseconds, stood};
use super::run::Trace;
use super::set::{Ready, name_of};
use crate::cost::limit::Limit;
use crate::output::{detached, ended, message};
use crate::places::OfProcess;
use crate::{interrupt, service};

/// How long a round waits while a thread executes a program: only a look shows that the program stands.
const EXECUTING: Duration = Duration::from_micros(50);
/// The same while a program loads its libraries.
const HURRIED: Duration = Duration::from_micros(100);
/// The same when nothing is to be expected, and the first process has ended.
const IDLE: Duration = Duration::from_millis(1);

/// The same while the first process lives: a thread that is about to execute wakes the tracer.
const WAKEABLE: Duration = Duration::from_millis(2);

/// How long a round of a set waits for each member if the last round has brought nothing: a look at a member takes some
/// 10 us.
const REST: Duration = Duration::from_micros(200);
const REST_MAX: Duration = Duration::from_millis(20);

/// The limit of `-x maxcost` in one process.
fn limit_of(compiled: &Compiled) -> Option<Limit> {
    compiled.options().tracing.max_cost.map(Limit::new)
}

impl<'a> Trace<'a> {
    /// The events of the first process since the last round.
    pub(super) fn round(&mut self, attached: &mut Attached) -> Result<(), anyhow::Error> {
        let outputs = self.rest(attached)?;
        if attached.known().is_loaded() {
            self.announce(attached.known(), attached.patches())?;
        }
        let Some(mut members) = self.members.take() else {
            return self.print(attached.tracing_mut(), outputs, &mut Others::default());
        };
        let mut others = Others::new(None, [&mut members.list, &mut []]);
        let result = self.print(attached.tracing_mut(), outputs, &mut others);
        let result = result.and_then(|()| self.follow(&mut members, attached));
        self.members = Some(members);
        result
    }

    /// Waits a little, and yields what the first process has recorded.
    fn rest(&self, attached: &mut Attached) -> Result<Vec<Output>, SessionError> {
        let Some(members) = &self.members else {
            return attached.step();
        };
        let quiet = match members.are_quiet {
            true => (REST * members.list.len() as u32).min(REST_MAX),
            false => Duration::ZERO,
        };
        let is_hurried = members.are_hurried();
        let _alive = members.keep_alive_while_polled(attached);
        if is_hurried || attached.only_awaits_requests() {
            let limit = match is_hurried {
                true if members.programs.is_waiting() => EXECUTING,
                true => HURRIED,
                false => WAKEABLE + quiet,
            };
            let sessions = members.list.iter().map(|member| &member.session);
            let is_early = Attached::wait_for_requests([&*attached].into_iter().chain(sessions), limit);
            if is_early && !members.early.is_allowed(Instant::now()) {
                std::thread::sleep(HURRIED);
            }
            return attached.poll();
        }
        if attached.has_ended() {
            std::thread::sleep(IDLE);
        }
        let outputs = match attached.has_ended() {
            true => attached.poll()?,
            false => attached.step()?,
        };
        std::thread::sleep(quiet);
        Ok(outputs)
    }

    fn follow(&mut self, members: &mut Members<'a>, attached: &mut Attached) -> Result<(), anyhow::Error> {
        attached.serve(&mut members.programs)?;
        for member in &mut members.list {
            // An arena that is damaged is reported below.
            let _ = member.session.serve(&mut members.programs);
        }
        // One program in each round: the tracer must show the threads of all processes that it is alive.
        match members.programs.take() {
            Some(Came::Left(text)) => self.printer.sink().warning(&mut self.out, &text)?,
            Some(Came::Program(acquired)) => self.begin_program(members, attached, acquired)?,
            None => self.begin_newcomer(members, attached)?,
        }
        members.are_quiet = true;
        for member in &mut members.list {
            // The error is reported below.
            let _ = member.session.look_for_end();
        }
        let _alive = members.keep_alive_while_polled(attached);
        let mut index = 0;
        while let Some((before, rest)) = members.list.split_at_mut_checked(index)
            && let Some((member, after)) = rest.split_first_mut()
        {
            let polled = member.session.poll();
            let is_over = polled.is_err() || member.session.is_finished();
            match polled {
                Ok(outputs) if outputs.is_empty() => {}
                Ok(outputs) => {
                    members.are_quiet = false;
                    if members.prints_aggregations {
                        member.load_into(&mut self.aggregated)?;
                    }
                    let mut others = Others::new(Some(&mut *attached), [before, after]);
                    self.print(member.session.tracing_mut(), outputs, &mut others)?;
                }
                Err(error) => message(&error),
            }
            self.exit_status = self.exit_status.or(member.session.tracing().exit_status());
            if is_over {
                let member = members.list.swap_remove(index);
                let _alive = members.keep_alive(attached);
                self.end_member(members, member, attached)?;
            } else {
                index += 1;
            }
        }
        Ok(())
    }

    /// Attaches to the first processes of a set, after BEGIN.
    pub(super) fn begin_set(&mut self, leader: &mut Attached) -> Result<(), anyhow::Error> {
        let Some(mut members) = self.members.take() else {
            return Ok(());
        };
        let begun = self.begin_first(&mut members, leader);
        self.members = Some(members);
        begun
    }

    fn begin_first(&mut self, members: &mut Members<'a>, leader: &mut Attached) -> Result<(), anyhow::Error> {
        let start = Instant::now();
        let mut pauses = Pauses::default();
        loop {
            // Those that remain are told of.
            if interrupt::requested() || leader.is_finished() {
                break;
            }
            let Some(ready) = members.set.as_mut().and_then(|set| set.ready.pop_front()) else {
                break;
            };
            self.begin_ready(members, leader, ready, &mut pauses)?;
            self.follow(members, leader)?;
            service::alive();
        }
        leader.count_from_now();
        let sites = members.list.iter().map(|member| member.session.patches().len()).sum();
        self.verbose(format_args!("processes that are traced: {}", members.list.len()));
        self.told_which(members);
        self.told_begin(start.elapsed(), &stood(&pauses), sites);
        Ok(())
    }

    /// Says which processes a name or a rule stands for.
    fn told_which(&self, members: &Members<'a>) {
        if members.list.is_empty()
            || interrupt::requested()
            || self.arguments.quiet
            || !self.arguments.format.is_for_people
        {
            return;
        }
        let known = members.list.iter().map(|member| member.session.known());
        let with_pid = known.filter_map(|known| Some((known.process()?.pid(), name_of(known))));
        let names = some(with_pid.map(|(pid, name)| format!("{pid} ({name})")));
        let noun = if members.list.len() == 1 {
            "process"
        } else {
            "processes"
        };
        message(format_args!("tracing {} {noun}: {names}", members.list.len()));
    }

    /// Attaches to a process that has come, if one has.
    fn begin_newcomer(&mut self, members: &mut Members<'a>, leader: &mut Attached) -> Result<(), anyhow::Error> {
        let Some(mut set) = members.set.take() else {
            return Ok(());
        };
        let pid = set.newcomer(&|pid| members.has(pid));
        let ready =
            pid.and_then(|pid| set.prepare_newcomer(self.arguments, self.sources, pid, leader.known().compiled()));
        members.set = Some(set);
        match ready {
            Some(ready) => self.begin_ready(members, leader, ready, &mut Pauses::default()),
            None => Ok(()),
        }
    }

    /// Places the probes in a process of a set.
    fn begin_ready(
        &mut self,
        members: &mut Members<'a>,
        leader: &mut Attached,
        ready: Ready,
        pauses: &mut Pauses,
    ) -> Result<(), anyhow::Error> {
        let root = ready.root();
        let Ready {
            pid, prepared, traced, ..
        } = ready;
        let name = name_of(prepared.known());
        // Made before the first hit: the first hits must not count for a shorter time than they took.
        let limit = limit_of(&root.compiled);
        let _alive = members.keep_alive(leader);
        match prepared.begin_after(leader) {
            Ok((session, begun)) => {
                self.verbose(format_args!(
                    "process {pid} ({name}) is traced: attach {:.1} ms, {}, {} sites",
                    milliseconds(begun.took),
                    stood(&begun.pauses),
                    begun.patches
                ));
                pauses.add(&begun.pauses);
                let mut member = self.member(session, limit);
                member._traced = Some(traced);
                self.places_of(&mut member)?;
                members.compiled.insert(pid, root);
                members.list.push(member);
                if let Some(set) = &mut members.set {
                    set.began += 1;
                }
            }
            Err(error) => {
                if let Some(set) = &mut members.set {
                    set.failed(pid, &error);
                }
            }
        }
        Ok(())
    }

    fn member(&self, session: Attached, limit: Option<Limit>) -> Member<'a> {
        Member {
            session,
            told: Told::of_member(self.arguments, self.sources),
            limit,
            numbers: OfProcess::new(),
            _traced: None,
        }
    }

    /// Reports how the probes of a member are placed.
    fn places_of(&mut self, member: &mut Member<'a>) -> Result<(), Error> {
        let (known, patches) = (member.session.known(), member.session.patches());
        member.told.places(known, patches, self.printer.sink(), &mut self.out)
    }

    /// Places the probes in a program that stands before its first instruction, and lets it run.
    fn begin_program(
        &mut self,
        members: &mut Members<'a>,
        attached: &mut Attached,
        acquired: Acquired,
    ) -> Result<(), anyhow::Error> {
        let (Some(process), Some(root)) = (acquired.process().cloned(), acquired.root()) else {
            return Ok(());
        };
        let pid = process.pid();
        let program = process.facts().executable.display().to_string();
        let is_same = |session: &Attached| session.known().process().map(Process::pid) == Some(pid);
        let sessions = members.list.iter_mut().map(|member| &mut member.session);
        for session in sessions.chain([&mut *attached]).filter(|session| is_same(session)) {
            session.replaced()?;
        }
        let Some(root) = members.compiled.get(&root) else {
            return Ok(());
        };
        let _alive = members.keep_alive(attached);
        let anew = compile_anew(self.arguments, self.sources, &acquired, root);
        let ((compiled, traced), acquired) = match anew {
            Ok(anew) => (anew, acquired),
            // What it executes in its turn may be meant.
            Err(error) => {
                let anew = (root.compiled.clone(), None);
                self.left_alone(members, &format!("process {pid} executes {program}"), &error)?;
                (anew, acquired.without_matches())
            }
        };
        let limit = limit_of(&compiled);
        let begun = Prepared::new(compiled, acquired).and_then(|prepared| prepared.begin_after(attached));
        match begun {
            Ok((session, begun)) => {
                self.verbose(format_args!(
                    "process {pid} executes {program}, and is traced, too: attach {:.1} ms, {}, {} sites",
                    milliseconds(begun.took),
                    stood(&begun.pauses),
                    begun.patches
                ));
                self.aggregated.begin_merging(attached.known());
                let mut member = self.member(session, limit);
                member._traced = traced;
                members.list.push(member);
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

    /// Reports that the program is not good for a file. By default, without `-x follow`, this is told once: what a
    /// script executes is mostly other software than its first program.
    fn left_alone(&mut self, members: &mut Members<'a>, what: &str, why: &str) -> Result<(), anyhow::Error> {
        let is_told = std::mem::replace(&mut members.has_left, true);
        let is_default = !self.printer.options().tracing.follow_is_given;
        if is_told && is_default {
            self.verbose(format_args!("{what}, which is not traced: {why}"));
            return Ok(());
        }
        let further = if is_default {
            " (others like it are not told)"
        } else {
            ""
        };
        let text = format!("{what}, which is not traced: {why}{further}");
        self.printer.sink().warning(&mut self.out, &text)?;
        Ok(())
    }

    /// Takes the last records and the aggregations of a member.
    fn end_member(
        &mut self,
        members: &mut Members<'a>,
        member: Member<'a>,
        first: &mut Attached,
    ) -> Result<(), anyhow::Error> {
        let Member {
            session,
            mut told,
            mut limit,
            mut numbers,
            _traced,
        } = member;
        self.was_placed |= session.has_places();
        members.note_matches(session.known());
        self.seen.note(session.known());
        let root = session.known().root();
        let (mut ended, gone) = match session.end() {
            Ok(ended) => ended,
            // The tracing of the other processes continues.
            Err(error) => {
                message(&error);
                return Ok(());
            }
        };
        while let Some(outputs) = ended.remaining()? {
            if members.prints_aggregations {
                self.aggregated
                    .load_from(ended.tracing_mut(), limit.as_mut(), &mut numbers)?;
            }
            let mut others = Others::new(Some(&mut *first), [&mut members.list, &mut []]);
            self.print(ended.tracing_mut(), outputs, &mut others)?;
        }
        self.aggregated
            .load_from(ended.tracing_mut(), limit.as_mut(), &mut numbers)?;
        detached(&gone);
        told.losses(ended.tracing(), self.printer.sink(), &mut self.out)?;
        self.seen.counted(ended.tracing().losses()? != Losses::default());
        self.told_end(&ended)?;
        drop(ended);
        members.forget(root);
        members.have_ended = true;
        Ok(())
    }

    /// Says that a process of a set is traced no more, or how another one has ended.
    fn told_end(&mut self, member: &nanoprobe_session::Ended) -> Result<(), anyhow::Error> {
        let known = member.tracing().known();
        let pid = known.process().map(Process::pid);
        if !self.is_set {
            if let (Some(how), Some(pid)) = (member.exited(), pid) {
                self.printer.sink().child_exited(&mut self.out, pid, ended(how))?;
            }
            return Ok(());
        }
        match (member.exited().map(ended), pid) {
            (Some(how), pid) if !self.arguments.format.is_for_people => {
                self.printer.sink().exited(&mut self.out, pid, how)?;
            }
            (Some(_), Some(pid)) => self.verbose(format_args!("process {pid} ({}) has ended", name_of(known))),
            (None, Some(pid)) => self.verbose(format_args!("process {pid} ({}) is restored", name_of(known))),
            (_, None) => {}
        }
        Ok(())
    }

    /// Reports what members have lost.
    pub(super) fn losses_of_members(&mut self) -> Result<(), anyhow::Error> {
        for member in self.members.iter_mut().flat_map(|members| &mut members.list) {
            let tracing = member.session.tracing();
            member.told.losses(tracing, self.printer.sink(), &mut self.out)?;
        }
        Ok(())
    }

    /// Lets all threads go that are about to execute programs, and takes the probes out of the members.
    pub(super) fn end_members(&mut self, first: &mut Attached) -> Result<(), anyhow::Error> {
        let Some(mut members) = self.members.take() else {
            return Ok(());
        };
        members.programs = Programs::default();
        let mut result = Ok(());
        for member in std::mem::take(&mut members.list) {
            let ended = self.end_member(&mut members, member, first);
            result = result.and(ended);
        }
        self.members = Some(members);
        result
    }

    /// Whether descriptions without a match are told for all programs together: where several were traced, or were to
    /// be.
    pub(super) fn tells_unmatched_of_all(&self) -> bool {
        let tracing = &self.printer.options().tracing;
        self.aggregated.is_of_several() || tracing.follow_is_given && tracing.follow.programs()
    }

    /// Reports the members' results at the end of the run. Yields the least exit status. `first`: the process, if this
    /// is no set.
    pub(super) fn finish_members(&mut self, first: &Known) -> Result<i32, anyhow::Error> {
        let Some(mut members) = self.members.take() else {
            return Ok(0);
        };
        let (read, reused) = first.compiled().file_counts();
        self.verbose(format_args!(
            "mapped files: {read} read, {reused} known from another process"
        ));
        if !self.is_set {
            members.note_matches(first);
        }
        let are_told = self.tells_unmatched_of_all();
        let unmatched = are_told.then(|| members.unmatched(self.program));
        for description in unmatched.into_iter().flatten() {
            message(format_args!("{description} has matched no probe in any program"));
        }
        if members.has_own_variables {
            let text = "global variables are each executed program's own: END has those of the first program \
                        (aggregations are common to all)";
            self.printer.sink().warning(&mut self.out, text)?;
        }
        let Some(set) = members.set.as_ref().filter(|_| !interrupt::requested()) else {
            return Ok(0);
        };
        if set.began == 0 && self.exit_status.is_none() {
            message("none of the processes was traced");
            return Ok(1);
        }
        match members.unplaced.as_ref().filter(|_| !self.was_placed) {
            Some(first) => {
                self.printer.sink().unplaced(&mut self.out, first)?;
                Ok(1)
            }
            None => Ok(0),
        }
    }
}
