//! The flags of tracing as clap reads them, in groups.

use clap::{ArgAction, Args, Parser};
use nanoprobe_export::FORMATS;

use super::profiles::ProfileFlags;
use crate::wanted::{Rule, Wanted};

/// The flags as given.
#[derive(Parser, Debug)]
#[command(
    name = "nanoprobe",
    disable_version_flag = true,
    disable_help_flag = true,
    about = "Dynamic tracing of running programs, in D, at nanoseconds a probe.",
    override_usage = "nanoprobe [-CeFHlqSvVwZ] [-b size] [-o file] [-x opt[=val]] [-D name[=value]] [-I folder] [-L folder] [-U name] [--service] [-p pid|name... | --exe file | --name name | --cgroup path | --container id | -c command] [-n program | -s script | -P provider | -m module | -f function]... [argument...]\n       nanoprobe -h | -G [-C] -s provider.d [-o file]\n       nanoprobe restore pid|name | --all\n       nanoprobe ps [--json]\n       nanoprobe tools\n       nanoprobe [tool] name [-h] [-p pid|name... | --exe file | -c command] [argument...]\n       nanoprobe help [tool]\n       nanoprobe bench [--only experiment] [--out dir]\n       nanoprobe diff [--flamegraph file.svg] before after\n       nanoprobe cost [-x maxcost=5%] -p pid -n program",
    after_help = "Examples:\n  nanoprobe -n 'pid$target::malloc:entry { @[ustack()] = count(); }' -p 1234\n  nanoprobe -n 'pid$target:libc:malloc:entry { @[pid, execname] = count(); }' -p 1234,postgres\n  nanoprobe -n 'pid$target:a.out:main:entry { trace(timestamp); }' -c ./program\n  nanoprobe -l -n 'pid$target:libc:str*:entry' -p 1234"
)]
pub struct Flags {
    #[command(flatten)]
    pub programs: ProgramFlags,
    #[command(flatten)]
    pub preprocessing: PreprocessorFlags,
    #[command(flatten)]
    pub refused: DTraceFlags,
    #[command(flatten)]
    pub showing: OutputFlags,
    #[command(flatten)]
    pub profiles: ProfileFlags,
    /// Make the header of provider definitions (-s), whose macros are a program's probes
    #[arg(short = 'h', conflicts_with_all = ["list", "version"], overrides_with = "header")]
    pub header: bool,
    /// Make the object of provider definitions (-s) that is linked with what uses their header
    #[arg(short = 'G', conflicts_with_all = ["list", "version", "header"], overrides_with = "object")]
    pub object: bool,
    /// Run a command and trace it; $target is its process id. It is killed when the tracing ends first
    #[arg(
        short = 'c',
        allow_hyphen_values = true,
        value_name = "command",
        conflicts_with_all = ["pid", "exe", "name_of", "cgroup", "container", "service"]
    )]
    pub command: Option<String>,
    #[command(flatten)]
    pub processes: ProcessFlags,
    /// List the matching probes instead of enabling them (with -v: how each would be patched); without a program, all
    /// that exist already, or those that the process of -p has put on itself by libnanoprobe
    #[arg(short = 'l', overrides_with = "list")]
    pub list: bool,
    /// Print only what the program prints
    #[arg(short = 'q', overrides_with = "quiet")]
    pub quiet: bool,
    /// Append the output to this file
    #[arg(
        short = 'o',
        allow_hyphen_values = true,
        value_name = "file",
        overrides_with = "output"
    )]
    pub output: Option<String>,
    #[command(flatten)]
    pub settings: OptionFlags,
    /// Exit after compiling, before anything is touched
    #[arg(short = 'e', overrides_with = "exit")]
    pub exit: bool,
    /// Say how each site is patched, what was refused and why, and how long the target was stopped
    #[arg(short = 'v', overrides_with = "verbose")]
    pub verbose: bool,
    /// Print the version of the D language, and of nanoprobe
    #[arg(short = 'V', overrides_with = "version")]
    pub version: bool,
    /// Permit destructive actions
    #[arg(short = 'w', overrides_with = "destructive")]
    pub destructive: bool,
    /// Permit probe descriptions that match nothing
    #[arg(short = 'Z', overrides_with = "zero")]
    pub zero: bool,
    /// Print this help
    #[arg(long = "help", action = ArgAction::Help)]
    pub help: Option<bool>,
    /// Macro arguments: $1, $2, ...
    #[arg(value_name = "argument")]
    pub arguments: Vec<String>,
}

// The processes to trace.
#[derive(Args, Debug)]
pub struct ProcessFlags {
    /// Trace these processes, given by numbers or names, with commas between them; a name means all that have it;
    /// $target is the number of each
    #[arg(short = 'p', allow_hyphen_values = true, value_name = "pid|name", action = ArgAction::Append)]
    pub pid: Vec<String>,
    /// Trace all processes that run this file, and those that come
    #[arg(long = "exe", value_name = "file", conflicts_with_all = ["name_of", "cgroup", "container"])]
    pub exe: Option<String>,
    /// Trace all processes of this name (with * ? [] as in a shell), and those that come
    #[arg(id = "name_of", long = "name", value_name = "name", conflicts_with_all = ["cgroup", "container"])]
    pub name: Option<String>,
    /// Trace all processes of this cgroup and of those below it, and those that come
    #[arg(long = "cgroup", value_name = "path", conflicts_with = "container")]
    pub cgroup: Option<String>,
    /// Trace all processes of the container whose ID begins like this, and those that come
    #[arg(long = "container", value_name = "id")]
    pub container: Option<String>,
    /// Run as a service: wait for what does not exist yet, open the output anew on SIGHUP, go on when it cannot be
    /// written, tell the service manager, and take away first what a killed nanoprobe has left; docs/service.md
    #[arg(long = "service", overrides_with = "service")]
    pub service: bool,
}

