//! The command line: dtrace(1)'s flags, in dtrace's order.
//!
//! The order matters: several `-n` and `-s` form one program, in the order in which they are given.
//! So clap reads the flags as raw occurrences (`LowArguments`), and their positions then put them
//! in order ([`Arguments`]).

use std::borrow::Cow;

use clap::error::ErrorKind;
use clap::{ArgAction, ArgMatches, CommandFactory, FromArgMatches, Parser};
use nanoprobe_export::{FORMATS, Format};

use crate::processes;

/// What the command is asked to do.
#[derive(Debug)]
pub struct Arguments {
    pub programs: Vec<ProgramText>,
    pub command: Option<String>,
    pub pid: Option<i32>,
    /// `-p NAME`: by what name the process was found.
    pub process_name: Option<String>,
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
    /// `--flamegraph`: the picture's file.
    pub flame_graph: Option<String>,
    /// `--format`
    pub format: Format,
    /// `-C`: further arguments for the preprocessor.
    pub preprocessor: Option<Vec<String>>,
    /// `-L`: folders of libraries.
    pub libraries: Vec<String>,
    /// `-x cpppath`: another preprocessor than `cpp`.
    pub preprocessor_path: Option<String>,
    /// `$1`, `$2`, ...
    pub macro_arguments: Vec<String>,
}

/// One piece of the D program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProgramText {
    /// `-n`: the text itself.
    Inline(String),
    /// `-P`, `-m`, `-f`: a description that ends early, and perhaps a predicate and a body.
    Short {
        text: String,
        /// The colons that the description lacks.
        colons: &'static str,
    },
    /// `-s`: a file's path.
    Script(String),
    /// A script that the command carries.
    Carried {
        /// Its name in messages.
        name: String,
        text: Cow<'static, str>,
    },
}

impl ProgramText {
    /// Whether `-f PIC` was meant for the compiler.
    pub fn is_position_independence(&self) -> bool {
        matches!(self, ProgramText::Short { text, .. } if text.eq_ignore_ascii_case("pic"))
    }
}

