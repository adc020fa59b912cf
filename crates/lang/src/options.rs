//! Options: `-x name[=value]` on the command line, `#pragma D option name[=value]` in a program.
//!
//! One table of names ([`NAMES`]) and one typed result ([`Options`]); the same rules for both ways in. Values are of
//! five kinds:
//!
//! ```text
//! switch   nothing, yes/no, enable/disable, enabled/disabled, true/false, on/off, set/unset; a number is "on"
//! size     bytes: digits with a suffix k, m, g or t (powers of 1024)
//! rate     digits with a suffix: ns us ms s m h d (and nsec usec msec sec min hour day), or hz; none is hz
//! number   decimal, 0octal or 0xhexadecimal
//! word     one of a few
//! ```
//!
//! Defaults are DTrace's, but for `bufsize`, which is a thread's here and a CPU's there (1m instead of 4m), `aggsize`
//! likewise, and `ustackframes` (100, as DTrace on Linux; 20 elsewhere). A rate without a unit is in hz, as the manual
//! says; illumos takes it for ns. Options of DTrace that mean nothing here are taken and ignored when they cannot
//! change a result (`cleanrate`, `bufresize`), refused otherwise. Manual: "Options and Tunables".

mod interval;

pub use interval::{Interval, IntervalKind, parse_interval};

use crate::layout::Limits;

/// What to do when a thread's ring is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BufferPolicy {
    /// Drop the record and count it; the tracer empties the ring all the time.
    #[default]
    Switch,
    /// The first record without room ends the tracing; what was recorded is printed then.
    Fill,
    /// Overwrite the oldest records; the ring is read once, at the end.
    Ring,
}

/// Whether all threads of a running program stand still while probes are written into its text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum StopPolicy {
    /// Few probes together with what needs a stop anyway, all others while the program runs.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never. Signal actions still take a short stop, the first and the last time.
    Never,
}

/// When a started program (`-c`) is stopped to be instrumented.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EvaluationTime {
    /// Right after exec.
    Exec,
    /// Before the libraries' initialisers.
    #[default]
    PreInitialization,
    /// After them.
    PostInitialization,
    /// At main.
    Main,
}

/// What the bars of aggregations are drawn with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Encoding {
    /// Bars of ASCII, the lines of `aggpack` in block elements.
    #[default]
    Auto,
    /// ASCII only.
    Ascii,
    /// Block elements everywhere.
    Utf8,
}

/// How return probes see that a function returns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReturnForm {
    /// Every way out of the function is probed; where they cannot all be found, its return address is replaced.
    #[default]
    Auto,
    /// Every way out of the function is probed.
    Exits,
    /// The return address is replaced, as kretprobes do.
    Address,
}

