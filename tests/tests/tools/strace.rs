//! The tool `strace` beside strace itself: the same program makes the same calls, and both print the same lines.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use nanoprobe_tests::command::run;
use nanoprobe_tests::left_out::{left_out, need_command};
use nanoprobe_tests::program::program;
use nanoprobe_tests::tracer::nanoprobe;

/// What a tracer has written to a file; `None`: it cannot trace here.
fn traced(command: &mut Command, output: &Path) -> Option<String> {
    let _ = std::fs::remove_file(output);
    let finished = run(command);
    let text = std::fs::read_to_string(output).unwrap_or_default();
    for sign in ["drop", "missed"] {
        assert!(!finished.stderr.contains(sign), "{}", finished.stderr);
    }
    if text.is_empty() {
        left_out(
            "lines of strace",
            finished.stderr.lines().next().unwrap_or("strace failed"),
        );
        return None;
    }
    Some(text)
}

fn by_nanoprobe(arguments: &[&str], command: &str) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let output = folder.path().join("lines");
    let mut tool = Command::new(nanoprobe());
    tool.args(["tool", "strace", "-o"])
        .arg(&output)
        .args(arguments)
        .args(["-c", command]);
    traced(&mut tool, &output).expect("nanoprobe traces")
}

fn by_strace(strace: &Path, arguments: &[&str], command: &[&str]) -> Option<String> {
    let folder = tempfile::tempdir().expect("a folder");
    let output = folder.path().join("lines");
    let mut tool = Command::new(strace);
    tool.arg("-o").arg(&output).args(arguments).args(command);
    traced(&mut tool, &output)
}

/// Lines without what differs between two runs: addresses, processes, ports, random bytes.
fn normalised(text: &str) -> Vec<String> {
    let lines = text.lines().filter(|line| !line.starts_with("---"));
    let lines = lines.map(|line| {
        let mut words = String::new();
        let mut rest = line;
        while let Some(at) = rest.find("0x") {
            let end = rest[at + 2..].find(|digit: char| !digit.is_ascii_hexdigit());
            let end = end.map_or(rest.len(), |end| at + 2 + end);
            words += &rest[..at];
            // Shorter ones are numbers that both print.
            words += if end - at > 9 { "ADDRESS" } else { &rest[at..end] };
            rest = &rest[end..];
        }
        words += rest;
        // How long a child has run, and how much of a time is left, is another time in each run.
        let words = [", {ru_utime", "left {tv_sec"]
            .iter()
            .fold(words, |words, cut| match words.find(cut) {
                Some(at) => words[..at].to_owned(),
                None => words,
            });
        let words = numbered_everywhere(&words, "htons(");
        let name = words.split('(').next().unwrap_or_default().to_owned();
        match name.as_str() {
            "getrandom" => "getrandom(...)".to_owned(),
            "getpid" | "getppid" | "getpgrp" | "set_tid_address" | "gettid" | "clone" | "getpgid" => {
                let begin = words
                    .rsplit_once("= ")
                    .map_or(words.as_str(), |(begin, _)| begin.trim_end());
                begin.to_owned()
            }
            "kill" if !words.contains("-1000000") => numbered(&words, "kill("),
            "wait4" if !words.contains("wait4(-1") => {
                let words = numbered(&words, "wait4(");
                words
                    .rsplit_once("= ")
                    .map_or(words.clone(), |(begin, _)| begin.to_owned())
            }
            "brk" => "brk(...)".to_owned(),
            // What the tracers have written there.
            "newfstatat" if words.starts_with("newfstatat(2, ") => numbered(&words, "st_size="),
            "lseek" if words.starts_with("lseek(2, ") => numbered(&words, "= "),
            // The state of the machine.
            "sysinfo" => {
                let words = words.split(|letter: char| letter.is_ascii_digit());
                words.filter(|part| !part.is_empty()).collect::<Vec<_>>().join("N")
            }
            _ => words,
        }
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
    });
    lines.collect()
}

