//! Options of DTrace without a meaning here, and the reason.

/// Names that are refused for the same reason.
type Refused = (&'static [&'static str], &'static str);

pub(super) const ROWS: &[Refused] = &[
    (&["anon", "audit", "grabanon"], "there is no anonymous tracing"),
    (
        &["cpp", "cppargs", "cpphdrs", "cpppath", "define", "incdir", "undef"],
        "the preprocessor runs before options are read: -C, -D, -I, -U, -H",
    ),
    (&["libdir"], "libraries are read before options are: -L, -x libdir"),
    (
        &["ldpath", "syslibdir"],
        "nanoprobe comes without D libraries, and links nothing",
    ),
    (
        &["ctfpath", "ctypes", "dtypes", "kdefs", "knodefs", "udefs"],
        "types are those of the text and of the traced program",
    ),
    (
        &["debug", "debugassert"],
        "-v reports what is done, and -S prints the compiled program",
    ),
    (
        &["modpath", "procfspath", "sysslice", "useruid"],
        "no part of nanoprobe runs in the kernel",
    ),
    (&["pcapsize"], "the output does not depend on it"),
    (
        &[
            "amin", "core", "oformat", "pspec", "setenv", "strip", "tree", "unsetenv",
        ],
        "it has no meaning for this compiler",
    ),
];
