//! Options of DTrace that change nothing here: a bad value is refused, a good value is accepted.

use super::Kind::{Anything, Number, Size, SizeOrUnlimited, Switch, Word};
use super::{Row, row};

const LINKING: &str = "nothing is linked";
const VERIFYING: &str = "no verifier of the kernel checks the code";
const NUMBER_MAX: u64 = u32::MAX as u64;

pub(super) const ROWS: &[Row] = &[
    row("bpflog", "", Switch(|_, _| {}), VERIFYING),
    row("bpflogsize", "", Size(0, u64::MAX, |_, _| {}), VERIFYING),
    row(
        "disasm",
        "",
        Number(0, NUMBER_MAX, |_, _| {}),
        "`-S` prints the compiled program",
    ),
    row(
        "iregs",
        "",
        Number(1, 8, |_, _| {}),
        "there is no virtual machine with registers",
    ),
    row(
        "jstackstrsize",
        "",
        Size(0, 4 << 30, |_, _| {}),
        "frames of interpreters have no names of their own",
    ),
    row("late", "", Word(&[("dynamic", |_| {}), ("static", |_| {})]), LINKING),
    row("lazyload", "", Anything, LINKING),
    row(
        "linkmode",
        "",
        Word(&[("kernel", |_| {}), ("static", |_| {}), ("dynamic", |_| {})]),
        LINKING,
    ),
    row("linknommap", "", Anything, LINKING),
    row(
        "linktype",
        "",
        Word(&[("elf", |_| {}), ("dof", |_| {}), ("ELF", |_| {}), ("DOF", |_| {})]),
        LINKING,
    ),
    row("lockmem", "", SizeOrUnlimited, "memory is not locked"),
    row("nolibs", "", Switch(|_, _| {}), "nanoprobe comes without D libraries"),
    row("pgmax", "", Number(0, NUMBER_MAX, |_, _| {}), "one process is traced"),
    row(
        "preallocate",
        "",
        Size(0, u64::MAX, |_, _| {}),
        "memory is allocated when it is needed",
    ),
    row("quietresize", "", Switch(|_, _| {}), "buffers are not resized"),
    row(
        "stdc",
        "",
        Word(&[("a", |_| {}), ("c", |_| {}), ("s", |_| {}), ("t", |_| {})]),
        "there is only one degree of conformance to the standard of C",
    ),
    row(
        "tregs",
        "",
        Number(1, NUMBER_MAX, |_, _| {}),
        "there is no virtual machine with registers",
    ),
    row("unodefs", "", Switch(|_, _| {}), "there are no such definitions"),
];