/// The options of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// No header, no columns, no messages but the program's own output (`-q`).
    pub quiet: bool,
    /// Entries and returns indented (`-F`).
    pub flow_indent: bool,
    /// Destructive actions allowed (`-w`).
    pub destructive: bool,
    /// Always dump bytes, even when they look like a string.
    pub raw_bytes: bool,
    /// Unmatched probe descriptions are no error (`-Z`).
    pub allow_unmatched: bool,
    /// Missing macro arguments are 0 or "".
    pub default_arguments: bool,
    /// Error messages carry their tags.
    pub error_tags: bool,
    /// Aggregations sorted by key instead of value.
    pub sort_by_key: bool,
    /// Aggregations sorted in reverse.
    pub sort_reversed: bool,
    /// Index of the aggregation by whose values a `printa` of several is sorted.
    pub sort_position: usize,
    /// Index of the key element by which sorting starts.
    pub sort_key_position: usize,
    /// Bytes of a thread's ring.
    pub buffer_bytes: u64,
    /// What to do when it is full.
    pub buffer_policy: BufferPolicy,
    /// Bytes of a thread's table of aggregations.
    pub aggregation_bytes: u64,
    /// Bytes for associative arrays.
    pub dynamic_bytes: u64,
    /// Bytes of a string with its NUL.
    pub string_bytes: u32,
    /// Frames of a `ustack()`.
    pub stack_frames: u32,
    /// Spaces in front of a frame.
    pub stack_indent: u32,
    /// How often records are read, in ns.
    pub switch_ns: u64,
    /// How often aggregations are read, in ns.
    pub aggregation_ns: u64,
    /// How often drops are looked for, in ns.
    pub status_ns: u64,
    /// Taken and ignored: dynamic variables are never cleaned here, and speculations at once.
    pub clean_ns: u64,
    /// How many speculations there may be at a time.
    pub speculations: u64,
    /// Bytes of the records of one speculation.
    pub speculation_bytes: u64,
    /// Bars that are scaled to the longest of them rather than to their sum.
    pub zoom_distributions: bool,
    /// `agghist`: counts, sums and averages as bars, one line for each key.
    pub bar_lines: bool,
    /// `aggpack`: distributions in one line for each key.
    pub packed_lines: bool,
    /// The characters of bars.
    pub encoding: Encoding,
    /// Messages about drops carry their tags.
    pub drop_tags: bool,
    /// When a started program is instrumented.
    pub evaluation_time: EvaluationTime,
    /// The tactic of patching that is forced, by name; `patch` knows the names.
    pub tactic: Option<String>,
    /// Whether all threads stand still while probes are written.
    pub stop: StopPolicy,
    /// How return probes see that a function returns.
    pub return_form: ReturnForm,
    /// Calls of one thread whose return addresses may be replaced at the same time.
    pub active_calls: u32,
    /// The form of the tactic `trap` that is forced, by name; `patch` knows the names.
    pub trap: Option<String>,
    /// What all probes together may take of a processor's time, in hundredths of a percent; those over it are turned off.
    pub max_cost: Option<u32>,
}

impl Default for Options {
    fn default() -> Options {
        const SECOND: u64 = 1_000_000_000;
        Options {
            quiet: false,
            flow_indent: false,
            destructive: false,
            raw_bytes: false,
            allow_unmatched: false,
            default_arguments: false,
            error_tags: false,
            sort_by_key: false,
            sort_reversed: false,
            sort_position: 0,
            sort_key_position: 0,
            buffer_bytes: 1 << 20,
            buffer_policy: BufferPolicy::Switch,
            aggregation_bytes: 1 << 20,
            dynamic_bytes: 1 << 20,
            string_bytes: 256,
            stack_frames: 100,
            stack_indent: 14,
            switch_ns: SECOND,
            aggregation_ns: SECOND,
            status_ns: SECOND,
            clean_ns: SECOND / 101,
            speculations: 1,
            speculation_bytes: 32 << 10,
            zoom_distributions: false,
            bar_lines: false,
            drop_tags: false,
            packed_lines: false,
            encoding: Encoding::Auto,
            evaluation_time: EvaluationTime::PreInitialization,
            tactic: None,
            stop: StopPolicy::Auto,
            return_form: ReturnForm::Auto,
            active_calls: 4096,
            trap: None,
            max_cost: None,
        }
    }
}

/// Why an option was not set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionError {
    /// No such option.
    #[error("unknown option: {name}")]
    Unknown {
        /// As given.
        name: String,
    },
    /// DTrace has it, and it can mean nothing here.
    #[error("option {name} is not there: {reason}")]
    NotHere {
        /// The option.
        name: String,
        /// Why.
        reason: &'static str,
    },
    /// It needs a value.
    #[error("option {name} needs a value: {expected}")]
    Missing {
        /// The option.
        name: String,
        /// What would do.
        expected: &'static str,
    },
    /// The value is not one.
    #[error("invalid value for option {name}: {value}: expected {expected}")]
    Invalid {
        /// The option.
        name: String,
        /// As given.
        value: String,
        /// What would do.
        expected: &'static str,
    },
    /// The value is too small or too large.
    #[error("value for option {name} out of range: {value}: from {minimum} to {maximum} is possible")]
    OutOfRange {
        /// The option.
        name: String,
        /// As given.
        value: String,
        /// The smallest possible.
        minimum: u64,
        /// The largest possible.
        maximum: u64,
    },
}

impl OptionError {
    /// DTrace's tag of an option that a `#pragma` could not set.
    pub fn tag(&self) -> &'static str {
        "D_PRAGMA_OPTSET"
    }
}

