//! What is told beside the records: what was matched, where it was placed, what was refused or lost.

use std::time::Duration;

use nanoprobe_export::Json;
use nanoprobe_session::Session;
use nanoprobe_target::{Exit, Pauses};

use super::Trace;
use crate::arguments::ProgramText;
use crate::output::{losses, message};

impl Trace<'_> {
    /// What was lost since the last time.
    pub fn tell_losses(&mut self, session: &Session) -> Result<(), anyhow::Error> {
        let now = session.losses()?;
        for loss in losses(&self.losses, &now) {
            if self.arguments.json {
                let members = vec![
                    ("kind", loss.kind.into()),
                    ("count", loss.count.into()),
                    ("message", loss.text.into()),
                ];
                self.line("drops", members)?;
            } else {
                message(loss.message(self.options.drop_tags));
            }
        }
        self.losses = now;
        Ok(())
    }

    /// What was matched, once all of the program is there.
    pub fn announce(&mut self, session: &Session) -> std::io::Result<()> {
        let is_told = self.arguments.json || !self.options.quiet;
        if !std::mem::replace(&mut self.announced, true) && is_told {
            // The texts of the command line, behind the libraries: these have no probes.
            let texts = self.sources.iter().enumerate().filter(|(_, source)| !source.is_library);
            for (number, (index, source)) in texts.enumerate() {
                let count = session.matches(u32::try_from(index).unwrap_or(u32::MAX));
                let plural = if count == 1 { "" } else { "s" };
                let what = match self.arguments.programs.get(number) {
                    Some(ProgramText::Script(_) | ProgramText::Carried { .. }) => "script",
                    _ => "description",
                };
                let text = if what == "script" {
                    source.name.clone()
                } else {
                    head(&source.text)
                };
                if self.arguments.json {
                    let members = vec![
                        ("of", what.into()),
                        ("text", text.into()),
                        ("probes", u64::try_from(count).unwrap_or(u64::MAX).into()),
                    ];
                    self.line("match", members)?;
                } else {
                    message(format_args!("{what} '{text}' matched {count} probe{plural}"));
                }
            }
        }
        self.tell_places(session)
    }

    /// With `-v` every new site and refusal; otherwise how many were refused.
    pub fn tell_places(&mut self, session: &Session) -> std::io::Result<()> {
        let refused = session.refused();
        if self.arguments.json {
            for refused in refused.iter().skip(self.refused_told) {
                let members = vec![
                    ("function", Json::from(refused.function.to_string())),
                    ("site", refused.site.map_or(Json::Null, |site| Json::from(site.0))),
                    ("reason", refused.reason.to_string().into()),
                ];
                self.line("refused", members)?;
            }
        } else if self.arguments.verbose {
            for patch in session.patches().iter().skip(self.patches_told) {
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
                        session.symbolize(site.0),
                        patch.how()
                    ));
                }
            }
            for refused in refused.iter().skip(self.refused_told) {
                let site = refused.site.map_or_else(String::new, |site| format!("{site} "));
                let what = if refused.is_early_return() { "" } else { "refused: " };
                message(format_args!("{site}{}: {what}{}", refused.function, refused.reason));
            }
        } else {
            let new = refused.get(self.refused_told..).unwrap_or_default();
            let early = new.iter().filter(|refused| refused.is_early_return()).count();
            let count = new.len() - early;
            let plural = if count == 1 { "" } else { "s" };
            if count != 0 {
                message(format_args!(
                    "{count} place{plural} could not be probed (-v says which and why)"
                ));
            }
            let plural = if early == 1 { "" } else { "s" };
            if early != 0 {
                message(format_args!(
                    "{early} function{plural} with tail calls: return fires when they jump, not when the callee has returned (-v says which and why)"
                ));
            }
        }
        self.refused_told = refused.len();
        self.patches_told = session.patches().len();
        Ok(())
    }
}

/// Why a session without a process is refused: a probe of it samples threads.
pub fn unsampled(session: &Session) -> Option<String> {
    if session.process().is_some() {
        return None;
    }
    let clauses = session.program().clauses.iter();
    let mut descriptions = clauses.flat_map(|clause| &clause.probes);
    let sampled = descriptions.find(|description| {
        description.name.starts_with("profile-") && matches!(description.provider.as_str(), "" | "profile")
    })?;
    let name = &sampled.name;
    let tick = name.replacen("profile", "tick", 1);
    Some(format!(
        "{name} samples the threads of a process, and there is none: give one by -p PID or -c COMMAND ({tick} fires without \
         any; the whole system cannot be sampled yet)"
    ))
}

/// How the target ended, where that is worth a word.
pub fn how(exit: Exit) -> String {
    match exit {
        Exit::Status(0) | Exit::Unknown => String::new(),
        Exit::Status(status) => format!(" (status {status})"),
        Exit::Signal(signal) => format!(" (killed by signal {signal})"),
    }
}

/// What dtrace shows of an inline program: up to its first brace or predicate.
fn head(text: &str) -> String {
    let end = text.find(['{', '/']).unwrap_or(text.len());
    text.get(..end).unwrap_or(text).to_owned()
}

/// For how long threads stood still: the one that stood longest, and, in it, all of them together.
pub fn stood(pauses: &Pauses) -> String {
    let (longest, whole) = (milliseconds(pauses.longest()), milliseconds(pauses.whole()));
    format!("stopped {longest:.2} ms (all threads {whole:.2} ms)")
}

/// In milliseconds.
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