/// The flags as given.
#[derive(Parser, Debug)]
#[command(
    name = "nanoprobe",
    disable_version_flag = true,
    disable_help_flag = true,
    about = "Dynamic tracing of running programs, in D, at nanoseconds a probe.",
    override_usage = "nanoprobe [-CeFHlqSvVwZ] [-b size] [-o file] [-x opt[=val]] [-D name[=value]] [-I folder] [-L folder] [-U name] [-p pid|name | -c command] [-n program | -s script | -P provider | -m module | -f function]... [argument...]\n       nanoprobe -h | -G [-C] -s provider.d [-o file]\n       nanoprobe restore pid\n       nanoprobe tools\n       nanoprobe [tool] name [-h] [-p pid|name | -c command] [argument...]\n       nanoprobe help [tool]\n       nanoprobe bench [--only experiment] [--out dir]\n       nanoprobe cost [-x maxcost=5%] -p pid -n program",
    after_help = "Examples:\n  nanoprobe -n 'pid$target::malloc:entry { @[ustack()] = count(); }' -p 1234\n  nanoprobe -n 'pid$target:a.out:main:entry { trace(timestamp); }' -c ./program\n  nanoprobe -l -n 'pid$target:libc:str*:entry' -p 1234"
)]
pub struct LowArguments {
    /// Enable the probes of this D program, or of this bare probe description
    #[arg(short = 'n', allow_hyphen_values = true, value_name = "program", action = ArgAction::Append)]
    name: Vec<String>,
    /// Enable the probes of the D program in this file
    #[arg(short = 's', allow_hyphen_values = true, value_name = "script", action = ArgAction::Append)]
    script: Vec<String>,
    /// Enable the probes of a provider, as -n 'provider:::'
    #[arg(short = 'P', allow_hyphen_values = true, value_name = "provider", action = ArgAction::Append)]
    provider: Vec<String>,
    /// Enable the probes of a module, as -n '[provider:]module::'
    #[arg(short = 'm', allow_hyphen_values = true, value_name = "module", action = ArgAction::Append)]
    module: Vec<String>,
    /// Enable the probes of a function, as -n '[[provider:]module:]function:'
    #[arg(short = 'f', allow_hyphen_values = true, value_name = "function", action = ArgAction::Append)]
    function: Vec<String>,
    /// Run the C preprocessor over scripts
    #[arg(short = 'C', overrides_with = "preprocess")]
    preprocess: bool,
    /// Define a macro of the preprocessor
    #[arg(short = 'D', allow_hyphen_values = true, value_name = "name[=value]", action = ArgAction::Append)]
    define: Vec<String>,
    /// Search this folder for the files that scripts include
    #[arg(short = 'I', allow_hyphen_values = true, value_name = "folder", action = ArgAction::Append)]
    include: Vec<String>,
    /// Undefine a macro of the preprocessor
    #[arg(short = 'U', allow_hyphen_values = true, value_name = "name", action = ArgAction::Append)]
    undefine: Vec<String>,
    /// Make what the D libraries in this folder declare known to the program
    #[arg(short = 'L', allow_hyphen_values = true, value_name = "folder", action = ArgAction::Append)]
    library: Vec<String>,
    /// Print the paths of included files
    #[arg(short = 'H', overrides_with = "headers")]
    headers: bool,
    /// Further arguments of the preprocessor, and another one (`-x cppargs`, `-x cpppath`)
    #[arg(skip)]
    preprocessor_arguments: Vec<String>,
    #[arg(skip)]
    preprocessor_path: Option<String>,
    /// How far the standard of C is followed: there is one
    #[arg(short = 'X', hide = true, value_parser = ["a", "c", "s", "t"], overrides_with = "standard")]
    standard: Option<String>,
    /// -64, the one data model
    #[arg(short = '6', hide = true, value_parser = ["4"], overrides_with = "model_64")]
    model_64: Option<String>,
    /// -32: refused
    #[arg(short = '3', hide = true, value_parser = ["2"])]
    model_32: Option<String>,
    /// Print the compiled program
    #[arg(short = 'S', overrides_with = "listing")]
    listing: bool,
    /// At the end, draw the counts and sums by ustack() as a flame graph
    #[arg(long = "flamegraph", value_name = "file.svg")]
    flame_graph: Option<String>,
    /// The form of the results and of what is said while tracing
    #[arg(long = "format", value_name = "text|json", value_parser = FORMATS.map(|format| format.name), default_value = FORMATS[0].name)]
    format: String,
    /// Enable the probe of this number; only those of BEGIN, END and ERROR last
    #[arg(short = 'i', value_name = "id", hide = true, allow_hyphen_values = true, action = ArgAction::Append)]
    id: Vec<String>,
    /// Make the header of provider definitions (-s), whose macros are a program's probes
    #[arg(short = 'h', conflicts_with_all = ["list", "version"], overrides_with = "header")]
    pub header: bool,
    /// Make the object of provider definitions (-s) that is linked with what uses their header
    #[arg(short = 'G', conflicts_with_all = ["list", "version", "header"], overrides_with = "object")]
    pub object: bool,
    /// Refused: there is no anonymous tracing
    #[arg(short = 'A', hide = true)]
    anonymous: bool,
    /// Refused: likewise
    #[arg(short = 'a', hide = true)]
    claim: bool,
    /// Run a command and trace it; $target is its process id. It is killed when the tracing ends first
    #[arg(
        short = 'c',
        allow_hyphen_values = true,
        value_name = "command",
        conflicts_with = "pid"
    )]
    command: Option<String>,
    /// Trace this process, given by its number or its name; $target is its number
    #[arg(short = 'p', allow_hyphen_values = true, value_name = "pid|name")]
    pid: Option<String>,
    /// List the matching probes instead of enabling them (with -v: how each would be patched); without a program, all
    /// that exist already, or those that the process of -p has put on itself by libnanoprobe
    #[arg(short = 'l', overrides_with = "list")]
    list: bool,
    /// Print only what the program prints
    #[arg(short = 'q', overrides_with = "quiet")]
    quiet: bool,
    /// Append the output to this file
    #[arg(
        short = 'o',
        allow_hyphen_values = true,
        value_name = "file",
        overrides_with = "output"
    )]
    output: Option<String>,
    /// Set an option, as `#pragma D option`
    #[arg(short = 'x', allow_hyphen_values = true, value_name = "opt[=val]", action = ArgAction::Append)]
    option: Vec<String>,
    /// Indent entries and returns, as -x flowindent
    #[arg(short = 'F', overrides_with = "flow_indent")]
    flow_indent: bool,
    /// Bytes of a thread's buffer, as -x bufsize
    #[arg(
        short = 'b',
        allow_hyphen_values = true,
        value_name = "size",
        overrides_with = "buffer_size"
    )]
    buffer_size: Option<String>,
    /// Exit after compiling, before anything is touched
    #[arg(short = 'e', overrides_with = "exit")]
    exit: bool,
    /// Say how each site is patched, what was refused and why, and how long the target was stopped
    #[arg(short = 'v', overrides_with = "verbose")]
    verbose: bool,
    /// Print the version of the D language that is spoken, and of nanoprobe
    #[arg(short = 'V', overrides_with = "version")]
    pub version: bool,
    /// Permit destructive actions
    #[arg(short = 'w', overrides_with = "destructive")]
    destructive: bool,
    /// Permit probe descriptions that match nothing
    #[arg(short = 'Z', overrides_with = "zero")]
    zero: bool,
    /// Print this help
    #[arg(long = "help", action = ArgAction::Help)]
    help: Option<bool>,
    /// Macro arguments: $1, $2, ...
    #[arg(value_name = "argument")]
    arguments: Vec<String>,
}

