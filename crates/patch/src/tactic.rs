//! The ways in which a site can be patched.

use std::fmt;
use std::str::FromStr;

/// How a site is patched; shown to the user by `-v`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Tactic {
    /// One instruction of at least 5 bytes is displaced by `jmp rel32`.
    Jump,
    /// Several whole instructions (or one with the padding after it) are displaced by `jmp rel32`; the jump's bytes at
    /// their starts are trapping ones.
    Run,
    /// Fewer than 5 bytes are displaced by `jmp rel32`: its last bytes *are* the bytes of the instructions that
    /// follow, which stay in place, and at which threads can arrive as before.
    Pun,
    /// Fewer than 5 bytes are displaced by a two-byte jump to a *springboard*: a `jmp rel32` in padding nearby, which
    /// is never executed, or in the rear of a displaced instruction. Another kind is a `jmp rel32` that ends with the
    /// first bytes of another jump, for which the next instruction is displaced.
    Evict,
    /// `int3`: a signal for every hit. Makes every instruction probeable.
    Trap,
}

impl Tactic {
    /// All tactics, in the order in which they are tried, except that `pun` and `evict` come before a `run` that
    /// contains a call.
    pub const ALL: [Tactic; 5] = [Tactic::Jump, Tactic::Run, Tactic::Pun, Tactic::Evict, Tactic::Trap];

    /// Its name in output and options.
    pub fn name(self) -> &'static str {
        match self {
            Tactic::Jump => "jump",
            Tactic::Run => "run",
            Tactic::Pun => "pun",
            Tactic::Evict => "evict",
            Tactic::Trap => "trap",
        }
    }
}

impl fmt::Display for Tactic {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

impl FromStr for Tactic {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|tactic| tactic.name() == text)
            .ok_or_else(|| format!("unknown tactic `{text}`; there are: jump, run, pun, evict, trap"))
    }
}
