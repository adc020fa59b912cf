//! Reports other than records: which probes matched, where they were placed, refusals and losses. Each fact is reported
//! once.

use std::time::Duration;

use nanoprobe_export::{Console, Error, Matched, Sink, Unplaced};
use nanoprobe_lang::Source;
use nanoprobe_session::{Known, Losses, Patch, Refused, Tracing};
use nanoprobe_target::Pauses;

use crate::arguments::{Arguments, ProgramText};
use crate::losses::losses;
use crate::output::message;

/// The reports that this run has made already.
pub struct Told<'a> {
    arguments: &'a Arguments,
    sources: &'a [Source],
    announced: bool,
    refused: usize,
    patches: usize,
    losses: Losses,
    has_advised: bool,
}

impl<'a> Told<'a> {
    pub fn new(arguments: &'a Arguments, sources: &'a [Source]) -> Told<'a> {
        Told {
            arguments,
            sources,
            announced: false,
            refused: 0,
            patches: 0,
            losses: Losses::default(),
            has_advised: false,
        }
    }

    /// The reports of a member: its matches are reported together with the other processes'.
    pub fn of_member(arguments: &'a Arguments, sources: &'a [Source]) -> Told<'a> {
        Told {
            announced: true,
            ..Told::new(arguments, sources)
        }
    }

    /// Reports the losses since the last report.
    pub fn losses(&mut self, tracing: &Tracing, sink: &mut dyn Sink, out: &mut dyn Console) -> anyhow::Result<()> {
        let now = tracing.losses()?;
        sink.losses(out, &losses(&self.losses, &now))?;
        self.losses = now;
        self.advice(tracing.known(), sink, out)
    }

    /// Says once what gives names to code that stacks have shown without.
    pub fn advice(&mut self, known: &Known, sink: &mut dyn Sink, out: &mut dyn Console) -> anyhow::Result<()> {
        if !self.has_advised
            && let Some(advice) = known.take_advice()
        {
            self.has_advised = true;
            sink.warning(out, &advice)?;
        }
        Ok(())
    }

    /// Reports what each program matched, once all matches are known.
    pub fn announce(
        &mut self,
        known: &Known,
        patches: &[Patch],
        sink: &mut dyn Sink,
        out: &mut dyn Console,
    ) -> Result<(), Error> {
        self.announce_matches(&[known], sink, out)?;
        self.places(known, patches, sink, out)
    }

    /// Reports how many probes each program matched, once: in a process, or in the leader of a set and its members.
    pub fn announce_matches(
        &mut self,
        known: &[&Known],
        sink: &mut dyn Sink,
        out: &mut dyn Console,
    ) -> Result<(), Error> {
        if !std::mem::replace(&mut self.announced, true) {
            // The texts of the command line come after the libraries, which have no probes.
            let texts = self.sources.iter().enumerate().filter(|(_, source)| !source.is_library);
            for (number, (index, source)) in texts.enumerate() {
                let of_source = u32::try_from(index).unwrap_or(u32::MAX);
                let first = known.first().map_or(0, |first| first.matches(of_source));
                let others = known.iter().skip(1).map(|other| other.matches(of_source));
                // The tracer's own probes are there once.
                let probes = first + others.map(|all| all.saturating_sub(first)).sum::<usize>();
                let (of, text) = match self.arguments.programs.get(number) {
                    Some(ProgramText::Script(_) | ProgramText::Carried { .. }) => ("script", source.name.clone()),
                    _ => ("description", head(&source.text)),
                };
                sink.matched(out, &Matched { of, text, probes })?;
            }
        }
        Ok(())
    }

    /// Reports places that could not be probed; with `-v`, also how each site is patched.
    pub fn places(
        &mut self,
        known: &Known,
        patches: &[Patch],
        sink: &mut dyn Sink,
        out: &mut dyn Console,
    ) -> Result<(), Error> {
        if self.arguments.verbose && self.arguments.format.is_for_people {
            self.patches(known, patches);
        }
        let new = known.refused().iter().skip(self.refused).map(unplaced);
        sink.refused(out, &new.collect::<Vec<_>>())?;
        self.refused = known.refused().len();
        self.patches = patches.len();
        Ok(())
    }

    /// Reports how each new site is patched.
    fn patches(&self, known: &Known, patches: &[Patch]) {
        for patch in patches.iter().skip(self.patches) {
            let form = if patch.takes_return {
                ", return address replaced"
            } else {
                ""
            };
            let why = patch
                .obstacle
                .map_or_else(String::new, |obstacle| format!(" since {obstacle}"));
            for site in &patch.sites {
                message(format_args!(
                    "{site} {}: {}{form}{why}",
                    known.symbolize(site.0),
                    patch.how()
                ));
            }
        }
    }
}

/// A refused place in the words of the output.
pub fn unplaced(refused: &Refused) -> Unplaced {
    Unplaced {
        function: refused.function.clone(),
        site: refused.site.map(|site| site.0),
        reason: refused.reason.to_string(),
        is_early_return: refused.is_early_return(),
    }
}

/// The part of an inline program that dtrace shows: up to its first brace or predicate.
fn head(text: &str) -> String {
    let end = text.find(['{', '/']).unwrap_or(text.len());
    text.get(..end).unwrap_or(text).to_owned()
}

/// How long threads were stopped: the longest stop, and the time in it for which all threads stood still.
pub fn stood(pauses: &Pauses) -> String {
    let (longest, whole) = (milliseconds(pauses.longest()), milliseconds(pauses.whole()));
    format!("stopped {longest:.2} ms (all threads {whole:.2} ms)")
}

/// A duration in milliseconds.
pub fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_head_of_a_program_is_its_description() {
        assert_eq!(
            head("pid$target:a.out:func:entry { @ = count(); }"),
            "pid$target:a.out:func:entry "
        );
        assert_eq!(head("BEGIN"), "BEGIN");
    }
}