/// The flags of tracing.
///
/// # Errors
/// Clap's.
pub fn parse_trace(words: &[String]) -> Result<Arguments, clap::Error> {
    let matches = LowArguments::command().try_get_matches_from(words)?;
    let mut low = LowArguments::from_arg_matches(&matches)?;
    take_early_options(&mut low);
    if let Some(refusal) = refusal(&low) {
        return Err(LowArguments::command().error(ErrorKind::InvalidValue, refusal));
    }
    let pid = low.pid.as_deref().map(processes::number_of).transpose();
    let pid = pid.map_err(|what| LowArguments::command().error(ErrorKind::ValueValidation, what))?;
    let options = options(&low);
    let preprocessor = preprocessor(&low);
    let mut programs = programs_in_order(&matches, &low);
    if low.list && low.pid.is_none() && programs.is_empty() {
        programs.push(ProgramText::Inline("*:::".to_owned()));
    }
    Ok(Arguments {
        programs,
        command: low.command,
        pid,
        process_name: low.pid.filter(|word| word.parse::<i32>().is_err()),
        list: low.list,
        quiet: low.quiet,
        output: low.output,
        options,
        exit_after_compile: low.exit,
        verbose: low.verbose,
        destructive: low.destructive,
        allow_zero_matches: low.zero,
        listing: low.listing,
        flame_graph: low.flame_graph,
        format: Format::named(&low.format).unwrap_or(FORMATS[0]),
        preprocessor,
        libraries: low.library,
        preprocessor_path: low.preprocessor_path,
        macro_arguments: low.arguments,
    })
}

/// Reads the options that are long forms of flags and must be known before all others: the
/// preprocessor, and libraries.
fn take_early_options(low: &mut LowArguments) {
    for option in std::mem::take(&mut low.option) {
        match option.split_once('=') {
            None if option == "cpp" => low.preprocess = true,
            None if option == "cpphdrs" => low.headers = true,
            Some(("cpppath", value)) => low.preprocessor_path = Some(value.to_owned()),
            Some(("cppargs", value)) => {
                let words = value.split_ascii_whitespace().map(str::to_owned);
                low.preprocessor_arguments.extend(words);
            }
            Some(("define", value)) => low.define.push(value.to_owned()),
            Some(("undef", value)) => low.undefine.push(value.to_owned()),
            Some(("incdir", value)) => low.include.push(value.to_owned()),
            Some(("libdir", value)) => low.library.push(value.to_owned()),
            _ => low.option.push(option),
        }
    }
}

/// `-x`, and the flags that are short forms of one.
fn options(low: &LowArguments) -> Vec<String> {
    let mut options = low.option.clone();
    options.extend(low.flow_indent.then(|| "flowindent".to_owned()));
    options.extend(low.buffer_size.as_ref().map(|size| format!("bufsize={size}")));
    options
}

/// dtrace's flags that do not exist here, and why.
fn refusal(low: &LowArguments) -> Option<&'static str> {
    let refusals = [
        (
            low.anonymous || low.claim,
            "-A, -a: anonymous tracing is of the kernel's start; there is nothing to claim",
        ),
        (
            low.model_32.is_some(),
            "-32: there is one data model, that of 64-bit programs",
        ),
    ];
    refusals.into_iter().find_map(|(is_given, why)| is_given.then_some(why))
}

/// The preprocessor's arguments, if it is to run.
fn preprocessor(low: &LowArguments) -> Option<Vec<String>> {
    if !low.preprocess {
        return None;
    }
    let flagged = |flag: &'static str, values: &[String]| -> Vec<String> {
        values.iter().map(|value| format!("{flag}{value}")).collect()
    };
    let mut given = flagged("-D", &low.define);
    given.extend(flagged("-U", &low.undefine));
    given.extend(flagged("-I", &low.include));
    given.extend(low.headers.then(|| "-H".to_owned()));
    given.extend(low.preprocessor_arguments.iter().cloned());
    Some(given)
}

fn programs_in_order(matches: &ArgMatches, low: &LowArguments) -> Vec<ProgramText> {
    let positions = |id: &str| matches.indices_of(id).into_iter().flatten();
    let mut programs: Vec<(usize, ProgramText)> = Vec::new();
    programs.extend(positions("name").zip(low.name.iter().cloned().map(ProgramText::Inline)));
    programs.extend(positions("id").zip(low.id.iter().map(|id| ProgramText::Inline(of_range(id)))));
    programs.extend(positions("script").zip(low.script.iter().cloned().map(ProgramText::Script)));
    for (id, texts, colons) in [
        ("provider", &low.provider, ":::"),
        ("module", &low.module, "::"),
        ("function", &low.function, ":"),
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

/// The probes of `-i 1-3` by their numbers, perhaps with a predicate and a body.
fn of_range(text: &str) -> String {
    /// More than the number of probes that have the same numbers in every session.
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
