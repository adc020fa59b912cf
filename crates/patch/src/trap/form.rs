//! The three forms of the tactic `trap`.

use std::fmt;
use std::str::FromStr;

/// What becomes of the instruction under an `int3`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TrapForm {
    /// The signal handler does what the instruction does.
    Emulate,
    /// The thread goes on in a relocated copy, with a jump back appended.
    Boost,
    /// The processor executes the instruction's bytes elsewhere, single-stepped.
    Step,
}

impl TrapForm {
    /// All forms, in the order in which they are tried.
    pub const ALL: [TrapForm; 3] = [TrapForm::Emulate, TrapForm::Boost, TrapForm::Step];

    /// The word for it in options.
    pub fn name(self) -> &'static str {
        match self {
            TrapForm::Emulate => "emulate",
            TrapForm::Boost => "boost",
            TrapForm::Step => "step",
        }
    }
}

/// As a site's property: `emulated`, `boosted`, `stepped`.
impl fmt::Display for TrapForm {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            TrapForm::Emulate => "emulated",
            TrapForm::Boost => "boosted",
            TrapForm::Step => "stepped",
        })
    }
}

impl FromStr for TrapForm {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|form| form.name() == text)
            .ok_or_else(|| format!("unknown form of the trap `{text}`; there are: emulate, boost, step"))
    }
}
