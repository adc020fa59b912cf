//! Probes: what a description matches, given the modules that the target has mapped. Pure.
//!
//! A probe is `provider:module:function:name` with an id of its own. Those of the provider `dtrace` (BEGIN, END, ERROR)
//! and `profile` fire in the tracer; those of `pidNNN` at instructions of the target. Probes are made as descriptions
//! match them and keep their ids; a library that is loaded later only adds to the list.

use std::collections::HashMap;

use nanoprobe_lang::glob;
use nanoprobe_lang::options::{Interval, parse_interval};
use nanoprobe_lang::program::ProbeDescription;
use nanoprobe_symbols::{Function, Module};

/// Index into [`ProbeList::probes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProbeIndex(pub usize);

/// One probe.
#[derive(Clone, Debug)]
pub struct Probe {
    /// What the user sees in the column ID; from 1.
    pub id: u32,
    /// `pid1234`, `dtrace`, `profile`.
    pub provider: String,
    /// The module's file name, empty for the tracer's probes.
    pub module: String,
    /// The name by which the description matched the function.
    pub function: String,
    /// `entry`, `return`, an offset in hexadecimal, `BEGIN`, `tick-1s`.
    pub name: String,
    /// Where it fires.
    pub place: Place,
}

/// Where a probe fires.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// When tracing begins.
    Begin,
    /// When it ends.
    End,
    /// When a clause failed.
    Error,
    /// At intervals.
    Interval(Interval),
    /// In the target.
    Function {
        /// Index of the module in the order of loading.
        module: usize,
        /// Index of the function in the module.
        function: usize,
        /// Which of its instructions.
        spot: Spot,
    },
}

/// Which instructions of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Spot {
    /// The first.
    Entry,
    /// Every way out.
    Exits,
    /// The one at this many bytes from the entry.
    Offset(u64),
}

/// A module to match against.
pub struct Candidate<'a> {
    /// Its index in the order of loading.
    pub index: usize,
    /// The module.
    pub module: &'a Module,
}

/// A description that cannot be right, whatever the target is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DescriptionError {
    /// Another process than the target, or no target at all.
    #[error("{description}: the provider {provider} is not there: {remedy}")]
    Provider {
        /// As written.
        description: String,
        /// The provider.
        provider: String,
        /// What to do.
        remedy: &'static str,
    },
    /// `profile` and `tick` want an interval.
    #[error("{description}: not an interval of at least 200 us: write tick-100ms, profile-97, tick-5s, ...")]
    Interval {
        /// As written.
        description: String,
    },
}

/// All probes that were matched so far.
#[derive(Default)]
pub struct ProbeList {
    probes: Vec<Probe>,
    functions: HashMap<(usize, usize, Spot), ProbeIndex>,
    others: HashMap<String, ProbeIndex>,
}

/// The first id that a probe of the target can have: 1, 2, 3 are BEGIN, END and ERROR.
const FIRST_FREE_ID: usize = 4;

impl ProbeList {
    /// An empty list.
    pub fn new() -> ProbeList {
        ProbeList::default()
    }

    /// The probe at an index that this list gave.
    pub fn get(&self, index: ProbeIndex) -> Option<&Probe> {
        self.probes.get(index.0)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Probe> {
        self.probes.iter()
    }

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

    /// Finds what a description of the target's provider matches in some modules. `offsets` tells where instructions
    /// start in a function, for descriptions that ask for all of them.
    pub fn match_target<'a>(
        &mut self,
        description: &ProbeDescription,
        modules: impl Iterator<Item = Candidate<'a>>,
        mut offsets: impl FnMut(usize, usize) -> Vec<u64>,
    ) -> Vec<ProbeIndex> {
        let mut found = Vec::new();
        for candidate in modules {
            let answers = |name: &String| glob::matches(&description.module, name);
            if !description.module.is_empty() && !candidate.module.names().iter().any(answers) {
                continue;
            }
            for (number, function) in candidate.module.functions().iter().enumerate() {
                let Some(name) = matching_name(function, &description.function) else {
                    continue;
                };
                for spot in spots(&description.name, || offsets(candidate.index, number)) {
                    found.push(self.add_function(description, &candidate, number, name, spot));
                }
            }
        }
        found
    }

    fn add_function(
        &mut self,
        description: &ProbeDescription,
        candidate: &Candidate<'_>,
        function: usize,
        name: &str,
        spot: Spot,
    ) -> ProbeIndex {
        let key = (candidate.index, function, spot);
        if let Some(index) = self.functions.get(&key) {
            return *index;
        }
        let index = self.push(Probe {
            id: self.next_id(),
            provider: description.provider.clone(),
            module: candidate.module.name().to_owned(),
            function: name.to_owned(),
            name: match spot {
                Spot::Entry => "entry".to_owned(),
                Spot::Exits => "return".to_owned(),
                Spot::Offset(offset) => format!("{offset:x}"),
            },
            place: Place::Function {
                module: candidate.index,
                function,
                spot,
            },
        });
        self.functions.insert(key, index);
        index
    }