impl ProcessFlags {
    /// The processes that are meant.
    ///
    /// # Errors
    /// A message.
    pub fn wanted(&self) -> Result<Wanted, String> {
        let rule = match (&self.exe, &self.name, &self.cgroup, &self.container) {
            (Some(path), ..) => Some(Rule::executable(path, self.service)?),
            (_, Some(name), ..) => Some(Rule::name(name)?),
            (_, _, Some(path), _) => Some(Rule::cgroup(path, self.service)?),
            (.., Some(id)) => Some(Rule::container(id)?),
            (None, None, None, None) => None,
        };
        if self.service && rule.is_none() {
            return Err(
                "--service: which processes, also those that come? Give --exe, --name, --cgroup or --container"
                    .to_owned(),
            );
        }
        Wanted::new(&self.pid, rule)
    }
}

// Programs, in the order of their positions.
#[derive(Args, Debug)]
pub struct ProgramFlags {
    /// Enable the probes of this D program, or of this bare probe description
    #[arg(short = 'n', allow_hyphen_values = true, value_name = "program", action = ArgAction::Append)]
    pub name: Vec<String>,
    /// Enable the probes of the D program in this file
    #[arg(short = 's', allow_hyphen_values = true, value_name = "script", action = ArgAction::Append)]
    pub script: Vec<String>,
    /// Enable the probes of a provider, as -n 'provider:::'
    #[arg(short = 'P', allow_hyphen_values = true, value_name = "provider", action = ArgAction::Append)]
    pub provider: Vec<String>,
    /// Enable the probes of a module, as -n '[provider:]module::'
    #[arg(short = 'm', allow_hyphen_values = true, value_name = "module", action = ArgAction::Append)]
    pub module: Vec<String>,
    /// Enable the probes of a function, as -n '[[provider:]module:]function:'
    #[arg(short = 'f', allow_hyphen_values = true, value_name = "function", action = ArgAction::Append)]
    pub function: Vec<String>,
    /// Enable the probe of this number; only the numbers of BEGIN, END and ERROR are always the same
    #[arg(short = 'i', value_name = "id", hide = true, allow_hyphen_values = true, action = ArgAction::Append)]
    pub id: Vec<String>,
}

// The flags of the preprocessor.
#[derive(Args, Debug)]
pub struct PreprocessorFlags {
    /// Run the C preprocessor over scripts
    #[arg(short = 'C', overrides_with = "preprocess")]
    pub preprocess: bool,
    /// Define a macro of the preprocessor
    #[arg(short = 'D', allow_hyphen_values = true, value_name = "name[=value]", action = ArgAction::Append)]
    pub define: Vec<String>,
    /// Search this folder for the files that scripts include
    #[arg(short = 'I', allow_hyphen_values = true, value_name = "folder", action = ArgAction::Append)]
    pub include: Vec<String>,
    /// Undefine a macro of the preprocessor
    #[arg(short = 'U', allow_hyphen_values = true, value_name = "name", action = ArgAction::Append)]
    pub undefine: Vec<String>,
    /// Make what the D libraries in this folder declare known to the program
    #[arg(short = 'L', allow_hyphen_values = true, value_name = "folder", action = ArgAction::Append)]
    pub library: Vec<String>,
    /// Print the paths of included files
    #[arg(short = 'H', overrides_with = "headers")]
    pub headers: bool,
    /// Further arguments of the preprocessor, and another one (`-x cppargs`, `-x cpppath`)
    #[arg(skip)]
    pub preprocessor_arguments: Vec<String>,
    #[arg(skip)]
    pub preprocessor_path: Option<String>,
}

// Flags of dtrace that change nothing or are refused.
#[derive(Args, Debug)]
pub struct DTraceFlags {
    /// How far the standard of C is followed: there is one
    #[arg(short = 'X', hide = true, value_parser = ["a", "c", "s", "t"], overrides_with = "standard")]
    pub standard: Option<String>,
    /// -64, the one data model
    #[arg(short = '6', hide = true, value_parser = ["4"], overrides_with = "model_64")]
    pub model_64: Option<String>,
    /// -32: refused
    #[arg(short = '3', hide = true, value_parser = ["2"])]
    pub model_32: Option<String>,
    /// Refused: there is no anonymous tracing
    #[arg(short = 'A', hide = true)]
    pub anonymous: bool,
    /// Refused: likewise
    #[arg(short = 'a', hide = true)]
    pub claim: bool,
}

// The flags for the output and its form.
#[derive(Args, Debug)]
pub struct OutputFlags {
    /// Print the compiled program
    #[arg(short = 'S', overrides_with = "listing")]
    pub listing: bool,
    /// The form of the results and of what is said while tracing
    #[arg(long = "format", value_name = "text|json", value_parser = FORMATS.map(|format| format.name), default_value = FORMATS[0].name)]
    pub format: String,
    /// The same as --format json
    #[arg(long = "json", overrides_with = "json")]
    pub json: bool,
}

// Options, and flags that are short for one.
#[derive(Args, Debug)]
pub struct OptionFlags {
    /// Set an option, as `#pragma D option`
    #[arg(short = 'x', allow_hyphen_values = true, value_name = "opt[=val]", action = ArgAction::Append)]
    pub option: Vec<String>,
    /// Indent entries and returns, as -x flowindent
    #[arg(short = 'F', overrides_with = "flow_indent")]
    pub flow_indent: bool,
    /// Bytes of a thread's buffer, as -x bufsize
    #[arg(
        short = 'b',
        allow_hyphen_values = true,
        value_name = "size",
        overrides_with = "buffer_size"
    )]
    pub buffer_size: Option<String>,
}
