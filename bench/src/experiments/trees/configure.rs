//! A configure script as autoconf writes it: shells, sed, expr and grep, a compiler and its passes, and their children.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::Compared;
use super::run::Probed;
use crate::report::Row;
use crate::{interrupt, peers, programs};

/// The untraced time, at most so many times.
const GOAL: f64 = 1.5;
const NAME: &str = "a configure script, malloc counted: of untraced";
/// The questions of a small project: its compiler, headers, functions, types.
const QUESTIONS: &str = "AC_INIT([sample], [1.0])
AC_PROG_CC
AC_CHECK_HEADERS([stdlib.h string.h unistd.h fcntl.h sys/types.h sys/stat.h sys/socket.h netinet/in.h pthread.h])
AC_CHECK_FUNCS([malloc free open read write mmap munmap socket poll epoll_create fork])
AC_CHECK_SIZEOF([long])
AC_CONFIG_FILES([Makefile])
AC_OUTPUT
";

pub fn measure(rounds: usize, say: &dyn Fn(&str), malloc: &Probed, rows: &mut Vec<Row>) -> Result<()> {
    if peers::find("autoconf").is_none() || peers::find("cc").is_none() {
        rows.push(Row::not_measurable(NAME, "autoconf and cc are not both installed"));
        return Ok(());
    }
    say("making a configure script");
    let script = script()?;
    let mut configures = Compared::new(NAME, "x", |plain, with| {
        ensure!(with.count > 0, "nothing was counted");
        Ok(with.seconds / plain.seconds)
    });
    for round in 1..=rounds {
        interrupt::check()?;
        say(&format!("round {round} of {rounds}: the configure script"));
        configures.round(malloc, &[Path::new("sh"), &script])?;
    }
    rows.extend(configures.rows(Some(GOAL)));
    Ok(())
}

/// A script that goes to a folder of its own and configures there.
fn script() -> Result<PathBuf> {
    let folder = programs::folder()?.join("configured");
    std::fs::create_dir_all(&folder).context("making a folder")?;
    std::fs::write(folder.join("configure.ac"), QUESTIONS).context("writing the questions")?;
    std::fs::write(folder.join("Makefile.in"), "all:\n").context("writing a makefile")?;
    let mut command = Command::new("autoconf");
    let made = command
        .current_dir(&folder)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    ensure!(made.context("running autoconf")?.success(), "autoconf failed");
    let script = folder.join("run");
    let text = format!("cd '{}' && exec ./configure > /dev/null\n", folder.display());
    std::fs::write(&script, text).context("writing the script")?;
    Ok(script)
}
