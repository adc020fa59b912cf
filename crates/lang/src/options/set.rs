//! The table of options: each name, the kind of its value, its bounds, and what it sets.

use super::value::Given;
use super::{
    BufferPolicy, Demangle, Encoding, EvaluationTime, OptionError, Options, ReturnForm, SelfScope, StopPolicy,
};
use crate::layout::Limits;

/// The names of all options, for messages and completions.
pub const NAMES: &[&str] = &[
    "agghist",
    "aggpack",
    "aggpercpu",
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
    "cpu",
    "defaultargs",
    "demangle",
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
    "maxframes",
    "noresolve",
    "nspec",
    "printsize",
    "quiet",
    "rawbytes",
    "return",
    "scratchsize",
    "self",
    "specsize",
    "stackindent",
    "statusrate",
    "stop",
    "strsize",
    "switchrate",
    "tactic",
    "trap",
    "ustackframes",
    "verbose",
    "version",
    "zdefs",
];

const MEBIBYTE: u64 = 1 << 20;
/// More processors than any machine has.
const PROCESSORS_MAX: u64 = 65_535;
/// `printsize` when nobody says otherwise.
pub(super) const PRINT_BYTES: u64 = 8192;
/// The scratch memory of a clause.
const SCRATCH_MAX: u64 = 64 << 10;

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
            "aggpercpu" => self.by_processor = given.switch()?,
            "cpu" => self.processor = Some(given.number(0, PROCESSORS_MAX)? as u32),
            "noresolve" => self.no_names = given.switch()?,
            // As in DTrace for Linux, what makes no sense is the default; eight bytes are the least step.
            "printsize" => {
                self.print_bytes = match given.size(0, u64::MAX)? {
                    0 | 65_537.. => PRINT_BYTES,
                    bytes => bytes.next_multiple_of(8),
                };
            }
            "encoding" => {
                self.encoding = given.word("ascii or utf8", &[("ascii", Encoding::Ascii), ("utf8", Encoding::Utf8)])?;
            }
            "nspec" => self.speculations = given.number(0, 256)?,
            "specsize" => self.speculation_bytes = given.size(0, 4096 * MEBIBYTE)?,
            "aggsortkey" => self.sort_by_key = given.switch()?,
            "aggsortrev" => self.sort_reversed = given.switch()?,
            "aggsortpos" => self.sort_position = given.number(0, 1 << 16)? as usize,
            "aggsortkeypos" => self.sort_key_position = given.number(0, 1 << 16)? as usize,
            "jstackframes" => self.jstack_frames = given.number(1, 2048)? as u32,
            "ustackframes" => self.stack_frames = given.number(1, 2048)? as u32,
            "maxframes" => self.stack_frames_max = given.number(1, 2048)? as u32,
            "scratchsize" => self.scratch_bytes = Some(given.size(0, SCRATCH_MAX)?),
            "verbose" => self.listing = given.switch()?,
            "stackindent" => self.stack_indent = given.number(0, 1024)? as u32,
            "bufsize" => self.buffer_bytes = given.room()?,
            "aggsize" => self.aggregation_bytes = given.room()?,
            "dynvarsize" => self.dynamic_bytes = given.room()?,
            "strsize" => self.string_bytes = given.size(2, 65_536)? as u32,
            "switchrate" => self.switch_ns = given.rate()?,
            "aggrate" => self.aggregation_ns = given.rate()?,
            "statusrate" => self.status_ns = given.rate()?,
            "cleanrate" => self.clean_ns = given.rate()?,
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
            "demangle" => {
                self.demangle = given.word(
                    "auto, always or never",
                    &[
                        ("auto", Demangle::Auto),
                        ("always", Demangle::Always),
                        ("never", Demangle::Never),
                    ],
                )?;
            }
            "return" => {
                self.return_form = given.word(
                    "exits, address, value or auto",
                    &[
                        ("exits", ReturnForm::Exits),
                        ("address", ReturnForm::Address),
                        ("value", ReturnForm::Value),
                        ("auto", ReturnForm::Auto),
                    ],
                )?;
            }
            "self" => {
                let words = [("task", SelfScope::Task), ("thread", SelfScope::Thread)];
                self.self_scope = given.word("task or thread", &words)?;
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
            "temporal" => self.temporal = given.switch()?,
            // Stacks of kernels are never taken, and interpreters' frames have no names of their own.
            "stackframes" => {
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
            "nolibs" | "unodefs" => {
                if value.is_some() {
                    given.switch()?;
                }
            }
            // How DTrace links, loads and verifies what it compiles; nothing of it shows in what is printed.
            "linkmode" => given.word(
                "kernel, static or dynamic",
                &[("kernel", ()), ("static", ()), ("dynamic", ())],
            )?,
            "linktype" => given.word("elf or dof", &[("elf", ()), ("dof", ()), ("ELF", ()), ("DOF", ())])?,
            "late" => given.word("dynamic or static", &[("dynamic", ()), ("static", ())])?,
            "lazyload" | "linknommap" => {}
            "bpflog" | "quietresize" => {
                given.switch()?;
            }
            "bpflogsize" | "preallocate" => {
                given.size(0, u64::MAX)?;
            }
            "lockmem" if value == Some("unlimited") => {}
            "lockmem" => {
                given.size(0, u64::MAX)?;
            }
            "pgmax" | "disasm" => {
                given.number(0, u64::from(u32::MAX))?;
            }
            // How many registers its virtual machine may use.
            "iregs" => {
                given.number(1, 8)?;
            }
            "tregs" => {
                given.number(1, u64::from(u32::MAX))?;
            }
            // How far the standard of C is followed: there is one.
            "stdc" => given.word("a, c, s or t", &[("a", ()), ("c", ()), ("s", ()), ("t", ())])?,
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
            jstackframes: self.jstack_frames,
            maxframes: self.stack_frames_max,
        }
    }
}

/// Why an option of DTrace's is refused.
fn not_here(name: &str) -> Option<&'static str> {
    Some(match name {
        "grabanon" | "audit" | "anon" => "there is no anonymous tracing",
        "cpp" | "cpphdrs" | "cpppath" | "cppargs" | "define" | "incdir" | "undef" => {
            "the preprocessor runs before options are read: -C, -D, -I, -U, -H"
        }
        "libdir" => "libraries are read before options are: -L, -x libdir",
        "syslibdir" | "ldpath" => "no D libraries come with it, and nothing is linked",
        "ctypes" | "dtypes" | "ctfpath" | "kdefs" | "knodefs" | "udefs" => {
            "types are those of the text and of the traced program"
        }
        "debug" | "debugassert" => "-v tells what is done, and -S what the program was compiled to",
        "modpath" | "procfspath" | "sysslice" | "useruid" => "there is no kernel's side to tell it to",
        "pcapsize" => "what is printed does not depend on it",
        "core" | "setenv" | "unsetenv" | "amin" | "pspec" | "strip" | "tree" | "oformat" => {
            "it has no meaning for this compiler"
        }
        _ => return None,
    })
}