/// The names of all options, for messages and completions.
pub const NAMES: &[&str] = &[
    "agghist",
    "aggpack",
    "aggrate",
    "aggsize",
    "aggsortkey",
    "aggsortkeypos",
    "aggsortpos",
    "aggsortrev",
    "aggzoom",
    "argref",
    "bufpolicy",
    "bufresize",
    "bufsize",
    "cleanrate",
    "defaultargs",
    "destructive",
    "droptags",
    "dynvarsize",
    "empty",
    "encoding",
    "errtags",
    "evaltime",
    "flowindent",
    "maxactive",
    "maxcost",
    "nspec",
    "quiet",
    "rawbytes",
    "return",
    "specsize",
    "stackindent",
    "statusrate",
    "stop",
    "strsize",
    "switchrate",
    "tactic",
    "trap",
    "ustackframes",
    "version",
    "zdefs",
];

const MEBIBYTE: u64 = 1 << 20;
const DAY_NS: u64 = 24 * 60 * 60 * 1_000_000_000;

impl Options {
    /// Sets one option.
    ///
    /// # Errors
    /// An unknown name, a missing or malformed value, a value out of range; the options are then as before.
    pub fn set(&mut self, name: &str, value: Option<&str>) -> Result<(), OptionError> {
        let given = Given { name, value };
        match name {
            "quiet" => self.quiet = given.switch()?,
            "flowindent" => self.flow_indent = given.switch()?,
            "destructive" => self.destructive = given.switch()?,
            "rawbytes" => self.raw_bytes = given.switch()?,
            "zdefs" => self.allow_unmatched = given.switch()?,
            "defaultargs" => self.default_arguments = given.switch()?,
            "errtags" => self.error_tags = given.switch()?,
            "aggzoom" => self.zoom_distributions = given.switch()?,
            "agghist" => self.bar_lines = given.switch()?,
            "aggpack" => self.packed_lines = given.switch()?,
            "encoding" => {
                self.encoding = given.word("ascii or utf8", &[("ascii", Encoding::Ascii), ("utf8", Encoding::Utf8)])?;
            }
            "nspec" => self.speculations = given.number(0, 256)?,
            "specsize" => self.speculation_bytes = given.size(0, 4096 * MEBIBYTE)?,
            "aggsortkey" => self.sort_by_key = given.switch()?,
            "aggsortrev" => self.sort_reversed = given.switch()?,
            "aggsortpos" => self.sort_position = given.number(0, 1 << 16)? as usize,
            "aggsortkeypos" => self.sort_key_position = given.number(0, 1 << 16)? as usize,
            "ustackframes" => self.stack_frames = given.number(1, 2048)? as u32,
            "stackindent" => self.stack_indent = given.number(0, 1024)? as u32,
            "bufsize" => self.buffer_bytes = given.size(4096, 4096 * MEBIBYTE)?,
            "aggsize" => self.aggregation_bytes = given.size(4096, 4096 * MEBIBYTE)?,
            "dynvarsize" => self.dynamic_bytes = given.size(4096, 4096 * MEBIBYTE)?,
            "strsize" => self.string_bytes = given.size(8, 65_536)? as u32,
            "switchrate" => self.switch_ns = given.rate(1_000_000, DAY_NS)?,
            "aggrate" => self.aggregation_ns = given.rate(1_000_000, DAY_NS)?,
            "statusrate" => self.status_ns = given.rate(1_000_000, DAY_NS)?,
            "cleanrate" => self.clean_ns = given.rate(1, DAY_NS)?,
            "bufpolicy" => {
                self.buffer_policy = given.word(
                    "switch, fill or ring",
                    &[
                        ("switch", BufferPolicy::Switch),
                        ("fill", BufferPolicy::Fill),
                        ("ring", BufferPolicy::Ring),
                    ],
                )?;
            }
            "bufresize" => given.word("auto or manual", &[("auto", ()), ("manual", ())])?,
            "evaltime" => {
                self.evaluation_time = given.word(
                    "exec, preinit, postinit or main",
                    &[
                        ("exec", EvaluationTime::Exec),
                        ("preinit", EvaluationTime::PreInitialization),
                        ("postinit", EvaluationTime::PostInitialization),
                        ("main", EvaluationTime::Main),
                    ],
                )?;
            }
            "maxactive" => self.active_calls = given.number(1, 65_536)? as u32,
            "return" => {
                self.return_form = given.word(
                    "exits, address or auto",
                    &[
                        ("exits", ReturnForm::Exits),
                        ("address", ReturnForm::Address),
                        ("auto", ReturnForm::Auto),
                    ],
                )?;
            }
            "stop" => {
                self.stop = given.word(
                    "auto, always or never",
                    &[
                        ("auto", StopPolicy::Auto),
                        ("always", StopPolicy::Always),
                        ("never", StopPolicy::Never),
                    ],
                )?;
            }
            "maxcost" => self.max_cost = Some(given.percent()?),
            "trap" => self.trap = Some(given.required("emulate, boost or step")?.to_owned()),
            "tactic" => self.tactic = Some(given.required("the name of a tactic")?.to_owned()),
            // Stacks of kernels and of interpreters are never taken; records always come in the order of their time.
            "stackframes" | "jstackframes" => {
                given.number(0, u64::from(u32::MAX))?;
            }
            "jstackstrsize" => {
                given.size(0, 4096 * MEBIBYTE)?;
            }
            "droptags" => self.drop_tags = given.switch()?,
            "argref" | "empty" => {
                given.switch()?;
            }
            "version" => given.version()?,
            "temporal" | "nolibs" | "unodefs" | "stdc" => {
                if value.is_some() && name != "stdc" {
                    given.switch()?;
                }
            }
            _ => {
                let name = name.to_owned();
                return Err(match not_here(&name) {
                    Some(reason) => OptionError::NotHere { name, reason },
                    None => OptionError::Unknown { name },
                });
            }
        }
        Ok(())
    }

