//! What is printed, and how.

use super::Kind::{Number, Size, Switch, Word};
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
        "behind each value of an aggregation, where no format prints it, a line for each processor: `[CPU 0]` \
         and its own value; where it had none 0, of `min` and `max` the largest and the smallest number",
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
        "nanoprobe's own: names of C++ and Rust [as their sources have them](providers.md#names-of-c-and-rust): `auto`, in \
         stacks and wherever an address is printed; `always`, also `probefunc` and `-l`; `never`",
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
        "`ascii` or `utf8`: what bars are drawn with. By default `@`, and block elements for `aggpack`, unless \
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
        "frames of stacks have no names: `libc.so.6:0x72930`, the place in the mapping, as DTrace for Linux has \
         it",
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
        "bytes of what a pointer given to `print()` points to that are shown; 0, and more than 65536, is the \
         default. In steps of eight; `setopt` changes it",
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
        "stackindent",
        "14",
        Number(0, 1024, |options, spaces| options.printing.stack_indent = spaces as u32),
        "spaces in front of a frame",
    )
    .changeable(),
    row(
        "verbose",
        "off",
        Switch(|options, on| options.printing.listing = on),
        "`-S`: the compiled program is printed",
    ),
];
