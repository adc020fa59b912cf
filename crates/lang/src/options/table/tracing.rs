//! Options that change the meaning of the program, or how it is placed.

use super::Kind::{Name, Number, Percent, Switch, Version, Word};
use super::{Row, row};
use crate::options::{EvaluationTime, ReturnForm, SelfScope, StopPolicy};

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
        "when a command (`-c`) is stopped and instrumented: `exec`, `preinit`, `postinit`, `main`. What the \
         linker has called of its libraries by then (resolvers, `__libc_early_init`) is not seen",
    ),
    row(
        "maxactive",
        "4096",
        Number(1, 1 << 16, |options, calls| options.tracing.active_calls = calls as u32),
        "calls of one thread whose return addresses may be replaced at a time (see `return`); 65536 is what a \
         process has in all",
    ),
    row(
        "maxcost",
        "none",
        Percent(|options, hundredths| options.tracing.max_cost = Some(hundredths)),
        "nanoprobe's own: what all probes together may take of a processor's time, as `5%`; the dearest are \
         turned off when they take more, and named",
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
        "how a return is seen: `exits`, every way out of the function is probed, and a tail call returns when \
         it jumps, as in DTrace; `address`, the return address is replaced at the entry (a kretprobe); `auto`, \
         every `ret` is probed, and the return address replaced where the function jumps to another one; \
         `value`, as `auto`, with `address` where that cannot be. See [return probes](returns.md)",
    ),
    row(
        "self",
        "task",
        Word(&[
            ("task", |options| options.tracing.self_scope = SelfScope::Task),
            ("thread", |options| options.tracing.self_scope = SelfScope::Thread),
        ]),
        "nanoprobe's own: whose `self->` variables are: the `task`'s, which in a program of [Go](go.md) is the \
         goroutine and elsewhere the thread, or the `thread`'s",
    ),
    row(
        "stop",
        "auto",
        Word(&[
            ("auto", |options| options.tracing.stop = StopPolicy::Auto),
            ("always", |options| options.tracing.stop = StopPolicy::Always),
            ("never", |options| options.tracing.stop = StopPolicy::Never),
        ]),
        "nanoprobe's own: whether all threads stand still while probes are written: `always`, `never` (but for \
         signal actions, the first and the last time), or `auto`: only for few probes",
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
        "a version of D that the program asks for: up to 1.13, or 2.0, as DTrace for Linux counts. In a text \
         for 1.0 the names of functions that came with 1.1 (`strstr`, `index`, ...) are free",
    ),
    row(
        "zdefs",
        "off",
        Switch(|options, on| options.tracing.allow_unmatched = on),
        "`-Z`: descriptions may match nothing",
    ),
];
