//! The values of macro variables.

use nanoprobe_lang::options::Options;
use nanoprobe_lang::{GivenOptions, MacroValues};

use crate::arguments::{Arguments, ProgramText};

/// The values of `$target`, `$1` and so on.
pub fn macro_values(arguments: &Arguments) -> MacroValues {
    use nix::unistd::{Pid, getegid, geteuid, getgid, getpgrp, getpid, getppid, getsid, getuid};
    // The kernel yields 0 for a parent, a group or a session outside our pid namespace.
    let number = |pid: Pid| i64::from(pid.as_raw());
    let script = arguments.programs.iter().find_map(|program| match program {
        ProgramText::Script(path) => Some(path.clone()),
        ProgramText::Carried { name, .. } => Some(name.clone()),
        ProgramText::Inline(_) | ProgramText::Short { .. } => None,
    });
    let is_on = |name: &str| arguments.options.iter().any(|option| option == name);
    // The value of the last option with this name. An error in the value is reported where the options are read.
    let last = |start: &str| {
        let mut given = arguments.options.iter().rev();
        let option = given.find(|option| option.starts_with(start))?;
        let mut options = Options::default();
        options.set_text(option).is_ok().then_some(options)
    };
    MacroValues {
        target: arguments.processes.pid().map(i64::from),
        pid: Some(number(getpid())),
        ppid: Some(number(getppid())),
        pgid: Some(number(getpgrp())),
        sid: getsid(None).ok().map(number),
        uid: Some(i64::from(getuid().as_raw())),
        euid: Some(i64::from(geteuid().as_raw())),
        gid: Some(i64::from(getgid().as_raw())),
        egid: Some(i64::from(getegid().as_raw())),
        projid: None,
        taskid: None,
        // As in DTrace, a program of the command line has the command's name.
        script: script.or_else(|| Some("nanoprobe".to_owned())),
        arguments: arguments.macro_arguments.clone(),
        options: GivenOptions {
            default_arguments: is_on("defaultargs"),
            unused_arguments: is_on("argref"),
            string_bytes: last("strsize=").map(|options| options.recording.string_bytes),
            scratch_bytes: last("scratchsize=").and_then(|options| options.recording.scratch_bytes),
            processor: last("cpu=").and_then(|options| options.recording.processor),
            by_processor: last("aggpercpu").is_some_and(|options| options.printing.by_processor),
            self_scope: last("self=").map(|options| options.tracing.self_scope),
            empty: is_on("empty"),
        },
    }
}