    /// Sets an option given as `name` or `name=value`.
    ///
    /// # Errors
    /// As [`Options::set`].
    pub fn set_text(&mut self, text: &str) -> Result<(), OptionError> {
        match text.split_once('=') {
            Some((name, value)) => self.set(name, Some(value)),
            None => self.set(text, None),
        }
    }

    /// What the layout of values depends on.
    pub fn limits(&self) -> Limits {
        Limits {
            strsize: self.string_bytes,
            ustackframes: self.stack_frames,
        }
    }
}

/// Why an option of DTrace's is refused.
fn not_here(name: &str) -> Option<&'static str> {
    Some(match name {
        "cpu" => "buffers are of threads, not of CPUs",
        "grabanon" | "audit" | "anon" => "there is no anonymous tracing",
        "cpp" | "cpphdrs" | "cpppath" | "cppargs" | "define" | "incdir" | "undef" => {
            "the preprocessor runs before options are read: -C, -D, -I, -U, -H"
        }
        "libdir" | "syslibdir" | "ldpath" | "late" | "lazyload" | "linkmode" | "linktype" => {
            "there are no D libraries, and nothing is linked"
        }
        "ctypes" | "dtypes" | "kdefs" | "knodefs" | "udefs" => "types are those of the text",
        "core" | "pgmax" | "setenv" | "unsetenv" | "amin" | "iregs" | "pspec" | "strip" | "tree" | "tregs"
        | "verbose" | "oformat" => "it has no meaning for this compiler",
        _ => return None,
    })
}

/// An option as it was given.
struct Given<'a> {
    name: &'a str,
    value: Option<&'a str>,
}

