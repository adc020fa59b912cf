//! The tracer's own probes: `dtrace` and `profile`. Pure.

use nanoprobe_lang::glob;
use nanoprobe_lang::options::parse_interval;
use nanoprobe_lang::program::ProbeDescription;

use super::{DescriptionError, Place, ProbeIndex, ProbeList, describe, is_target_provider};

impl ProbeList {
    /// Finds what a description matches among the tracer's own probes.
    ///
    /// # Errors
    /// A provider that is not there, an interval that is none.
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
                Some(_) => "one session traces one process, the one that $target names",
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
        let is_interval = description.name.starts_with("tick-") || description.name.starts_with("profile-");
        if bare && is_interval && glob::matches(&description.provider, "profile") {
            let interval = parse_interval(&description.name).ok_or(DescriptionError::Interval { description: text })?;
            found.push(self.add_other("profile", &description.name, None, Place::Interval(interval)));
        }
        Ok(found)
    }
}
