//! Descriptions: which process they name, whether a function's name matches a pattern, and which descriptions are
//! wrong. Reads no process.

use std::borrow::Cow;

use nanoprobe_lang::glob;
use nanoprobe_lang::options::Demangle;
use nanoprobe_lang::program::ProbeDescription;
use nanoprobe_symbols::{Demangled, Function, is_mangled, readable};

use crate::names::NO_FUNCTION;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DescriptionError {
    /// The description names another process than the target, or there is no target.
    #[error(
        "[D_PDESC_ZERO] probe description {description} does not match any probes: the provider {provider} is not there: {remedy}"
    )]
    Provider {
        /// The description, as written.
        description: String,
        /// The provider.
        provider: String,
        /// Advice on what to do.
        remedy: &'static str,
    },
    /// The number belongs to no possible process.
    #[error("[D_PROC_BADPID] '{provider}' does not contain a valid pid")]
    NoProcess {
        /// The provider, as written.
        provider: String,
    },
    /// `profile` and `tick` need an interval.
    #[error(
        "[D_PDESC_ZERO] probe description {description} does not match any probes: not an interval of at least 200 us: \
         write tick-100ms, profile-97, tick-5s, ..."
    )]
    Interval {
        /// The description, as written.
        description: String,
    },
}

impl DescriptionError {
    /// The error for a provider whose number no process can have.
    pub(crate) fn no_process(description: &ProbeDescription) -> DescriptionError {
        DescriptionError::NoProcess {
            provider: description.provider.clone(),
        }
    }
}

/// The hint for a description that would suit another tracer: it names probes of the kernel, or uses bpftrace's words.
/// The hint begins with a separator.
pub fn hint_for_elsewhere(description: &ProbeDescription) -> Option<&'static str> {
    let ProbeDescription {
        provider,
        module,
        function,
        ..
    } = description;
    let first = [provider, module, function]
        .into_iter()
        .find(|field| !field.is_empty())?;
    Some(match first.as_str() {
        "fbt" | "sdt" | "lockstat" | "vminfo" | "mib" | "ip" | "tcp" | "udp" | "cpc" | "rawtp" | "vfs" => {
            " (probes of the kernel are not there: user programs are traced; their system calls are syscall::open*:entry, \
             the functions that they call are in their libc, pid$target:libc:open*:entry)"
        }
        "uprobe" | "uretprobe" | "usdt" | "kprobe" | "kretprobe" | "tracepoint" | "kfunc" | "fentry" => {
            " (that is bpftrace's; D has pid$target:module:function:entry and :return, and provider$target:::name)"
        }
        "sched" => {
            " (sched has on-cpu, off-cpu, sleep, preempt and wakeup, without a module or a function; only the kernel sees its \
             queues)"
        }
        "interval" => " (that is bpftrace's; D has tick-1s)",
        _ => return None,
    })
}

/// The hint for a description with a field in the wrong place. It begins with a separator.
pub fn hint_for_fields(description: &ProbeDescription) -> Option<&'static str> {
    let ProbeDescription {
        provider,
        module,
        function,
        name,
        ..
    } = description;
    let is_process = |field: &String| {
        let number = field.strip_prefix("pid").unwrap_or_default();
        !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    };
    if is_process(module) || is_process(function) {
        return Some(" (fields are filled from the right: write all four, pid$target:module:function:name)");
    }
    match provider.as_str() {
        "pid" => Some(" (the process belongs to it: write pid$target)"),
        "" if name == "entry" || name == "return" => {
            Some(" (functions are probed by their process: pid$target:module:function:entry)")
        }
        _ => None,
    }
}

/// The description with all its fields, as DTrace shows it.
pub fn describe(description: &ProbeDescription) -> String {
    description.to_string()
}

/// Whether a description means a process's functions: `pid` and a number.
pub fn is_target_provider(description: &ProbeDescription) -> bool {
    description
        .provider
        .strip_prefix("pid")
        .is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

/// A line of the source, as a description names it: `pid7:a.out:file.c@123:`. Its probes are shown as
/// `pid7:a.out:function:file.c@123`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// A glob for the file.
    pub file: String,
    /// From 1.
    pub number: u64,
    /// A glob for the function that the code belongs to; may be empty.
    pub function: String,
}

impl Line {
    /// The source line that a description of the target's functions names, if it names one.
    pub fn of(description: &ProbeDescription) -> Option<Line> {
        let ProbeDescription { function, name, .. } = description;
        let (place, function) = match name.is_empty() {
            true => (function, ""),
            false => (name, function.as_str()),
        };
        let (file, number) = place.rsplit_once('@')?;
        let digits = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
        let number = number.parse().ok().filter(|number| digits && *number > 0)?;
        let is_line = is_target_provider(description) && !file.is_empty();
        is_line.then(|| Line {
            file: file.to_owned(),
            number,
            function: function.to_owned(),
        })
    }
}