/// A line in which the number after a word is N.
fn numbered(line: &str, word: &str) -> String {
    let Some(at) = line.find(word).map(|at| at + word.len()) else {
        return line.to_owned();
    };
    let end = line[at..]
        .find(|digit: char| !digit.is_ascii_digit())
        .map_or(line.len(), |end| at + end);
    format!("{}N{}", &line[..at], &line[end..])
}

/// As [`numbered`], at each such word.
fn numbered_everywhere(line: &str, word: &str) -> String {
    let mut parts = line.split(word);
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |before, part| before + &numbered(&format!("{word}{part}"), word))
}

/// The lines between the two marks of the program.
fn between_marks(lines: Vec<String>) -> Vec<String> {
    let at = |mark: &str| lines.iter().position(|line| line.contains(mark));
    let (Some(begin), Some(end)) = (at("/marker/begin"), at("/marker/end")) else {
        panic!("no marks: {lines:#?}");
    };
    lines[begin..=end].to_vec()
}

#[test]
fn each_call_is_printed_as_strace_prints_it() {
    let Some(strace) = need_command("lines of strace", "strace") else {
        return;
    };
    let program = program("decoded.c");
    let lines = |text: &str| between_marks(normalised(text));
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().to_str().expect("a path");
    let program = program.to_str().expect("a path");
    let Some(expected) = by_strace(&strace, &[], &[program, path]) else {
        return;
    };
    let expected = lines(&expected);
    let found = lines(&by_nanoprobe(&[], &format!("{program} {path}")));
    for (found, expected) in found.iter().zip(&expected) {
        assert_eq!(found, expected);
    }
    assert_eq!(found.len(), expected.len());
    assert!(expected.len() > 200, "{}", expected.len());
    // A set of calls, and more bytes of each buffer.
    let options = ["-e", "trace=read,write,getpriority,access", "-s", "64"];
    let Some(expected) = by_strace(&strace, &options, &[program, path]) else {
        return;
    };
    let found = by_nanoprobe(&options, &format!("{program} {path}"));
    // strace shows a call without a name even if it is not asked for.
    let mut expected = lines(&expected);
    expected.retain(|line| !line.starts_with("syscall_0x"));
    assert_eq!(lines(&found), expected);
}

/// `-y`: the paths of descriptors, of the current folder, and of new descriptors.
#[test]
fn descriptors_have_their_paths() {
    let Some(strace) = need_command("lines of strace", "strace") else {
        return;
    };
    let program = program("decoded.c");
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().to_str().expect("a path");
    let program = program.to_str().expect("a path");
    // Descriptors within structures have no paths here: those of pipe2, poll, select, and of messages.
    let calls = "trace=access,openat,close,read,write,pread64,pwrite64,readv,writev,lseek,newfstatat,statx,dup,dup2,dup3,\
                 fcntl,ftruncate,fsync,socket,bind,connect,accept4,getsockname,getpeername,setsockopt,sendto,recvfrom,\
                 listen,shutdown,eventfd2,epoll_create1,timerfd_create,inotify_init1,sendfile,ioctl,getdents64";
    let options = ["-y", "-e", calls];
    let Some(expected) = by_strace(&strace, &options, &[program, path]) else {
        return;
    };
    let lines = |text: &str| {
        let all = between_marks(normalised(text));
        let plain = |line: String| numbered_everywhere(&numbered_everywhere(&line, "socket:["), "pipe:[");
        all.into_iter().map(plain).collect::<Vec<_>>()
    };
    let expected = lines(&expected);
    let found = lines(&by_nanoprobe(&options, &format!("{program} {path}")));
    let expected: Vec<String> = expected
        .into_iter()
        .filter(|line| !line.starts_with("syscall_0x"))
        .collect();
    for (found, expected) in found.iter().zip(&expected) {
        assert_eq!(found, expected);
    }
    assert_eq!(found.len(), expected.len());
    let with_paths = expected.iter().filter(|line| line.contains(&format!("<{path}")));
    assert!(with_paths.count() > 20, "{expected:#?}");
}

