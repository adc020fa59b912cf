//! The names of constants, in the order in which strace prints them. Their values are those of the crates libc and
//! linux-raw-sys, except for the few that these do not have.

/// A name and its value.
pub(crate) type Name = (&'static str, u64);

/// Constants of the crate libc.
macro_rules! names {
    ($($name:ident),* $(,)?) => {
        &[$((stringify!($name), libc::$name as i64 as u64)),*]
    };
}

/// Constants of the kernel's headers that the crate libc does not have.
macro_rules! kernel {
    ($($name:ident),* $(,)?) => {
        &[$((stringify!($name), linux_raw_sys::general::$name as i64 as u64)),*]
    };
}

/// Constants with their values.
macro_rules! values {
    ($($name:ident = $value:expr),* $(,)?) => {
        &[$((stringify!($name), $value)),*]
    };
}

mod flags;
pub(crate) mod links;
mod one;

/// The names of a table of flags.
pub(crate) fn flags(table: &str) -> &'static [Name] {
    of(flags::FLAGS, table)
}

/// The names of a table of values.
pub(crate) fn one(table: &str) -> &'static [Name] {
    of(one::ONE, table)
}

fn of(tables: &'static [(&str, &'static [Name])], wanted: &str) -> &'static [Name] {
    let table = tables.iter().find(|(name, _)| *name == wanted);
    table.map_or(&[], |(_, names)| names)
}

/// The names of signals 1 to 31.
pub(crate) static SIGNALS: &[Name] = names! {
    SIGHUP, SIGINT, SIGQUIT, SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE, SIGKILL, SIGUSR1, SIGSEGV, SIGUSR2, SIGPIPE,
    SIGALRM, SIGTERM, SIGSTKFLT, SIGCHLD, SIGCONT, SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU, SIGURG, SIGXCPU, SIGXFSZ,
    SIGVTALRM, SIGPROF, SIGWINCH, SIGIO, SIGPWR, SIGSYS
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meaning::Meaning;
    use crate::prototypes::calls;

    #[test]
    fn each_table_of_the_prototypes_exists() {
        for call in calls() {
            for parameter in &call.parameters {
                let has_names = match parameter.meaning {
                    Meaning::Flags(table) => !flags(table).is_empty(),
                    Meaning::One(table) => !one(table).is_empty(),
                    _ => true,
                };
                assert!(has_names, "{}: {:?}", call.name, parameter.meaning);
            }
        }
    }
}
