//! The tools on system calls that show time, input and output, programs and connections.

use std::io::Write as _;
use std::net::TcpListener;

use nanoprobe_tests::left_out::need_command;
use nanoprobe_tests::program::program;

use crate::tool_and_command;

/// The calls of a program and their times are those of syscount: the sum of all is in the last line.
#[test]
fn procsystime_adds_the_times_up() {
    let (lines, _) = tool_and_command("procsystime", &program("snooped.c").display().to_string(), &[]);
    assert_eq!(lines[0], "TIME ns CALL");
    let rows: Vec<(u64, &str)> = lines[1..]
        .iter()
        .filter_map(|line| line.split_once(' '))
        .map(|(time, call)| (time.parse().expect("a time"), call))
        .collect();
    let (last, calls) = rows.split_last().expect("rows");
    assert_eq!(last.1, "TOTAL:");
    assert_eq!(calls.iter().map(|(time, _)| time).sum::<u64>(), last.0, "{lines:?}");
    assert!(calls.is_sorted_by_key(|(time, _)| *time), "{lines:?}");
    for name in ["openat", "kill", "tgkill", "close"] {
        assert_eq!(
            calls.iter().filter(|(_, call)| *call == name).count(),
            1,
            "{name}: {lines:?}"
        );
    }
}

#[test]
fn iosnoop_shows_what_is_read_and_written() {
    let Some(sort) = need_command("iosnoop", "sort") else {
        return;
    };
    let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
    file.write_all(b"seventeen bytes.\n").expect("the file");
    let path = file.path().display().to_string();
    let (lines, stdout) = tool_and_command("iosnoop", &format!("{} {path}", sort.display()), &[]);
    assert_eq!(
        (lines[0].as_str(), stdout.as_str()),
        ("PID TID D FD BYTES ERROR us PATH", "seventeen bytes.\n")
    );
    let rows: Vec<Vec<&str>> = lines[1..].iter().map(|line| line.split(' ').collect()).collect();
    let of_file: Vec<&[&str]> = rows
        .iter()
        .filter(|row| row.last() == Some(&path.as_str()))
        .map(|row| &row[2..6])
        .collect();
    assert_eq!(of_file, [["R", "3", "17", "0"], ["R", "3", "0", "0"]], "{lines:?}");
    let written: Vec<&[&str]> = rows.iter().filter(|row| row[2] == "W").map(|row| &row[2..6]).collect();
    assert_eq!(written, [["W", "1", "17", "0"]], "{lines:?}");
}

#[test]
fn execsnoop_shows_the_programs_of_children() {
    let Some(bash) = need_command("execsnoop", "bash") else {
        return;
    };
    let command = format!(
        "{0} -c '/bin/echo a \"b c\"; /no/such/program; {0} -c \"/bin/true; :\"; true'",
        bash.display()
    );
    let (lines, stdout) = tool_and_command("execsnoop", &command, &[]);
    assert_eq!(
        (lines[0].as_str(), stdout.as_str()),
        ("PID PPID PATH: ARGUMENTS", "a b c\n")
    );
    let rows: Vec<(&str, &str)> = lines[1..].iter().filter_map(|line| line.split_once(" /")).collect();
    let shown: Vec<&str> = rows.iter().map(|(_, call)| *call).collect();
    assert_eq!(
        shown,
        [
            "bin/echo: /bin/echo a b c",
            "no/such/program: /no/such/program",
            &format!(
                "{0}: /{0} -c /bin/true; :",
                bash.display().to_string().trim_start_matches('/')
            ),
            "bin/true: /bin/true"
        ],
        "{lines:?}"
    );
    let ids: Vec<(&str, &str)> = rows.iter().filter_map(|(ids, _)| ids.split_once(' ')).collect();
    let [echo, none, shell, deep] = ids.as_slice() else {
        panic!("{lines:?}")
    };
    assert!(echo.1 == none.1 && none.1 == shell.1, "{lines:?}");
    assert_eq!(deep.1, shell.0, "the shell that was executed is the parent: {lines:?}");
}