/// Whether a description means the inlined copies of a function, too. It does if it names the entry of one function of
/// one module, without globs. A pattern that matches many functions means only functions in the symbol table.
pub fn means_inlined(description: &ProbeDescription) -> bool {
    let ProbeDescription {
        module, function, name, ..
    } = description;
    is_target_provider(description)
        && name == "entry"
        && glob::is_literal(module)
        && glob::is_literal(function)
        && function != NO_FUNCTION
}

/// The process that a program's descriptions name, if any: `pid1234:::entry` without `-p`, or a static probe's
/// `python1234:::line`.
pub fn named_process<'a>(
    descriptions: impl Iterator<Item = &'a ProbeDescription> + Clone,
) -> Option<(i32, &'a ProbeDescription)> {
    let mut named = descriptions.clone();
    let by_pid = named.find_map(|description| {
        let number = description.provider.strip_prefix("pid")?;
        Some((number.parse().ok()?, description))
    });
    by_pid.or_else(|| {
        let mut named = descriptions.filter(|description| glob::is_literal(&description.provider));
        named.find_map(|description| {
            let name = description
                .provider
                .trim_end_matches(|last: char| last.is_ascii_digit());
            let number = description.provider.get(name.len()..)?;
            let pid = number.parse().ok().filter(|_| !name.is_empty())?;
            Some((pid, description))
        })
    })
}

/// The name of a function that matches a pattern, shown as `demangle` says.
///
/// A C++ or Rust name may match in the linker's spelling, or in the spelling of the source: `ns::area`, or
/// `ns::area(int)` with its parameters.
pub fn matching_name<'a>(function: &'a Function, pattern: &str, demangle: Demangle) -> Option<Cow<'a, str>> {
    function
        .names()
        .find_map(|name| answers_as_it_is(name, pattern, demangle))
        .or_else(|| {
            let mut names = function.names();
            names.find_map(|name| answers_as_its_source(name, pattern, demangle))
        })
}

/// The form of this name that matches a pattern, shown as `demangle` says; `None`: no form matches.
pub fn answers_to<'a>(name: &'a str, pattern: &str, demangle: Demangle) -> Option<Cow<'a, str>> {
    answers_as_it_is(name, pattern, demangle).or_else(|| answers_as_its_source(name, pattern, demangle))
}

/// Whether a mangled name may demangle to the pattern. A program has a hundred thousand mangled names, and
/// demangling all of them is slow. Where the pattern consists of identifiers only, the last one, the function's own
/// name, appears in the mangled name, too. The exceptions are the classes of std that have an abbreviation, whose
/// constructors bear their names. A pattern that begins with `_Z` means the linker's spelling: no word that a
/// demangler adds begins so.
fn may_be_written(mangled: &str, pattern: &str) -> bool {
    const ABBREVIATED: [&str; 9] = [
        "allocator",
        "basic_iostream",
        "basic_istream",
        "basic_ostream",
        "basic_string",
        "iostream",
        "istream",
        "ostream",
        "string",
    ];
    let begins = pattern.split(['*', '?', '[', '\\']).next().unwrap_or_default();
    if begins.starts_with("_Z") && !mangled.get(2..).is_some_and(|rest| rest.contains(begins)) {
        return false;
    }
    if !is_of_identifiers(pattern) {
        return true;
    }
    let own = pattern.rsplit("::").next().unwrap_or_default();
    let parts = own.split('[').map(|part| part.rsplit(']').next().unwrap_or_default());
    // Matching a pattern anywhere in a name is slow, too.
    let is_there = parts
        .max_by_key(|part| part.len())
        .is_some_and(|part| mangled.contains(part));
    is_there && glob::matches(&format!("*{own}*"), mangled) || ABBREVIATED.iter().any(|name| glob::matches(own, name))
}

/// Whether a pattern can only match identifiers that are joined by `::`. Its only wildcards are then sets (`[a-z]`) of
/// characters of identifiers.
fn is_of_identifiers(pattern: &str) -> bool {
    let mut is_in_set = false;
    pattern.bytes().all(|byte| match byte {
        b'[' | b']' if is_in_set == (byte == b']') => {
            is_in_set = byte == b'[';
            true
        }
        b':' => !is_in_set,
        _ => byte.is_ascii_alphanumeric() || byte == b'_',
    })
}