    fn add_other(&mut self, provider: &str, name: &str, id: Option<u32>, place: Place) -> ProbeIndex {
        if let Some(index) = self.others.get(name) {
            return *index;
        }
        let index = self.push(Probe {
            id: id.unwrap_or_else(|| self.next_id()),
            provider: provider.to_owned(),
            module: String::new(),
            function: String::new(),
            name: name.to_owned(),
            place,
        });
        self.others.insert(name.to_owned(), index);
        index
    }

    fn push(&mut self, probe: Probe) -> ProbeIndex {
        self.probes.push(probe);
        ProbeIndex(self.probes.len() - 1)
    }

    fn next_id(&self) -> u32 {
        let taken = self
            .probes
            .iter()
            .filter(|probe| probe.id as usize >= FIRST_FREE_ID)
            .count();
        u32::try_from(FIRST_FREE_ID + taken).unwrap_or(u32::MAX)
    }
}

impl std::fmt::Display for Probe {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            formatter,
            "{}:{}:{}:{}",
            self.provider, self.module, self.function, self.name
        )
    }
}

/// The description as it was written.
pub fn describe(description: &ProbeDescription) -> String {
    let ProbeDescription {
        provider,
        module,
        function,
        name,
        ..
    } = description;
    if provider.is_empty() && module.is_empty() && function.is_empty() {
        return name.clone();
    }
    format!("{provider}:{module}:{function}:{name}")
}

/// Whether a description means a process's functions: `pid` and a number.
pub fn is_target_provider(description: &ProbeDescription) -> bool {
    description
        .provider
        .strip_prefix("pid")
        .is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

/// The process that a program's descriptions name, when they name one: `pid1234:::entry` without `-p`.
pub fn named_process<'a>(mut descriptions: impl Iterator<Item = &'a ProbeDescription>) -> Option<i32> {
    descriptions.find_map(|description| description.provider.strip_prefix("pid")?.parse().ok())
}

fn matching_name<'a>(function: &'a Function, pattern: &str) -> Option<&'a str> {
    function
        .names()
        .find(|name| pattern.is_empty() || glob::matches(pattern, name))
}

fn spots(pattern: &str, offsets: impl FnOnce() -> Vec<u64>) -> Vec<Spot> {
    let mut found = Vec::new();
    if pattern.is_empty() || glob::matches(pattern, "entry") {
        found.push(Spot::Entry);
    }
    if pattern.is_empty() || glob::matches(pattern, "return") {
        found.push(Spot::Exits);
    }
    let literal = !pattern.is_empty() && pattern.bytes().all(|byte| byte.is_ascii_hexdigit());
    if literal {
        found.extend(u64::from_str_radix(pattern, 16).map(Spot::Offset));
    } else if pattern.is_empty() || pattern.contains(['*', '?', '[']) {
        let matching = offsets()
            .into_iter()
            .filter(|offset| glob::matches(pattern, &format!("{offset:x}")));
        found.extend(matching.map(Spot::Offset));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn description(text: &str) -> ProbeDescription {
        let mut fields: Vec<String> = text.split(':').map(str::to_owned).collect();
        while fields.len() < 4 {
            fields.insert(0, String::new());
        }
        let mut fields = fields.into_iter();
        let mut next = || fields.next().unwrap_or_default();
        ProbeDescription {
            provider: next(),
            module: next(),
            function: next(),
            name: next(),
            span: nanoprobe_lang::Span::default(),
        }
    }

    #[test]
    fn the_tracer_s_probes_have_fixed_ids() {
        let mut list = ProbeList::new();
        for (text, id) in [("END", 2), ("BEGIN", 1), ("dtrace:::ERROR", 3)] {
            let found = list.match_tracer(&description(text), None).unwrap();
            let ids: Vec<u32> = found
                .iter()
                .filter_map(|index| list.get(*index))
                .map(|probe| probe.id)
                .collect();
            assert_eq!(ids, [id], "{text}");
        }
        let tick = list.match_tracer(&description("profile:::tick-100ms"), None).unwrap();
        assert_eq!(list.get(tick[0]).unwrap().id, 4);
        assert_eq!(list.match_tracer(&description("tick-100ms"), None).unwrap(), tick);
    }

    #[test]
    fn a_provider_of_another_process_is_refused() {
        let mut list = ProbeList::new();
        assert!(
            list.match_tracer(&description("pid7:a:b:entry"), Some("pid7"))
                .unwrap()
                .is_empty()
        );
        assert!(list.match_tracer(&description("pid8:a:b:entry"), Some("pid7")).is_err());
        assert!(list.match_tracer(&description("pid8:a:b:entry"), None).is_err());
        assert!(list.match_tracer(&description("tick-0"), None).is_err());
    }

    #[test]
    fn names_are_entry_return_and_offsets() {
        let all = || vec![0, 1, 0x1a];
        assert_eq!(spots("entry", all), [Spot::Entry]);
        assert_eq!(spots("return", all), [Spot::Exits]);
        assert_eq!(spots("1a", all), [Spot::Offset(0x1a)]);
        assert_eq!(spots("1*", all), [Spot::Offset(1), Spot::Offset(0x1a)]);
        let everything = [
            Spot::Entry,
            Spot::Exits,
            Spot::Offset(0),
            Spot::Offset(1),
            Spot::Offset(0x1a),
        ];
        assert_eq!(spots("", all), everything);
        assert!(spots("nonsense", all).is_empty());
    }
}
