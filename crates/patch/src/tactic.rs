//! The ways in which a site can be patched.

use std::fmt;
use std::str::FromStr;

/// How a site is patched; shown to the user by `-v`. More rungs of the ladder (`pun`, `evict`) may come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Tactic {
    /// One instruction of at least 5 bytes is displaced by `jmp rel32`.
    Jump,
    /// Several whole instructions (or one with the padding behind it) are displaced by `jmp rel32`; the jump's bytes at
    /// their starts are trapping ones.
    Run,
    /// `int3`: a signal for every hit. Makes every instruction probeable.
    Trap,
}

impl Tactic {
    /// All tactics, in the order in which they are tried.
    pub const ALL: [Tactic; 3] = [Tactic::Jump, Tactic::Run, Tactic::Trap];

    /// The word for it in output and options.
    pub fn name(self) -> &'static str {
        match self {
            Tactic::Jump => "jump",
            Tactic::Run => "run",
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
            .ok_or_else(|| format!("unknown tactic `{text}`; there are: jump, run, trap"))
    }
}