/// Programs of the system: each line that nanoprobe prints, strace prints as often.
#[test]
fn lines_of_ordinary_programs_are_those_of_strace() {
    let Some(strace) = need_command("lines of strace", "strace") else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    for name in ["one", "two", "three"] {
        std::fs::write(folder.path().join(name), "text\nof lines\n").expect("a file");
    }
    let path = folder.path().to_str().expect("a path");
    let script = "cd \"$0\"; for i in 1 2 3; do [ -e one ] && echo $i; done; read line < two; echo $line";
    let (one, two) = (format!("{path}/one"), format!("{path}/two"));
    let file = format!("file://{one}");
    let python = python();
    let programs: [&[&str]; 6] = [
        &["ls", "-lR", path],
        &["cat", &one, &two, "/no/such/file"],
        &["bash", "-c", script, path],
        &["tar", "-cf", "/dev/null", "-C", path, "one", "two", "three"],
        &[&python, "-c", "print(1)"],
        &["curl", "-s", &file],
    ];
    for words in programs {
        let mut words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let Some(program) = need_command("lines of strace", &words[0]) else {
            continue;
        };
        words[0] = program.display().to_string();
        let plain: Vec<&str> = words.iter().map(String::as_str).collect();
        let quoted: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
        let Some(expected) = by_strace(&strace, &[], &plain) else {
            return;
        };
        let mut left: BTreeMap<String, usize> = BTreeMap::new();
        for line in normalised(&expected) {
            *left.entry(line).or_default() += 1;
        }
        let found = normalised(&by_nanoprobe(&[], &quoted.join(" ")));
        let is_same = |line: &&String| !VARYING.iter().any(|name| line.starts_with(name));
        let mut compared = 0;
        for line in found.iter().filter(is_same) {
            let count = left
                .get_mut(line)
                .unwrap_or_else(|| panic!("{}: only nanoprobe: {line}", words[0]));
            assert!(*count > 0, "{}: more often by nanoprobe: {line}", words[0]);
            *count -= 1;
            compared += 1;
        }
        let rest = left
            .iter()
            .filter(|(line, count)| **count > 0 && is_same(line))
            .map(|(line, _)| line.as_str());
        let rest: Vec<&str> = rest.collect();
        // What strace sees before the libraries are mapped and announced.
        let are_early = rest.iter().all(|line| EARLY.iter().any(|name| line.starts_with(name)));
        assert!(are_early, "{}: only strace: {rest:#?}", words[0]);
        assert!(compared > 20, "{}: {compared}", words[0]);
    }
}

/// The program itself: what is found may be a script that executes it, and strace follows that.
fn python() -> String {
    let name = "python3".to_owned();
    let mut asked = Command::new(&name);
    let path = asked.args(["-c", "import sys; print(sys.executable)"]).output();
    let path = path.map(|asked| String::from_utf8_lossy(&asked.stdout).trim().to_owned());
    path.ok().filter(|path| !path.is_empty()).unwrap_or(name)
}

/// Calls whose arguments depend on where the kernel has put things, or on the machine's state.
const VARYING: [&str; 6] = ["brk", "mmap", "munmap", "mremap", "mprotect", "getrandom"];
/// Calls of the linker and of the C library before the probes are in place.
const EARLY: [&str; 3] = ["execve(", "prlimit64(", "+++"];

/// A line in which each digit is a 0.
fn without_numbers(line: &str) -> String {
    line.chars()
        .map(|letter| if letter.is_ascii_digit() { '0' } else { letter })
        .collect()
}

/// The times before the lines, after them, and of the end.
#[test]
fn times_have_the_form_that_strace_gives_them() {
    let Some(strace) = need_command("lines of strace", "strace") else {
        return;
    };
    let Some(cat) = need_command("lines of strace", "cat") else {
        return;
    };
    let cat = cat.to_str().expect("a path");
    for option in ["-t", "-tt", "-ttt", "-r", "-T"] {
        let options = [option, "-e", "trace=read,write,close,exit_group"];
        let Some(expected) = by_strace(&strace, &options, &[cat, "/dev/null", "/no/such/file"]) else {
            return;
        };
        let found = by_nanoprobe(&options, &format!("{cat} /dev/null /no/such/file"));
        let lines = |text: &str| -> Vec<String> { text.lines().map(without_numbers).collect() };
        let (found, expected) = (lines(&found), lines(&expected));
        // strace has the calls before the libraries are announced, too.
        let before = expected.len() - found.len();
        assert_eq!(found, expected[before..], "{option}");
        assert!(found.len() > 6, "{option}: {found:#?}");
        assert!(
            found.last().is_some_and(|line| line.ends_with("+++ exited with 0 +++")),
            "{option}: {found:#?}"
        );
    }
}

