//! `nanoprobe ps`: which processes are traced, and by which tracers.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::process::ExitCode;

use nanoprobe_export::Json;
use nanoprobe_session::Carried;
use nix::unistd::{Uid, User};
use rustix::time::{ClockId, clock_gettime};

use crate::output::message;
use crate::processes::shown;
use crate::traced::{self, Traced};

pub const USAGE: &str = "usage: nanoprobe ps [--json]";

const HELP: &str = "
Lists the processes that are traced, and their tracers.

STATE is `live` while the tracer lives. It is `dead` after the tracer was killed:
`nanoprobe restore PID` or `nanoprobe restore --all` then takes the probes away.
It is `kept` where another tracer that lives needs patches of this one. A process
with several tracers has a line for each.
SITES is the number of probed places, that in the dynamic linker included. SINCE
is the time since the tracer attached (hours:minutes:seconds). USER and COMMAND
are the tracer's. Forked children that the tracer follows have lines of their
own. A `-` or `?` is unknown.

Only processes that you may trace are looked at. --json prints a JSON object for
each of them.
";

/// The width of the table.
const COLUMNS: usize = 80;
/// Bytes of a tracer's command line that are read.
const COMMAND_BYTES: u64 = 4096;
/// From this number of seconds on, days are shown: 100 hours.
const DAYS_FROM: u64 = 360_000;

pub fn help() -> String {
    format!("{USAGE}\n{HELP}")
}

/// The text to print.
///
/// # Errors
/// The exit status, after a message.
pub fn list(as_json: bool) -> Result<String, ExitCode> {
    let found = traced::all().map_err(|error| {
        message(format_args!("cannot list the processes: /proc: {error}"));
        ExitCode::FAILURE
    })?;
    for error in found.failed.iter().chain(&found.unseen) {
        message(error);
    }
    let rows: Vec<Row> = found.traced.into_iter().map(|traced| Row::of(traced, now())).collect();
    if as_json {
        return Ok(rows.into_iter().map(|row| format!("{}\n", row.json())).collect());
    }
    if rows.is_empty() && found.failed.is_empty() && found.unseen.is_empty() {
        message("no process is traced (of those that you may trace)");
    }
    let mut text = format!(
        "{:>7} {:<15} {:<5} {:>6} {:>8} {:>7} {:<8} COMMAND\n",
        "PID", "NAME", "STATE", "SITES", "SINCE", "TRACER", "USER"
    );
    for row in rows {
        let _ = writeln!(text, "{}", row.line());
    }
    Ok(text)
}

/// A traced process as it is shown.
struct Row {
    pid: i32,
    name: String,
    carried: Carried,
    /// The time of the tracing.
    seconds: Option<u64>,
    tracer: Option<i32>,
    /// The tracer's user.
    user: Option<String>,
    /// The tracer's command line.
    command: Option<String>,
}

impl Row {
    fn of(traced: Traced, now: u64) -> Row {
        Row {
            pid: traced.pid,
            name: traced.name,
            carried: traced.carried,
            seconds: seconds(traced.carried.began_ns, now),
            tracer: traced.tracer,
            user: traced.tracer.and_then(user),
            command: traced.tracer.and_then(command),
        }
    }

    fn state(&self) -> &'static str {
        match (self.carried.is_live, self.carried.is_needed) {
            (true, _) => "live",
            (false, true) => "kept",
            (false, false) => "dead",
        }
    }

    fn line(&self) -> String {
        let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        let line = format!(
            "{:>7} {:<15.15} {:<5} {:>6} {:>8} {:>7} {:<8.8} {}",
            self.pid,
            shown(&self.name),
            self.state(),
            self.carried.sites,
            self.seconds.map_or_else(|| "?".to_owned(), since),
            or_none(self.tracer.map(|tracer| tracer.to_string())),
            or_none(self.user.as_deref().map(shown)),
            or_none(self.command.as_deref().map(|command| shown(without_folder(command)))),
        );
        let line: String = line.chars().take(COLUMNS).collect();
        line.trim_end().to_owned()
    }

    fn json(self) -> Json {
        let text = |text: Option<String>| text.map_or(Json::Null, Json::Text);
        let state = self.state();
        Json::Object(vec![
            ("pid", self.pid.into()),
            ("name", self.name.into()),
            ("state", state.into()),
            ("forked", Json::Boolean(self.carried.is_forked)),
            ("sites", (self.carried.sites as u64).into()),
            ("seconds", self.seconds.map_or(Json::Null, Json::from)),
            ("tracer", self.tracer.map_or(Json::Null, Json::from)),
            ("user", text(self.user)),
            ("command", text(self.command)),
        ])
    }
}

