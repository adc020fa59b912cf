//! Macro arguments: `$target`, `$pid`, `$1`, `$$1`, ... (the Scripting chapter of the DTrace guide).
//!
//! The caller provides the values, and the front end only replaces the names. A script argument `$1`
//! is replaced by its text (an integer, or an identifier in a probe description). `$$1` is always
//! replaced by its text as a string.

use crate::options::SelfScope;

/// The values of the macro arguments. `None`: the value is unknown, and a program that uses the macro is refused
/// (`D_MACRO_UNDEF`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MacroValues {
    /// `$target`: the process given by `-p` or `-c`.
    pub target: Option<i64>,
    /// `$pid` of the tracer.
    pub pid: Option<i64>,
    /// `$ppid` of the tracer.
    pub ppid: Option<i64>,
    /// `$pgid`.
    pub pgid: Option<i64>,
    /// `$sid`.
    pub sid: Option<i64>,
    /// `$uid`.
    pub uid: Option<i64>,
    /// `$euid`.
    pub euid: Option<i64>,
    /// `$gid`.
    pub gid: Option<i64>,
    /// `$egid`.
    pub egid: Option<i64>,
    /// `$projid` and `$taskid` have no meaning on Linux, but the caller may set them.
    pub projid: Option<i64>,
    /// See [`MacroValues::projid`].
    pub taskid: Option<i64>,
    /// `$0`: the name of the script.
    pub script: Option<String>,
    /// `$1` .. : the script's arguments.
    pub arguments: Vec<String>,
    /// Options that change the meaning of the text.
    pub options: GivenOptions,
}

/// Options of the command line that change the meaning of a text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GivenOptions {
    /// `-x defaultargs`: a missing `$n` is 0 and a missing `$$n` is "" instead of an error. The pragma does the same.
    pub default_arguments: bool,
    /// `-x argref`: arguments need not be used. The pragma does the same.
    pub unused_arguments: bool,
    /// `-x strsize`: the `sizeof` of a string. `None`: the pragma or the default decides.
    pub string_bytes: Option<u32>,
    /// `-x scratchsize`: the limit for `alloca` and the like. `None`: the pragma decides, or else the
    /// size of the scratch memory.
    pub scratch_bytes: Option<u64>,
    /// `-x cpu`: the processor that is traced. The pragma does the same.
    pub processor: Option<u32>,
    /// `-x aggpercpu`: aggregations are also kept for each processor. The pragma does the same.
    pub by_processor: bool,
    /// `-x self`: whether `self->` variables belong to threads or goroutines. `None`: the pragma or the
    /// default decides.
    pub self_scope: Option<SelfScope>,
    /// `-x empty`: a text may be empty. The pragma does the same.
    pub empty: bool,
}

impl MacroValues {
    /// The value of `$name`, if `name` is one of the named integers.
    #[must_use]
    pub fn named(&self, name: &str) -> Option<Option<i64>> {
        Some(match name {
            "target" => self.target,
            "pid" => self.pid,
            "ppid" => self.ppid,
            "pgid" => self.pgid,
            "sid" => self.sid,
            "uid" => self.uid,
            "euid" => self.euid,
            "gid" => self.gid,
            "egid" => self.egid,
            "projid" => self.projid,
            "taskid" => self.taskid,
            _ => return None,
        })
    }
}
