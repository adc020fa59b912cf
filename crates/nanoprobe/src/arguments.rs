//! The command line: dtrace(1)'s flags, in dtrace's order.
//!
//! The order matters: several `-n` and `-s` form one program, in the order in which they are given.
//! So clap reads the flags as raw occurrences (`Flags`), and their positions then put them
//! in order ([`Arguments`]).

mod flags;
mod profiles;

use std::borrow::Cow;

use clap::error::ErrorKind;
use clap::{ArgMatches, CommandFactory, FromArgMatches};
use nanoprobe_export::profile::ProfileFormat;
use nanoprobe_export::{FORMATS, Format, StraceStyle};

pub use flags::Flags;

use crate::tools::timing::{self, Given};
use crate::wanted::Wanted;

/// A tracing request, as the command line states it.
#[derive(Debug)]
pub struct Arguments {
    pub programs: Vec<ProgramText>,
    pub command: Option<String>,
    /// The processes of `-p`, `--exe`, `--cgroup` and `--container`.
    pub processes: Wanted,
    /// `--service`
    pub is_service: bool,
    pub list: bool,
    pub quiet: bool,
    pub output: Option<String>,
    /// `name` or `name=value`, in order.
    pub options: Vec<String>,
    pub exit_after_compile: bool,
    pub verbose: bool,
    pub destructive: bool,
    pub allow_zero_matches: bool,
    /// `-S`
    pub listing: bool,
    /// The profiles that are written at the end, with the file of each: `--flamegraph`, `--pprof`, ...
    pub profiles: Vec<(ProfileFormat, String)>,
    /// `--format`
    pub format: Format,
    /// `-C`: further arguments for the preprocessor.
    pub preprocessor: Option<Vec<String>>,
    /// `-L`: folders of libraries.
    pub libraries: Vec<String>,
    /// `-x cpppath`: a preprocessor other than `cpp`.
    pub preprocessor_path: Option<String>,
    /// `$1`, `$2`, ...
    pub macro_arguments: Vec<String>,
    pub tool: ToolOutput,
}

/// How a tool shows what it sees.
#[derive(Clone, Copy, Debug, Default)]
pub struct ToolOutput {
    /// A terminal shows the state of the trace every second (see the option `top`).
    pub has_screen: bool,
    /// The lines of the tool `strace`, instead of a format.
    pub strace: Option<StraceStyle>,
}

/// One piece of the D program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProgramText {
    /// `-n`: the text itself.
    Inline(String),
    /// A description that ends early (`-P`, `-m`, `-f`), with an optional predicate and body.
    Short {
        text: String,
        /// The colons that complete the description.
        colons: &'static str,
    },
    /// `-s`: a file's path.
    Script(String),
    /// A script that the command contains (a tool).
    Carried {
        /// The script's name in messages.
        name: String,
        text: Cow<'static, str>,
    },
}

impl ProgramText {
    /// Whether this is `-f PIC`, which builds pass on for the compiler.
    pub fn is_position_independence(&self) -> bool {
        matches!(self, ProgramText::Short { text, .. } if text.eq_ignore_ascii_case("pic"))
    }
}

/// Reads a command line of tracing.
///
/// # Errors
/// Clap's error.
pub fn parse_trace(words: &[String]) -> Result<Arguments, clap::Error> {
    let matches = Flags::command().try_get_matches_from(words)?;
    let flags = Flags::from_arg_matches(&matches)?;
    arguments(&matches, flags)
}

/// Reads a command line of a tool, which has a few flags more.
///
/// # Errors
/// Clap's error.
pub fn parse_tool(words: &[String]) -> Result<(Arguments, Given), clap::Error> {
    // `-i` is a flag of tracing already.
    let matches = Flags::command()
        .args([timing::duration(), timing::stamps()])
        .try_get_matches_from(words)?;
    let mut flags = Flags::from_arg_matches(&matches)?;
    let given = Given {
        // A tool has no use for the number of a probe.
        interval: std::mem::take(&mut flags.programs.id).pop(),
        duration: matches.get_one::<String>("duration").cloned(),
        has_stamps: matches.get_flag("stamps"),
    };
    Ok((arguments(&matches, flags)?, given))
}

fn arguments(matches: &ArgMatches, mut flags: Flags) -> Result<Arguments, clap::Error> {
    take_early_options(&mut flags);
    if let Some(refusal) = refusal(&flags) {
        return Err(Flags::command().error(ErrorKind::InvalidValue, refusal));
    }
    let processes = flags.processes.wanted();
    let processes = processes.map_err(|what| Flags::command().error(ErrorKind::ValueValidation, what))?;
    let options = options(&flags);
    let preprocessor = preprocessor(&flags);
    let format = format(&flags);
    let mut programs = programs_in_order(matches, &flags);
    if flags.list && processes.is_none() && programs.is_empty() {
        programs.push(ProgramText::Inline("*:::".to_owned()));
    }
    Ok(Arguments {
        programs,
        command: flags.command,
        is_service: flags.processes.service,
        processes,
        list: flags.list,
        quiet: flags.quiet,
        output: flags.output,
        options,
        exit_after_compile: flags.exit,
        verbose: flags.verbose,
        destructive: flags.destructive,
        allow_zero_matches: flags.zero,
        listing: flags.showing.listing,
        profiles: flags.profiles.wanted,
        format,
        preprocessor,
        libraries: flags.preprocessing.library,
        preprocessor_path: flags.preprocessing.preprocessor_path,
        macro_arguments: flags.arguments,
        tool: ToolOutput::default(),
    })
}