/// ns by the clock of the arena's times.
fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    let of = |number: i64| u64::try_from(number).unwrap_or(0);
    of(time.tv_sec)
        .saturating_mul(1_000_000_000)
        .saturating_add(of(time.tv_nsec))
}

/// The seconds since a time; `None` if the time is unknown or in the future.
fn seconds(began_ns: u64, now: u64) -> Option<u64> {
    (1..=now).contains(&began_ns).then(|| (now - began_ns) / 1_000_000_000)
}

fn since(seconds: u64) -> String {
    if seconds >= DAYS_FROM {
        return format!("{}d", seconds / 86_400);
    }
    format!("{}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

fn user(pid: i32) -> Option<String> {
    let uid = fs::metadata(format!("/proc/{pid}")).ok()?.uid();
    Some(match User::from_uid(Uid::from_raw(uid)) {
        Ok(Some(user)) => user.name,
        _ => uid.to_string(),
    })
}

/// A command line without the folder of its program: the table has little room.
fn without_folder(command: &str) -> &str {
    let program = command.split(' ').next().unwrap_or_default();
    let name = program.rfind('/').map_or(0, |slash| slash + 1);
    command.get(name..).unwrap_or(command)
}

/// The beginning of a command line, with blanks between its words.
fn command(pid: i32) -> Option<String> {
    let mut command = Vec::new();
    let file = File::open(format!("/proc/{pid}/cmdline")).ok()?;
    file.take(COMMAND_BYTES).read_to_end(&mut command).ok()?;
    for byte in &mut command {
        if *byte == 0 {
            *byte = b' ';
        }
    }
    Some(String::from_utf8_lossy(&command).trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, command: &str) -> Row {
        Row {
            pid: i32::MAX,
            name: name.to_owned(),
            carried: Carried {
                tracer: 1,
                is_live: true,
                is_needed: false,
                sites: 3,
                began_ns: 0,
                file: ((0, 1), 2),
                is_forked: false,
            },
            seconds: None,
            tracer: Some(7),
            user: Some("someone-with-a-long-name".to_owned()),
            command: Some(command.to_owned()),
        }
    }

    #[test]
    fn a_line_fits_and_cannot_drive_a_terminal() {
        let line = row("\x1b]0;x\x07\n", &"\u{e4}\n\x1b ".repeat(2000)).line();
        assert!(line.chars().count() <= COLUMNS, "{line:?}");
        assert!(!line.chars().any(char::is_control), "{line:?}");
        assert!(line.contains("live       3        ?       7 someone- "), "{line:?}");
    }

    #[test]
    fn only_the_program_loses_its_folder() {
        assert_eq!(without_folder("/usr/bin/nanoprobe -s /a/b.d"), "nanoprobe -s /a/b.d");
        assert_eq!(without_folder("nanoprobe -s /a/b.d"), "nanoprobe -s /a/b.d");
        assert_eq!(without_folder("/"), "");
        assert_eq!(without_folder(""), "");
    }

    #[test]
    fn a_json_object_is_one_line() {
        let json = row("a\nb", "c \"d\"\n").json().to_string();
        assert_eq!(json.lines().count(), 1);
        let read: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(read["name"], "a\nb");
        assert!(read["seconds"].is_null());
    }

    #[test]
    fn a_time_that_cannot_be_is_unknown() {
        assert_eq!(seconds(0, 5), None);
        assert_eq!(seconds(u64::MAX, 5), None);
        assert_eq!(seconds(1, 3_000_000_002), Some(3));
        assert_eq!(since(3_723), "1:02:03");
        assert_eq!(since(u64::MAX), "213503982334601d");
    }
}
