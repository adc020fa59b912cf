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
        "no D libraries come with it, and nothing is linked",
    ),
    (
        &["ctfpath", "ctypes", "dtypes", "kdefs", "knodefs", "udefs"],
        "types are those of the text and of the traced program",
    ),
    (
        &["debug", "debugassert"],
        "-v tells what is done, and -S what the program was compiled to",
    ),
    (
        &["modpath", "procfspath", "sysslice", "useruid"],
        "there is no kernel's side to tell it to",
    ),
    (&["pcapsize"], "what is printed does not depend on it"),
    (
        &[
            "amin", "core", "oformat", "pspec", "setenv", "strip", "tree", "unsetenv",
        ],
        "it has no meaning for this compiler",
    ),
];
