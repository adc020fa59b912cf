//! The probes that fire in the tracer: those of `dtrace`, `profile` and `sched`. Pure.

use std::sync::Arc;

use nanoprobe_lang::glob;
use nanoprobe_lang::options::parse_interval;
use nanoprobe_lang::program::ProbeDescription;

use super::{DescriptionError, Labels, Place, ProbeIndex, ProbeList, SwitchKind, describe, is_target_provider};

/// The rates of the provider `profile` that a pattern matches: those of DTrace.
const USUAL_RATES: [&str; 13] = [
    "profile-97",
    "profile-199",
    "profile-499",
    "profile-997",
    "profile-1999",
    "profile-4001",
    "profile-4999",
    "tick-1",
    "tick-10",
    "tick-100",
    "tick-500",
    "tick-1000",
    "tick-5000",
];

/// The probes of the provider `sched`.
const SWITCHES: [(&str, SwitchKind); 5] = [
    ("on-cpu", SwitchKind::OnCpu),
    ("off-cpu", SwitchKind::OffCpu),
    ("sleep", SwitchKind::Sleep),
    ("preempt", SwitchKind::Preempt),
    ("wakeup", SwitchKind::Wakeup),
];

/// The place of `proc:::signal-discard`, which no description of a program's names.
const DISCARD: &str = "signal-discard";

/// Whether a description may mean the switches of threads.
pub fn means_switches(description: &ProbeDescription) -> bool {
    !description.provider.is_empty() && glob::matches(&description.provider, "sched")
}

/// Whether a name is a pattern, which may match many names.
fn is_pattern(name: &str) -> bool {
    name.is_empty() || name.contains(['*', '?', '['])
}

impl ProbeList {
    /// Finds what a description matches among the tracer's own probes.
    ///
    /// # Errors
    /// The provider does not exist, or the interval is not valid.
    pub fn match_tracer(
        &mut self,
        description: &ProbeDescription,
        target_provider: Option<&str>,
    ) -> Result<Vec<ProbeIndex>, DescriptionError> {
        let text = describe(description);
        if is_target_provider(description) {
            if target_provider == Some(description.provider.as_str()) {
                return Ok(Vec::new());
            }
            let remedy = match target_provider {
                Some(_) => "$target does not name this process: name it by -p, too",
                None => "name the process by -p, or start it by -c",
            };
            return Err(DescriptionError::Provider {
                description: text,
                provider: description.provider.clone(),
                remedy,
            });
        }
        let mut found = Vec::new();
        let bare = description.module.is_empty() && description.function.is_empty();
        for (id, name, place) in [
            (1, "BEGIN", Place::Begin),
            (2, "END", Place::End),
            (3, "ERROR", Place::Error),
        ] {
            if bare && glob::matches(&description.provider, "dtrace") && glob::matches(&description.name, name) {
                found.push(self.add_other("dtrace", name, Some(id), place));
            }
        }
        if bare && means_switches(description) && target_provider.is_some() {
            let answers = |name: &str| description.name.is_empty() || glob::matches(&description.name, name);
            for (name, kind) in SWITCHES.into_iter().filter(|(name, _)| answers(name)) {
                found.push(self.add_other("sched", name, None, Place::Switch(kind)));
            }
        }
        if self.derived.is_at_hand() && description.provider == "sched" && description.name == DISCARD {
            let labels = Labels {
                provider: "sched".into(),
                module: Arc::default(),
                function: Arc::default(),
            };
            found.push(self.add_named(&labels, Place::Switch(SwitchKind::Discard), DISCARD.into()));
        }
        if bare && description.provider == "profile" && is_pattern(&description.name) {
            let usual = USUAL_RATES.into_iter();
            for name in usual.filter(|name| description.name.is_empty() || glob::matches(&description.name, name)) {
                if let Some(interval) = parse_interval(name) {
                    found.push(self.add_other("profile", name, None, Place::Interval(interval)));
                }
            }
            return Ok(found);
        }
        let is_interval = description.name.starts_with("tick-") || description.name.starts_with("profile-");
        if bare && is_interval && glob::matches(&description.provider, "profile") {
            let interval = parse_interval(&description.name).ok_or(DescriptionError::Interval { description: text })?;
            found.push(self.add_other("profile", &description.name, None, Place::Interval(interval)));
        }
        Ok(found)
    }
}
