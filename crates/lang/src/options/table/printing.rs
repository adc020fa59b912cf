//! The options for the printed output.

use super::Kind::{Files, Number, Size, Switch, Word};
use super::{Row, row};
use crate::options::fields::PRINT_BYTES;
use crate::options::{Demangle, Encoding};

pub(super) const ROWS: &[Row] = &[
    row(
        "agghist",
        "off",
        Switch(|options, on| options.printing.bar_lines = on),
        "counts, sums, averages and deviations as bars, one line for each key; not of several in one `printa`, \
         nor by a format",
    )
    .changeable(),
    row(
        "aggpack",
        "off",
        Switch(|options, on| options.printing.packed_lines = on),
        "`quantize` and `lquantize` in one line for each key; not of several in one `printa`, nor by a format",
    )
    .changeable(),
    row(
        "aggpercpu",
        "off",
        Switch(|options, on| options.printing.by_processor = on),
        "after each value of an aggregation that no format prints, a line for each processor: `[CPU 0]` and its own \
         value; without a value 0, for `min` and `max` the largest and the smallest number",
    ),
    row(
        "aggsortkey",
        "off",
        Switch(|options, on| options.printing.sort_by_key = on),
        "sort by key",
    )
    .changeable(),
    row(
        "aggsortkeypos",
        "0",
        Number(0, 1 << 16, |options, index| {
            options.printing.sort_key_position = index as usize
        }),
        "which element of the key sorts first",
    )
    .changeable(),
    row(
        "aggsortpos",
        "0",
        Number(0, 1 << 16, |options, index| {
            options.printing.sort_position = index as usize
        }),
        "which aggregation of a `printa` sorts first",
    )
    .changeable(),
    row(
        "aggsortrev",
        "off",
        Switch(|options, on| options.printing.sort_reversed = on),
        "sort in reverse",
    )
    .changeable(),
    row(
        "aggzoom",
        "off",
        Switch(|options, on| options.printing.zoom_distributions = on),
        "bars of distributions are scaled to the longest of them, not to their sum",
    )
    .changeable(),
    row(
        "demangle",
        "auto",
        Word(&[
            ("auto", |options| options.printing.demangle = Demangle::Auto),
            ("always", |options| options.printing.demangle = Demangle::Always),
            ("never", |options| options.printing.demangle = Demangle::Never),
        ]),
        "nanoprobe's own: names of C++ and Rust [as their sources have them](providers.md#names-of-c-and-rust): `auto`, \
         wherever people read them; `always`, also where the program compares and keeps `probefunc`, and in `-l`; `never`",
    ),
    row(
        "droptags",
        "off",
        Switch(|options, on| options.printing.drop_tags = on),
        "messages about drops carry DTrace's tags: `[DTRACEDROP_PRINCIPAL] 5 drops`",
    ),
    row(
        "encoding",
        "",
        Word(&[
            ("ascii", |options| options.printing.encoding = Encoding::Ascii),
            ("utf8", |options| options.printing.encoding = Encoding::Utf8),
        ]),
        "the characters of bars, `ascii` or `utf8`. By default `@`, and block elements for `aggpack`, unless \
         `TERM` is `dumb`",
    )
    .changeable(),
    row(
        "errtags",
        "off",
        Switch(|options, on| options.printing.error_tags = on),
        "messages carry tags; here they always do",
    ),
    row(
        "flowindent",
        "off",
        Switch(|options, on| options.printing.flow_indent = on),
        "`-F` in DTrace: indent by entries and returns",
    )
    .changeable(),
    row(
        "noresolve",
        "off",
        Switch(|options, on| options.printing.no_names = on),
        "frames of stacks have no names: `libc.so.6:0x72930`, the offset in the mapping, as in DTrace for Linux",
    ),
    row(
        "printsize",
        "8192",
        Size(0, u64::MAX, |options, bytes| {
            // As in DTrace for Linux, a senseless value means the default; eight bytes are the smallest step.
            options.printing.print_bytes = match bytes {
                0 | 65_537.. => PRINT_BYTES,
                bytes => bytes.next_multiple_of(8),
            };
        }),
        "how many bytes `print()` shows of the value that a pointer points to; 0, and more than 65536, mean the \
         default. In steps of eight; `setopt` can change it",
    )
    .changeable(),
    row(
        "quiet",
        "off",
        Switch(|options, on| options.printing.quiet = on),
        "`-q`: only what the program prints",
    )
    .changeable(),
    row(
        "rawbytes",
        "off",
        Switch(|options, on| options.printing.raw_bytes = on),
        "`trace` of bytes as a dump, even when they look like text",
    )
    .changeable(),
    row(
        "rotate",
        "none",
        Files(|options, rotation| options.recording.rotation = Some(rotation)),
        "nanoprobe's own: the largest size of the file of `-o`, and how many old files are kept (5): `100m,3`. A full file \
         becomes FILE.1, and FILE.1 becomes FILE.2. A line that has begun ends in the same file",
    ),
    row(
        "stackindent",
        "14",
        Number(0, 1024, |options, spaces| options.printing.stack_indent = spaces as u32),
        "spaces before a frame",
    )
    .changeable(),
    row(
        "top",
        "auto",
        Switch(|options, on| options.tracing.top = Some(on)),
        "nanoprobe's own: on a terminal, the current aggregations are shown every second, with keys to sort, to freeze \
         and to quit; see [the screen](../tools.md#the-screen). By default only tools do this, except with `-c`",
    ),
    row(
        "verbose",
        "off",
        Switch(|options, on| options.printing.listing = on),
        "`-S`: the compiled program is printed",
    ),
];