/// The lines of each thread without those of signals, the threads in the order of their first lines.
fn by_thread(text: &str) -> Vec<Vec<String>> {
    let mut threads: Vec<(&str, Vec<String>)> = Vec::new();
    for line in text.lines() {
        let (thread, rest) = line.split_once(' ').unwrap_or_else(|| panic!("{line}"));
        let at = threads.iter().position(|(known, _)| *known == thread);
        let at = at.unwrap_or_else(|| {
            threads.push((thread, Vec::new()));
            threads.len() - 1
        });
        let rest = rest.trim_start();
        if !rest.starts_with("---") {
            threads[at].1.push(rest.to_owned());
        }
    }
    threads.into_iter().map(|(_, lines)| lines).collect()
}

/// The lines of a thread in which those that were divided are whole again.
fn whole(lines: Vec<String>) -> Vec<String> {
    let mut begun = String::new();
    let mut all = Vec::new();
    for line in lines {
        if let Some(first) = line.strip_suffix(" <unfinished ...>") {
            first.clone_into(&mut begun);
            continue;
        }
        all.push(
            match line.strip_prefix("<... ").and_then(|rest| rest.split_once(" resumed>")) {
                Some((_, second)) => std::mem::take(&mut begun) + second,
                None => line,
            },
        );
    }
    all
}

/// `-f -o`: each process has the lines that strace gives it.
#[test]
fn children_have_the_lines_that_strace_gives_them() {
    let Some(strace) = need_command("lines of strace", "strace") else {
        return;
    };
    let Some(bash) = need_command("lines of strace", "bash") else {
        return;
    };
    let bash = bash.to_str().expect("a path");
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("file").display().to_string();
    let script = format!("echo a > {path}; (echo b; exit 3) >> {path}; (read x; (exit 5)) < {path}; echo c >> {path}");
    let options = ["-f", "-e", "trace=openat,read,write,dup2,getcwd,exit_group"];
    let Some(expected) = by_strace(&strace, &options, &[bash, "-c", &script]) else {
        return;
    };
    let found = by_nanoprobe(&options, &format!("{bash} -c '{script}'"));
    let lines = |text: &str| -> Vec<Vec<String>> { by_thread(text).into_iter().map(whole).collect() };
    let (mut found, mut expected) = (lines(&found), lines(&expected));
    assert_eq!((found.len(), expected.len()), (4, 4), "{found:#?} {expected:#?}");
    // strace has the calls of the first process before its libraries are announced, too.
    let before = expected[0].len() - found[0].len();
    expected[0].drain(..before);
    for (found, expected) in found.iter_mut().zip(&mut expected) {
        *found = normalised(&found.join("\n"));
        *expected = normalised(&expected.join("\n"));
    }
    assert_eq!(found, expected);
    let ends = found.iter().filter_map(|lines| lines.last().map(String::as_str));
    let ends: Vec<&str> = ends.collect();
    assert_eq!(
        ends,
        [0, 3, 5, 5].map(|status| format!("+++ exited with {status} +++")),
        "{found:#?}"
    );
}

