//! What clauses of the provider `sched` know of another thread: `args[0]` and `args[1]`.

use super::value_type::{IntegerType, Type};

/// A member of `args[0]`, an `lwpsinfo_t`, or of `args[1]`, a `psinfo_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OtherPart {
    /// `args[0]->pr_lwpid`
    Thread,
    /// `args[1]->pr_pid`
    Process,
    /// `args[1]->pr_ppid`
    Parent,
    /// `args[1]->pr_uid`
    User,
    /// `args[1]->pr_gid`
    Group,
    /// `args[1]->pr_fname`
    Name,
    /// `args[1]->pr_psargs`
    Arguments,
}

impl OtherPart {
    const OF_THREAD: [OtherPart; 1] = [OtherPart::Thread];
    const OF_PROCESS: [OtherPart; 6] = [
        OtherPart::Process,
        OtherPart::Parent,
        OtherPart::User,
        OtherPart::Group,
        OtherPart::Name,
        OtherPart::Arguments,
    ];

    /// The members of `args[number]`.
    #[must_use]
    pub fn of_argument(number: u8) -> &'static [OtherPart] {
        match number {
            0 => &OtherPart::OF_THREAD,
            1 => &OtherPart::OF_PROCESS,
            _ => &[],
        }
    }

    /// Its name in D.
    #[must_use]
    pub fn member(self) -> &'static str {
        match self {
            OtherPart::Thread => "pr_lwpid",
            OtherPart::Process => "pr_pid",
            OtherPart::Parent => "pr_ppid",
            OtherPart::User => "pr_uid",
            OtherPart::Group => "pr_gid",
            OtherPart::Name => "pr_fname",
            OtherPart::Arguments => "pr_psargs",
        }
    }

    /// Whether it is a string.
    #[must_use]
    pub fn is_text(self) -> bool {
        matches!(self, OtherPart::Name | OtherPart::Arguments)
    }

    #[must_use]
    pub fn value_type(self) -> Type {
        let is_signed = !matches!(self, OtherPart::User | OtherPart::Group);
        match self.is_text() {
            true => Type::String,
            false => Type::Integer(IntegerType {
                bytes: 4,
                signed: is_signed,
            }),
        }
    }
}
