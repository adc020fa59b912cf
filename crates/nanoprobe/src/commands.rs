//! The words that the command line may begin with.

/// The words, besides the names of tools, that the command line may begin with: each word, and its effect.
pub const COMMANDS: [(&str, &str); 11] = [
    (
        "bench",
        "measures what a probe costs on this machine, beside other tools",
    ),
    (
        "completions",
        "prints what a shell reads to complete command lines: bash, zsh or fish",
    ),
    (
        "cost",
        "takes the flags of tracing, and says what the probes cost the process",
    ),
    (
        "diff",
        "compares two recorded profiles, and draws the difference as a flame graph",
    ),
    ("help", "prints how the command, or a tool, is used"),
    ("manual", "writes the pages of the manual into a folder"),
    (
        "ps",
        "lists the traced processes and their tracers; with --json, as JSON lines",
    ),
    (
        "restore",
        "takes away what a tracer that was killed has left in a process, or with --all in all processes",
    ),
    ("tool", "runs a tool; the word may be left out"),
    ("tools", "lists the tools"),
    ("version", "prints the versions of nanoprobe and of its D"),
];

pub fn words() -> impl Iterator<Item = &'static str> {
    COMMANDS.into_iter().map(|(word, _)| word)
}
