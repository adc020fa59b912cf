//! The rows of the subroutines.

use super::Kind::{self, Address, Pointer, Size, Text};
use super::{Subroutine, Yields};
use crate::program::{Function, IntegerType};

const fn integer(bytes: u8, signed: bool) -> IntegerType {
    IntegerType { bytes, signed }
}

const fn signed(bytes: u8) -> Yields {
    Yields::Integer(integer(bytes, true))
}

const fn unsigned(bytes: u8) -> Yields {
    Yields::Integer(integer(bytes, false))
}

const INT: Kind = Kind::Integer(integer(4, true));
const LONG: Kind = Kind::Integer(integer(8, true));
const CHARACTER: Kind = Kind::Integer(integer(1, true));
const SHORT: Kind = Kind::Integer(integer(2, false));
const WORD: Kind = Kind::Integer(integer(4, false));
const QUAD: Kind = Kind::Integer(integer(8, false));

/// All subroutines, sorted by their names.
pub(super) const SUBROUTINES: &[Subroutine] = &[
    Subroutine::new("alloca", "alloca(size)", Function::Allocate, &[Size])
        .yields(Yields::Pointer)
        .line("zeroed scratch memory, freed when the clause ends; assigned through a cast: `*(int *)p = 1`"),
    Subroutine {
        optional: 5,
        ..Subroutine::new(
            "argtext",
            "argtext(arg0[, ... arg5])",
            Function::StringJoin,
            &[LONG, LONG, LONG, LONG, LONG, LONG],
        )
        .yields(Yields::String)
        .line(
            "these values as a text of the clause's parameters, by debug information: `id=4, job=0x55d0c63f40a0`. The \
             values are what the entry had in `arg0`, `arg1`, ...; a return can pass what the entry has kept. `?` alone: \
             the debug information is missing, or the functions of the clause differ. `...`: there are more parameters",
        )
    },
    Subroutine::new("basename", "basename(path)", Function::BaseName, &[Text])
        .yields(Yields::String)
        .line("computed from the text; no link is followed"),
    Subroutine::new(
        "bcopy",
        "bcopy(source, destination, size)",
        Function::CopyInTo,
        &[Pointer(None), Pointer(None), Size],
    )
    .line(
        "copies the target's memory, or scratch memory, into scratch memory; the source of `bcopy` may be a \
         string",
    ),
    Subroutine::new("cleanpath", "cleanpath(path)", Function::CleanPath, &[Text])
        .yields(Yields::String)
        .line_of("basename"),
    Subroutine::new("copyin", "copyin(address, size)", Function::CopyIn, &[Address, Size])
        .line("bytes of the target's memory"),
    Subroutine::new(
        "copyinstr",
        "copyinstr(address[, size])",
        Function::CopyInString,
        &[Address, Size],
    )
    .yields(Yields::String)
    .optional()
    .line("a string up to its NUL, of at most `size` or `strsize` bytes"),
    Subroutine::new(
        "copyinto",
        "copyinto(address, size, destination)",
        Function::CopyInTo,
        &[Address, Size, Pointer(None)],
    )
    .line_of("bcopy"),
    Subroutine::new(
        "copyout",
        "copyout(buffer, address, size)",
        Function::CopyOut,
        &[Pointer(None), Address, Size],
    ),
    Subroutine::new(
        "copyoutstr",
        "copyoutstr(string, address, size)",
        Function::CopyOutString,
        &[Text, Address, Size],
    ),
    Subroutine::new("dirname", "dirname(path)", Function::DirectoryName, &[Text])
        .yields(Yields::String)
        .line_of("basename"),
    Subroutine::new("htonl", "htonl(number)", Function::Swap32, &[WORD])
        .yields(unsigned(4))
        .line("the bytes in reverse order"),
    Subroutine::new("htonll", "htonll(number)", Function::Swap64, &[QUAD])
        .yields(unsigned(8))
        .line_of("htonl"),
    Subroutine::new("htons", "htons(number)", Function::Swap16, &[SHORT])
        .yields(unsigned(2))
        .line_of("htonl"),
    Subroutine::new(
        "index",
        "index(string, wanted[, position])",
        Function::Index,
        &[Text, Text, INT],
    )
    .yields(signed(4))
    .optional()
    .since_1_1()
    .line("the position; -1: not found. Positions and empty strings as in Perl"),
    Subroutine::new(
        "inet_ntoa",
        "inet_ntoa(address)",
        Function::AddressToString,
        &[Pointer(Some(4))],
    )
    .yields(Yields::String)
    .line(
        "the text of an address in memory. If an IPv6 address holds an IPv4 \
             address, `inet_ntoa6` writes only that, or with a constant `strict` other than 0 the same as `inet_ntop` \
             (`::ffff:127.0.0.1`). The families are \
         Linux's, `AF_INET` (2) and `AF_INET6` (10). `struct in6_addr`, `in6_addr_t` and `ipaddr_t` exist \
         without any program; the bytes are `in6_u.u6_addr8`, `__in6_u.__u6_addr8`, `__u6_addr.__u6_addr8` \
         and `_S6_un._S6_u8`, as on the various systems",
    ),
    Subroutine::new(
        "inet_ntoa6",
        "inet_ntoa6(address[, strict])",
        Function::AddressToString6,
        &[Pointer(Some(16)), INT],
    )
    .yields(Yields::String)
    .optional()
    .line_of("inet_ntoa"),
    Subroutine::new(
        "inet_ntop",
        "inet_ntop(family, address)",
        Function::AddressToString,
        &[INT, Pointer(None)],
    )
    .yields(Yields::String)
    .line_of("inet_ntoa"),
    Subroutine::new("json", "json(text, path)", Function::Json, &[Text, Text])
        .yields(Yields::String)
        .line(
            "the part of a JSON text that a path (`a.b[2].c`) names; a string without its quotes, anything else \
         unchanged; NULL if there is none, or if the text before it is not JSON (`0x10`, `\\u00AZ`)",
        ),
    Subroutine::new(
        "link_ntop",
        "link_ntop(type, address)",
        Function::LinkToString,
        &[INT, Pointer(None)],
    )
    .yields(Yields::String)
    .line(
        "the text of a hardware address in memory, `02:08:20:ac:04:0e`; the types are `ARPHRD_ETHER` (1) \
         and `ARPHRD_INFINIBAND` (32)",
    ),
    Subroutine::new(
        "lltostr",
        "lltostr(number[, base])",
        Function::NumberToString,
        &[LONG, INT],
    )
    .yields(Yields::String)
    .optional()
    .line("base 2 to 36, otherwise an illegal operation; `lltostr` writes the prefixes `0x` and `0`"),
    Subroutine::new("ntohl", "ntohl(number)", Function::Swap32, &[WORD])
        .yields(unsigned(4))
        .line_of("htonl"),
    Subroutine::new("ntohll", "ntohll(number)", Function::Swap64, &[QUAD])
        .yields(unsigned(8))
        .line_of("htonl"),
    Subroutine::new("ntohs", "ntohs(number)", Function::Swap16, &[SHORT])
        .yields(unsigned(2))
        .line_of("htonl"),
    Subroutine::new("progenyof", "progenyof(pid)", Function::ProgenyOf, &[INT])
        .yields(signed(4))
        .line("whether this was the number of the process or of an ancestor when the tracing began"),
    Subroutine::new("rand", "rand()", Function::Random, &[])
        .yields(signed(4))
        .line("from 0 to 2^31 - 1"),
    Subroutine::new("returntext", "returntext(arg1)", Function::StringJoin, &[LONG])
        .yields(Yields::String)
        .line(
            "this value as a text of the clause's result, by debug information; empty for a function without one. A \
             signed number if the debug information is missing",
        ),
    Subroutine::new(
        "rindex",
        "rindex(string, wanted[, position])",
        Function::LastIndex,
        &[Text, Text, INT],
    )
    .yields(signed(4))
    .optional()
    .since_1_1()
    .line_of("index"),
    Subroutine::new("speculation", "speculation()", Function::Speculation, &[])
        .yields(signed(4))
        .line("a number for [`speculate`](#speculations), from 1; 0 when none is free"),
    Subroutine::new(
        "strchr",
        "strchr(string, character)",
        Function::StringCharacter,
        &[Text, CHARACTER],
    )
    .yields(Yields::String)
    .since_1_1()
    .line("the string from the place found; NULL: not found"),
    Subroutine::new("strjoin", "strjoin(left, right)", Function::StringJoin, &[Text, Text])
        .yields(Yields::String)
        .line("a result longer than `strsize` is out of scratch space"),
    Subroutine::new("strlen", "strlen(string)", Function::StringLength, &[Text])
        .yields(unsigned(8))
        .line("the number of its bytes"),
    Subroutine::new(
        "strrchr",
        "strrchr(string, character)",
        Function::StringLastCharacter,
        &[Text, CHARACTER],
    )
    .yields(Yields::String)
    .since_1_1()
    .line_of("strchr"),
    Subroutine::new(
        "strstr",
        "strstr(string, wanted)",
        Function::StringSearch,
        &[Text, Text],
    )
    .yields(Yields::String)
    .since_1_1()
    .line_of("strchr"),
    Subroutine::new(
        "strtok",
        "strtok(string, separators)",
        Function::StringToken,
        &[Text, Text],
    )
    .yields(Yields::String)
    .since_1_1()
    .line(
        "the first token; `strtok(NULL, ...)`: the next one, also in a later clause of the same probe. NULL \
         at the end, and if there was no string",
    ),
    Subroutine::new(
        "strtoll",
        "strtoll(string[, base])",
        Function::StringToNumber,
        &[Text, INT],
    )
    .yields(signed(8))
    .optional()
    .line_of("lltostr"),
    Subroutine::new(
        "substr",
        "substr(string, index[, length])",
        Function::Substring,
        &[Text, INT, INT],
    )
    .yields(Yields::String)
    .optional()
    .since_1_1()
    .line("a negative index counts from the end; a negative length omits as many characters at the end"),
    Subroutine::new("tolower", "tolower(string)", Function::LowerCase, &[Text])
        .yields(Yields::String)
        .line("changes ASCII letters"),
    Subroutine::new("toupper", "toupper(string)", Function::UpperCase, &[Text])
        .yields(Yields::String)
        .line_of("tolower"),
    Subroutine::new("uframe", "uframe(number)", Function::UserFrame, &[LONG])
        .yields(unsigned(8))
        .line(
            "the address in a frame of the thread's stack, as `ustack()` shows it: 0 is the probe's own place, 1 \
             is `ucaller`, up to 15; 0 if there is no such frame. A variable can hold it. A clause walks the stack once",
        ),
];