fn answers_as_it_is<'a>(name: &'a str, pattern: &str, demangle: Demangle) -> Option<Cow<'a, str>> {
    (pattern.is_empty() || glob::matches(pattern, name)).then(|| match demangle {
        Demangle::Auto | Demangle::Never => Cow::Borrowed(name),
        Demangle::Always => readable(name),
    })
}

fn answers_as_its_source<'a>(name: &'a str, pattern: &str, demangle: Demangle) -> Option<Cow<'a, str>> {
    if !is_mangled(name) || !may_be_written(name, pattern) {
        return None;
    }
    let Demangled { short, full } = nanoprobe_symbols::demangle(name)?;
    let readable = readable(name);
    let is_short = glob::matches(pattern, &readable) || glob::matches(pattern, &short);
    if !is_short && !glob::matches(pattern, &full) {
        return None;
    }
    Some(match demangle {
        Demangle::Never => Cow::Borrowed(name),
        Demangle::Always => readable,
        Demangle::Auto if is_short => readable,
        Demangle::Auto => Cow::Owned(full.into()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every demangled name is found: constructors, abbreviations of std's, substitutions, both forms of Rust.
    #[test]
    fn a_name_answers_to_what_it_reads_as() {
        for mangled in [
            "_ZNK6shapes6Circle4areaEi",
            "_ZN6shapes6CircleC1ERKS0_",
            "_ZN6shapes6CircleD2Ev",
            "_ZNSsC1EPKcRKSaIcE",
            "_ZNSaIcEC2Ev",
            "_ZNSt6vectorIiSaIiEE9push_backERKi",
            "_ZN12_GLOBAL__N_14workEv",
            "_ZN4RingIlLi7EE3putERKl",
            "_ZN5shapeplERKS_",
            "_Z6uv_runi",
            "_ZN5typed4draw17h0123456789abcdefE",
            "_RNvNtCs1234_7mycrate3foo3bar",
            "_RNvMNtCs1234_7mycrate3fooNtB2_5Thing3put",
        ] {
            let read = nanoprobe_symbols::demangle(mangled).map(|demangled| demangled.short);
            let read = read.unwrap_or_else(|| panic!("{mangled} is no name"));
            assert!(answers_to(mangled, &read, Demangle::Auto).is_some(), "{mangled} {read}");
            let last = read.rsplit("::").next().unwrap_or_default();
            assert!(
                answers_to(mangled, &format!("*{last}"), Demangle::Auto).is_some(),
                "{mangled} {last}"
            );
            // A set of one letter is the letter.
            let sets: String = (last.chars())
                .map(|letter| match letter.is_ascii_alphanumeric() {
                    true => format!("[{letter}]"),
                    false => letter.to_string(),
                })
                .collect();
            assert!(
                answers_to(mangled, &format!("*{sets}"), Demangle::Auto).is_some()
                    && (*last != *read || answers_to(mangled, &sets, Demangle::Auto).is_some()),
                "{mangled} {sets}"
            );
            for other in ["uv_ru", "shapes::Circle::are", "other::string", "put", "Thing"] {
                let wrong = answers_to(mangled, other, Demangle::Auto);
                assert!(wrong.is_none() || *read == *other, "{mangled} {other}");
            }
        }
    }

    /// Patterns that need no demangling: the linker's spelling, and sets of letters.
    #[test]
    fn few_names_are_demangled_for_a_pattern_of_letters() {
        let may = |pattern: &str| {
            let names = [
                "_Znwm",
                "_ZnwmPv",
                "_ZN2je4areaEv",
                "_ZNSaIcEC2Ev",
                "_ZN1a3_ZnEv",
                "_Z9je_mallocm",
            ];
            names.map(|name| may_be_written(name, pattern))
        };
        assert_eq!(may("_Zn[wa]mSt*"), [false, false, false, false, true, false]);
        assert_eq!(may("_Znwm"), [false; 6]);
        assert_eq!(may("[jmt][eic]_[mcv]alloc"), [false, false, false, false, false, true]);
        assert_eq!(may("ns::[abc]rea"), [false, false, true, false, false, false]);
        // The constructor of a class that is abbreviated does not bear its name.
        assert_eq!(may("alloc[aeiou]tor"), [true; 6]);
        // These may match anything.
        for pattern in [
            "[!x]lloc",
            "[a-z]lloc",
            "?lloc",
            "*lloc",
            "[]x]lloc",
            "operator new",
            "\\_Z",
        ] {
            assert_eq!(may(pattern), [true; 6], "{pattern}");
        }
    }
}
