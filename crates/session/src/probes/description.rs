//! Descriptions: which process they name, how a function answers to a pattern, and what cannot be right. Pure.

use std::borrow::Cow;

use nanoprobe_lang::glob;
use nanoprobe_lang::program::ProbeDescription;
use nanoprobe_symbols::Function;

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

/// The process that a program's descriptions name, when they name one: `pid1234:::entry` without `-p`, or a static probe's
/// `python1234:::line`.
pub fn named_process<'a>(descriptions: impl Iterator<Item = &'a ProbeDescription> + Clone) -> Option<i32> {
    let mut named = descriptions.clone();
    let by_pid = named.find_map(|description| description.provider.strip_prefix("pid")?.parse().ok());
    by_pid.or_else(|| {
        let mut named = descriptions.filter(|description| glob::is_literal(&description.provider));
        named.find_map(|description| {
            let name = description
                .provider
                .trim_end_matches(|last: char| last.is_ascii_digit());
            let number = description.provider.get(name.len()..)?;
            number.parse().ok().filter(|_| !name.is_empty())
        })
    })
}

/// The name by which a function answers to a pattern.
///
/// A name of C++ or Rust that does not match as the linker has it may match as the source has it: `ns::area`, or
/// `ns::area(int)` with its parameters. A description cannot spell `::`; `ns*area` means it.
pub fn matching_name<'a>(function: &'a Function, pattern: &str) -> Option<Cow<'a, str>> {
    let plain = function
        .names()
        .find(|name| pattern.is_empty() || glob::matches(pattern, name));
    if let Some(name) = plain {
        return Some(Cow::Borrowed(name));
    }
    let demangled = function.names().find_map(nanoprobe_symbols::demangle)?;
    let mut forms = [demangled.short, demangled.full].into_iter();
    let found = forms.find(|name| glob::matches(pattern, name))?;
    Some(Cow::Owned(found.into()))
}