fn format(flags: &Flags) -> Format {
    let name = if flags.showing.json {
        "json"
    } else {
        &flags.showing.format
    };
    Format::named(name).unwrap_or(FORMATS[0])
}

/// Applies the options that are long forms of flags and are needed before all others: those of the preprocessor and of
/// the libraries.
fn take_early_options(flags: &mut Flags) {
    for option in std::mem::take(&mut flags.settings.option) {
        match option.split_once('=') {
            None if option == "cpp" => flags.preprocessing.preprocess = true,
            None if option == "cpphdrs" => flags.preprocessing.headers = true,
            Some(("cpppath", value)) => flags.preprocessing.preprocessor_path = Some(value.to_owned()),
            Some(("cppargs", value)) => {
                let words = value.split_ascii_whitespace().map(str::to_owned);
                flags.preprocessing.preprocessor_arguments.extend(words);
            }
            Some(("define", value)) => flags.preprocessing.define.push(value.to_owned()),
            Some(("undef", value)) => flags.preprocessing.undefine.push(value.to_owned()),
            Some(("incdir", value)) => flags.preprocessing.include.push(value.to_owned()),
            Some(("libdir", value)) => flags.preprocessing.library.push(value.to_owned()),
            _ => flags.settings.option.push(option),
        }
    }
}

/// The values of `-x`, then the flags that are short forms of an option.
fn options(flags: &Flags) -> Vec<String> {
    let mut options = flags.settings.option.clone();
    options.extend(flags.settings.flow_indent.then(|| "flowindent".to_owned()));
    options.extend(
        flags
            .settings
            .buffer_size
            .as_ref()
            .map(|size| format!("bufsize={size}")),
    );
    options
}

/// If a given flag exists only in dtrace: the reason why it does not exist here.
fn refusal(flags: &Flags) -> Option<&'static str> {
    let refusals = [
        (
            flags.refused.anonymous || flags.refused.claim,
            "-A, -a: anonymous tracing is for the start of the kernel, which nanoprobe does not trace",
        ),
        (
            flags.refused.model_32.is_some(),
            "-32: there is one data model, that of 64-bit programs",
        ),
    ];
    refusals.into_iter().find_map(|(is_given, why)| is_given.then_some(why))
}

/// The arguments of the preprocessor; `None` if it does not run.
fn preprocessor(flags: &Flags) -> Option<Vec<String>> {
    if !flags.preprocessing.preprocess {
        return None;
    }
    let flagged = |flag: &'static str, values: &[String]| -> Vec<String> {
        values.iter().map(|value| format!("{flag}{value}")).collect()
    };
    let mut given = flagged("-D", &flags.preprocessing.define);
    given.extend(flagged("-U", &flags.preprocessing.undefine));
    given.extend(flagged("-I", &flags.preprocessing.include));
    given.extend(flags.preprocessing.headers.then(|| "-H".to_owned()));
    given.extend(flags.preprocessing.preprocessor_arguments.iter().cloned());
    Some(given)
}

fn programs_in_order(matches: &ArgMatches, flags: &Flags) -> Vec<ProgramText> {
    let positions = |id: &str| matches.indices_of(id).into_iter().flatten();
    let mut programs: Vec<(usize, ProgramText)> = Vec::new();
    programs.extend(positions("name").zip(flags.programs.name.iter().cloned().map(ProgramText::Inline)));
    programs.extend(positions("id").zip(flags.programs.id.iter().map(|id| ProgramText::Inline(of_range(id)))));
    programs.extend(positions("script").zip(flags.programs.script.iter().cloned().map(ProgramText::Script)));
    for (id, texts, colons) in [
        ("provider", &flags.programs.provider, ":::"),
        ("module", &flags.programs.module, "::"),
        ("function", &flags.programs.function, ":"),
    ] {
        let texts = texts.iter().map(|text| ProgramText::Short {
            text: text.clone(),
            colons,
        });
        programs.extend(positions(id).zip(texts));
    }
    programs.sort_by_key(|(position, _)| *position);
    programs.into_iter().map(|(_, program)| program).collect()
}

/// The probes of `-i 1-3` as descriptions by number, with the predicate and the body that follow.
fn of_range(text: &str) -> String {
    /// The largest size of a range. Fewer probes than this have the same number in every session.
    const RANGE_MAX: u64 = 1000;
    let end = text.find(|character: char| !character.is_ascii_digit() && character != '-');
    let (range, rest) = text.split_at(end.unwrap_or(text.len()));
    let bounds = range
        .split_once('-')
        .map(|(first, last)| (first.parse::<u64>(), last.parse::<u64>()));
    match bounds {
        Some((Ok(first), Ok(last))) if first <= last && last - first < RANGE_MAX => {
            let numbers: Vec<String> = (first..=last).map(|number| number.to_string()).collect();
            numbers.join(",") + rest
        }
        _ => text.to_owned(),
    }
}