/// `-f`: a call in which a thread waits has two lines if others come between.
#[test]
fn calls_of_several_threads_are_divided_as_strace_divides_them() {
    let Some(strace) = need_command("lines of strace", "strace") else {
        return;
    };
    let program = program("overlapping.c");
    let program = program.to_str().expect("a path");
    let options = ["-f", "-e", "trace=read,poll,pause,getppid,exit,exit_group"];
    let Some(expected) = by_strace(&strace, &options, &[program]) else {
        return;
    };
    let found = by_nanoprobe(&options, program);
    let lines = |text: &str| -> Vec<Vec<String>> {
        let mut threads = by_thread(text);
        // What the linker reads.
        let first = threads[0].iter().position(|line| line.starts_with("getppid"));
        let first = first.unwrap_or_else(|| panic!("{threads:#?}"));
        threads[0].drain(..first);
        // Its last calls are divided or not: the end of the reader comes at any time.
        threads[0] = whole(std::mem::take(&mut threads[0]));
        threads.into_iter().map(|lines| normalised(&lines.join("\n"))).collect()
    };
    let (found, expected) = (lines(&found), lines(&expected));
    assert_eq!(found, expected);
    let of_reader = [
        "read(3, <unfinished ...>",
        "<... read resumed>\"hello\", 9) = 5",
        "exit(0) = ?",
        "+++ exited with 0 +++",
    ];
    assert_eq!(found[1], of_reader);
    let of_poller = [
        "poll([{fd=5, events=POLLIN}], 1, -1 <unfinished ...>",
        "<... poll resumed> <unfinished ...>) = ?",
        "+++ exited with 5 +++",
    ];
    assert_eq!((found.len(), &found[2][..]), (4, &of_poller.map(str::to_owned)[..]));
}

/// Calls and errors of each call in a table; those that vary, and those that are made too early, are left out.
fn counted(table: &str) -> BTreeMap<String, (u64, u64)> {
    let mut rows = BTreeMap::new();
    for line in table.lines().filter(|line| !line.contains("syscall")) {
        // % time, seconds, usecs/call, calls, perhaps errors, syscall
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |index: usize| words.get(index).and_then(|word| word.parse::<u64>().ok());
        let (Some(calls), Some(name)) = (number(3), words.last()) else {
            continue;
        };
        rows.insert((*name).to_owned(), (calls, number(4).unwrap_or(0)));
    }
    assert!(rows.remove("total").is_some(), "{table}");
    rows
}

/// `--summary-only` counts what `strace -c` counts, and `-C` prints the lines besides.
#[test]
fn the_summary_counts_what_strace_counts() {
    let Some(strace) = need_command("lines of strace", "strace") else {
        return;
    };
    let program = program("decoded.c");
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().to_str().expect("a path");
    let program = program.to_str().expect("a path");
    // Calls that the linker does not make.
    let calls = "trace=lseek,pwrite64,writev,readv,statx,fcntl,dup3,mkdir,unlink,rmdir,poll,epoll_wait,ppoll,select,\
                 connect,sendmsg,recvmsg,sendmmsg,recvmmsg,bind,socket,kill,rt_sigreturn,wait4,clone,exit_group";
    let Some(expected) = by_strace(&strace, &["-c", "-e", calls], &[program, path]) else {
        return;
    };
    let command = format!("{program} {path}");
    let expected = counted(&expected);
    let found = by_nanoprobe(&["--summary-only", "-e", calls], &command);
    assert_eq!(counted(&found), expected, "{found}");
    assert!(expected.len() > 20, "{expected:?}");
    assert!(
        expected["connect"].1 > 10 && expected["rt_sigreturn"].0 == 1,
        "{expected:?}"
    );
    assert!(!found.contains('('), "{found}");
    let both = by_nanoprobe(&["-C", "-e", calls], &command);
    let (lines, table) = both.split_once("% time").expect("a table");
    assert_eq!(counted(table), expected, "{both}");
    assert_eq!(lines.matches("wait4(").count() as u64, expected["wait4"].0, "{both}");
}

/// Reading /proc/locks takes seconds on a busy machine. Only who finds another tracer's arena needs it.
#[test]
fn a_tracer_that_is_alone_does_not_ask_for_locks() {
    let Some(strace) = need_command("the tracer's own calls", "strace") else {
        return;
    };
    let tracer = nanoprobe();
    let words = [
        tracer.to_str().expect("a path"),
        "tool",
        "strace",
        "-o",
        "/dev/null",
        "-c",
        "cat /dev/null",
    ];
    let Some(calls) = by_strace(&strace, &["-e", "trace=openat"], &words) else {
        return;
    };
    let opened = |name: &str| calls.lines().filter(|line| line.contains(name)).count();
    assert!(opened("/maps\"") > 5, "{calls}");
    assert_eq!(opened("\"/proc/locks\""), 0, "{calls}");
}