impl<'a> Given<'a> {
    fn required(&self, expected: &'static str) -> Result<&'a str, OptionError> {
        match self.value {
            Some(value) if !value.is_empty() => Ok(value),
            _ => Err(OptionError::Missing {
                name: self.name.to_owned(),
                expected,
            }),
        }
    }

    /// A version of D, which must not be later than ours.
    fn version(&self) -> Result<(), OptionError> {
        const EXPECTED: &str = "a version of D up to 1.13";
        let parts: Option<Vec<u32>> = self
            .required(EXPECTED)?
            .split('.')
            .map(|part| part.parse().ok())
            .collect();
        match parts.as_deref() {
            Some([major, minor] | [major, minor, _]) if (*major, *minor) <= (1, 13) => Ok(()),
            _ => Err(self.invalid(EXPECTED)),
        }
    }

    fn invalid(&self, expected: &'static str) -> OptionError {
        let value = self.value.unwrap_or_default().to_owned();
        OptionError::Invalid {
            name: self.name.to_owned(),
            value,
            expected,
        }
    }

    fn in_range(&self, value: u64, minimum: u64, maximum: u64) -> Result<u64, OptionError> {
        if (minimum..=maximum).contains(&value) {
            return Ok(value);
        }
        let text = self.value.unwrap_or_default().to_owned();
        Err(OptionError::OutOfRange {
            name: self.name.to_owned(),
            value: text,
            minimum,
            maximum,
        })
    }

    /// Nothing is on; so is a number, even 0 (as in DTrace); the empty value is off.
    fn switch(&self) -> Result<bool, OptionError> {
        let Some(value) = self.value else { return Ok(true) };
        match value.to_ascii_lowercase().as_str() {
            "yes" | "enable" | "enabled" | "true" | "on" | "set" => Ok(true),
            "" | "no" | "disable" | "disabled" | "false" | "off" | "unset" => Ok(false),
            number => parse_number(number)
                .map(|_| true)
                .ok_or_else(|| self.invalid("yes or no")),
        }
    }

    fn number(&self, minimum: u64, maximum: u64) -> Result<u64, OptionError> {
        let expected = "a number";
        let value = parse_number(self.required(expected)?).ok_or_else(|| self.invalid(expected))?;
        self.in_range(value, minimum, maximum)
    }

    fn size(&self, minimum: u64, maximum: u64) -> Result<u64, OptionError> {
        let expected = "a number of bytes, with k, m, g or t for powers of 1024";
        let value = parse_size(self.required(expected)?).ok_or_else(|| self.invalid(expected))?;
        self.in_range(value, minimum, maximum)
    }

    fn rate(&self, minimum: u64, maximum: u64) -> Result<u64, OptionError> {
        let expected = "a time with ns, us, ms, s, m, h or d, or a frequency in hz";
        let value = interval::parse_period(self.required(expected)?).ok_or_else(|| self.invalid(expected))?;
        self.in_range(value, minimum, maximum)
    }

    /// A percentage in hundredths: 5%, 0.25%.
    fn percent(&self) -> Result<u32, OptionError> {
        let expected = "a percentage of a processor, as 5% or 0.5%";
        let text = self.required(expected)?;
        let number = text.strip_suffix('%').unwrap_or(text);
        let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
        let is_digits = |digits: &str| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        if !is_digits(whole) || !is_digits(part) || part.len() > 2 {
            return Err(self.invalid(expected));
        }
        let hundredths = format!("{whole}{part:0<2}");
        let value = hundredths.parse().map_err(|_| self.invalid(expected))?;
        // A hundred processors: more is no limit.
        Ok(self.in_range(value, 1, 1_000_000)? as u32)
    }

    fn word<T: Copy>(&self, expected: &'static str, words: &[(&str, T)]) -> Result<T, OptionError> {
        let value = self.required(expected)?;
        let found = words.iter().find(|(word, _)| *word == value);
        found.map(|(_, meaning)| *meaning).ok_or_else(|| self.invalid(expected))
    }
}

/// A number as C writes it: decimal, `0` octal, `0x` hexadecimal.
fn parse_number(text: &str) -> Option<u64> {
    let (digits, radix) = match text.as_bytes() {
        [b'0', b'x' | b'X', ..] => (text.get(2..)?, 16),
        [b'0', _, ..] => (text.get(1..)?, 8),
        _ => (text, 10),
    };
    // from_str_radix also takes a sign.
    let plain = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    plain.then(|| u64::from_str_radix(digits, radix).ok()).flatten()
}

/// A number of bytes with a suffix.
fn parse_size(text: &str) -> Option<u64> {
    let shift = match text.bytes().last()?.to_ascii_lowercase() {
        b'k' => 10,
        b'm' => 20,
        b'g' => 30,
        b't' => 40,
        _ => return parse_number(text),
    };
    let digits = text.get(..text.len() - 1)?;
    parse_number(digits)?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests;