#[test]
fn tcpconnect_and_tcpaccept_show_the_other_side() {
    let Some(bash) = need_command("tcpconnect", "bash") else {
        return;
    };
    let server = TcpListener::bind("127.0.0.1:0").expect("a socket");
    let port = server.local_addr().expect("an address").port();
    let command = format!("{} -c 'exec 3<>/dev/tcp/127.0.0.1/{port}; true'", bash.display());
    let (lines, _) = tool_and_command("tcpconnect", &command, &[]);
    assert_eq!(lines[0], "PID TID FD ERROR PORT ADDRESS");
    let rows: Vec<&str> = lines[1..]
        .iter()
        .filter_map(|line| line.splitn(4, ' ').nth(3))
        .collect();
    assert_eq!(rows, [format!("0 {port} 127.0.0.1")], "{lines:?}");
    // decoded.c accepts one connection, of its own.
    let folder = tempfile::tempdir().expect("a folder");
    let command = format!("{} {}", program("decoded.c").display(), folder.path().display());
    let (connected, _) = tool_and_command("tcpconnect", &command, &[]);
    assert_eq!(connected.len(), 2, "{connected:?}");
    let (accepted, _) = tool_and_command("tcpaccept", &command, &[]);
    assert_eq!(
        (accepted.len(), accepted[0].as_str()),
        (2, "PID TID FD LOCAL PORT ADDRESS")
    );
    assert!(accepted[1].ends_with(" 127.0.0.1"), "{accepted:?}");
}

/// The bytes of each connection are those that the program has counted for its two ends.
#[test]
fn tcptop_sums_the_bytes_of_connections() {
    let command = format!("{} 1", program("network.c").display());
    let (lines, stdout) = tool_and_command("tcptop", &command, &[]);
    assert_eq!(lines[0], "PID LOCAL PORT REMOTE PORT RECEIVED SENT");
    let mut expected = std::collections::BTreeMap::<String, (i64, i64)>::new();
    for line in stdout.lines() {
        let [kind, source, target, _, bytes] = *line.split(' ').collect::<Vec<_>>() else {
            continue;
        };
        let ends = |own: &str, other: &str| format!("{own} {other}").replace(',', " ");
        let bytes: i64 = bytes.parse().expect(line);
        match kind {
            "tcp.send" => expected.entry(ends(source, target)).or_default().1 += bytes,
            "tcp.receive" => expected.entry(ends(target, source)).or_default().0 += bytes,
            _ => {}
        }
    }
    let shown = lines[1..].iter().filter_map(|line| {
        let words: Vec<&str> = line.split(' ').collect();
        let [_, address, port, other, other_port, received, sent] = *words else {
            return None;
        };
        let ends = format!("{address} {port} {other} {other_port}");
        Some((ends, (received.parse().ok()?, sent.parse().ok()?)))
    });
    let shown: std::collections::BTreeMap<String, (i64, i64)> = shown.collect();
    assert!(expected.len() > 20, "{stdout}");
    assert_eq!(shown, expected);
}

#[test]
fn dtruss_shows_each_call_in_the_layout_of_dtruss() {
    let (lines, stdout) = tool_and_command("dtruss", &program("snooped.c").display().to_string(), &[]);
    let process = stdout
        .lines()
        .find_map(|line| line.strip_prefix("process "))
        .expect("a process");
    let process: i32 = process.parse().expect("a number");
    assert_eq!(lines[0], "SYSCALL(args) = return");
    let kills: Vec<&String> = lines.iter().filter(|line| line.starts_with("kill(")).collect();
    assert_eq!(kills.len(), 2, "{lines:?}");
    assert!(kills[0].starts_with(&format!("kill(0x{process:X}, 0x0, ")), "{kills:?}");
    assert!(
        kills[0].ends_with(") = 0 0") && kills[1].ends_with(") = -1 3"),
        "{kills:?}"
    );
}
