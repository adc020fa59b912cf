//! The three forms of the tactic `trap`.

use std::fmt;
use std::str::FromStr;

/// How the instruction under an `int3` is executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TrapForm {
    /// The signal handler emulates the instruction.
    Emulate,
    /// The thread continues in a relocated copy, with a jump back appended.
    Boost,
    /// The processor executes a copy of the instruction in a single step.
    Step,
}

impl TrapForm {
    /// All forms, in the order in which they are tried.
    pub const ALL: [TrapForm; 3] = [TrapForm::Emulate, TrapForm::Boost, TrapForm::Step];

    /// Its name in options.
    pub fn name(self) -> &'static str {
        match self {
            TrapForm::Emulate => "emulate",
            TrapForm::Boost => "boost",
            TrapForm::Step => "step",
        }
    }
}

/// The name as a site's property: `emulated`, `boosted`, `stepped`.
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
