//! Options that change the meaning of the program, or how it is placed.

use super::Kind::{Name, Number, Percent, Switch, Version, Word};
use super::{Row, row};
use crate::options::{EvaluationTime, Follow, ReturnForm, SeccompPolicy, SelfScope, StopPolicy};

pub(super) const ROWS: &[Row] = &[
    row(
        "argref",
        "off",
        Switch(|_, _| {}),
        "arguments (`$1`, ...) need not be used",
    ),
    row(
        "defaultargs",
        "off",
        Switch(|options, on| options.tracing.default_arguments = on),
        "missing `$1` is 0, missing `$$1` is `\"\"`",
    ),
    row(
        "destructive",
        "off",
        Switch(|options, on| options.tracing.destructive = on),
        "`-w`: [actions that change something](actions.md) are permitted",
    ),
    row(
        "empty",
        "off",
        Switch(|_, _| {}),
        "a text without clauses and declarations is no error",
    ),
    row(
        "evaltime",
        "preinit",
        Word(&[
            ("exec", |options| options.tracing.evaluation_time = EvaluationTime::Exec),
            ("preinit", |options| {
                options.tracing.evaluation_time = EvaluationTime::PreInitialization
            }),
            ("postinit", |options| {
                options.tracing.evaluation_time = EvaluationTime::PostInitialization
            }),
            ("main", |options| options.tracing.evaluation_time = EvaluationTime::Main),
        ]),
        "when a command (`-c`) is stopped and instrumented: `exec`, `preinit`, `postinit`, `main`. Functions of \
         its libraries that the linker calls before that (resolvers, `__libc_early_init`) are not traced",
    ),
    row(
        "follow",
        "no",
        Word(&[
            ("no", |options| options.tracing.set_follow(Follow::No)),
            ("fork", |options| options.tracing.set_follow(Follow::Fork)),
            ("exec", |options| options.tracing.set_follow(Follow::Exec)),
            ("all", |options| options.tracing.set_follow(Follow::All)),
        ]),
        "nanoprobe's own: whether children of the target are traced, too. `fork`: the processes that it forks, until they \
         execute another program. `exec`: the programs that it and its children execute. `all`: both. Their `pid` and \
         `ppid` are their own. For a command (`-c`) the default is `all`. See [providers](providers.md#children)",
    ),
    row(
        "maxactive",
        "4096",
        Number(1, 1 << 16, |options, calls| options.tracing.active_calls = calls as u32),
        "calls of one thread whose return addresses may be replaced at a time (see `return`); a process has 65536 in all",
    ),
    row(
        "maxcost",
        "none",
        Percent(|options, hundredths| options.tracing.max_cost = Some(hundredths)),
        "nanoprobe's own: the share of a processor's time that all probes together may take, such as `5%`. Above it the \
         most expensive probes are turned off, and reported",
    ),
    row(
        "return",
        "auto",
        Word(&[
            ("exits", |options| options.tracing.return_form = ReturnForm::Exits),
            ("address", |options| options.tracing.return_form = ReturnForm::Address),
            ("value", |options| options.tracing.return_form = ReturnForm::Value),
            ("auto", |options| options.tracing.return_form = ReturnForm::Auto),
        ]),
        "how a return is detected. `exits`: every exit of the function is probed, and a tail call returns when it \
         jumps, as in DTrace. `address`: the return address is replaced at the entry, as by a kretprobe. `auto`: \
         every `ret` is probed, and the return address is replaced where the function jumps to another one. \
         `value`: as `auto`, but as `address` where `auto` cannot find the return address. See [return probes](returns.md)",
    ),
    row(
        "seccomp",
        "check",
        Word(&[
            ("check", |options| options.tracing.seccomp = SeccompPolicy::Check),
            ("try", |options| options.tracing.seccomp = SeccompPolicy::Try),
        ]),
        "nanoprobe's own: what is done with a process whose seccomp filter cannot be read. `check`: it is traced if its \
         filter is nanoprobe's own, and a child of nanoprobe could make the calls that tracing needs. `try`: it is traced \
         anyway; a filter that kills for such a call kills the process",
    ),
    row(
        "self",
        "task",
        Word(&[
            ("task", |options| options.tracing.self_scope = SelfScope::Task),
            ("thread", |options| options.tracing.self_scope = SelfScope::Thread),
        ]),
        "nanoprobe's own: whether `self->` variables belong to the `task` (in a program of [Go](go.md) the goroutine, \
         elsewhere the thread) or always to the `thread`",
    ),
    row(
        "stop",
        "auto",
        Word(&[
            ("auto", |options| options.tracing.stop = StopPolicy::Auto),
            ("always", |options| options.tracing.stop = StopPolicy::Always),
            ("never", |options| options.tracing.stop = StopPolicy::Never),
        ]),
        "nanoprobe's own: whether all threads are stopped while probes are written: `always`; `never` (except for the \
         first and the last change of signal actions); `auto`, only for few probes",
    ),
    row(
        "syscalls",
        "files",
        Word(&[
            ("files", |options| options.tracing.made_calls = false),
            ("all", |options| options.tracing.made_calls = true),
        ]),
        "nanoprobe's own: where the provider `syscall` sees calls. `files`: in the program, its libraries and the vDSO. \
         `all`: also in code that the program makes or copies at run time. See \
         [system calls](syscalls.md#calls-of-code-that-the-program-makes)",
    ),
    row(
        "tactic",
        "",
        Name("the name of a tactic", |options, name| {
            options.tracing.tactic = Some(name)
        }),
        "nanoprobe's own: force a tactic of patching",
    ),
    row(
        "trap",
        "",
        Name("emulate, boost or step", |options, name| {
            options.tracing.trap = Some(name)
        }),
        "nanoprobe's own: force a form of the tactic `trap`",
    ),
    row(
        "version",
        "",
        Version,
        "the version of D that the program asks for: up to 1.13, or 2.0, which is DTrace for Linux's number. In a text \
         for 1.0 the names of functions that came with 1.1 (`strstr`, `index`, ...) are free",
    ),
    row(
        "zdefs",
        "off",
        Switch(|options, on| options.tracing.allow_unmatched = on),
        "`-Z`: descriptions may match nothing",
    ),
];
