//! The tools on real programs that already run. Their counts are compared with the program's own counts, or with the
//! requests of its clients. Tracing is ended by Ctrl-C, or by the end of the program.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;

use nanoprobe_tests::command::{Finished, Running, run};
use nanoprobe_tests::left_out::{left_out, need_command};
use nanoprobe_tests::postgres::Server;
use nanoprobe_tests::program::program;
use nanoprobe_tests::text::Snapshot;
use nanoprobe_tests::tracer::{assert_nothing_lost, nanoprobe, start_waiting, wait_until_tracing};
use nix::sys::signal::Signal;

/// A tool that is tracing.
struct Tool {
    running: Running,
    results: tempfile::NamedTempFile,
}

impl Tool {
    /// Starts a tool on a running process; returns when it traces.
    #[track_caller]
    fn attach(name: &str, pid: i32, arguments: &[&str]) -> Tool {
        let results = tempfile::NamedTempFile::new().expect("a temporary file");
        let mut command = Command::new(nanoprobe());
        command.args(["tool", name, "-v", "-p", &pid.to_string(), "-o"]);
        command.arg(results.path()).args(arguments);
        let mut running = Running::start(&mut command);
        wait_until_tracing(&mut running);
        Tool { running, results }
    }

    /// Ctrl-C; then its output, as words.
    #[track_caller]
    fn interrupt(self) -> Vec<Vec<String>> {
        self.running.signal(Signal::SIGINT);
        self.finish()
    }

    /// Its output after it has ended.
    #[track_caller]
    fn finish(self) -> Vec<Vec<String>> {
        let finished: Finished = self.running.finish().success();
        assert_nothing_lost(&finished.stderr);
        let text = std::fs::read_to_string(self.results.path()).expect("the results");
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect();
        text.lines().filter(|line| !line.trim().is_empty()).map(words).collect()
    }
}

/// Every query appears once, by either protocol, with failures marked as such, whatever the failure is, and wherever in
/// a transaction. A query that is only parsed, and a transaction that its client gives up, are no failures.
#[test]
fn sqlslower_shows_what_the_client_sent() {
    let Some(server) = Server::start("sqlslower on a server") else {
        return;
    };
    let mut client = server.connect();
    let snapshot = Snapshot::take(client.pid);
    let tool = Tool::attach("sqlslower", client.pid, &["0"]);
    for number in 0..40 {
        client.query(&format!("select 'simple', {number}"));
        client.execute(&format!("select 'extended', {number}"));
        if number % 10 == 0 {
            client.query("select 'failing' || 1 / 0");
            client.execute("select 'failing' || 1 / (select 0)");
        }
    }
    assert_eq!((client.done, client.failed), (80, 8));
    client.prepare("select 'parsed only'");
    client.query("selct 'misspelled'");
    client.execute("selct 'misspelled'");
    // This query fails by a division by zero, after it has been executed for 60 ms.
    client.execute("select 1 / (select 0 from pg_sleep(0.06))");
    // The limit is long enough for the short queries below, on a busy machine too.
    client.query("set statement_timeout = 1000");
    client.query("select pg_sleep(60)");
    client.execute("select pg_sleep(61)");
    client.query("begin");
    client.execute("rollback");
    client.query("begin");
    client.query("select nothing");
    client.query("select 'refused, since that failed'");
    client.query("rollback");
    client.prepare("select 'parsed only'");
    assert_eq!((client.done, client.failed), (85, 15));
    let lines = tool.interrupt();
    snapshot.assert_restored(client.pid);
    let shown: Vec<String> = lines
        .iter()
        .filter(|line| line[0].parse::<u64>().is_ok())
        .map(|line| line[1..].join(" "))
        .collect();
    let mut sent: Vec<String> = Vec::new();
    for number in 0..40 {
        sent.extend(["simple", "extended"].map(|protocol| format!("select '{protocol}', {number}")));
        if number % 10 == 0 {
            sent.push("FAILED select 'failing' || 1 / 0".to_owned());
            sent.push("FAILED select 'failing' || 1 / (select 0)".to_owned());
        }
    }
    let others = [
        "FAILED selct 'misspelled'",
        "FAILED selct 'misspelled'",
        "FAILED select 1 / (select 0 from pg_sleep(0.06))",
        "set statement_timeout = 1000",
        "FAILED select pg_sleep(60)",
        "FAILED select pg_sleep(61)",
        "begin",
        "rollback",
        "begin",
        "FAILED select nothing",
        "FAILED select 'refused, since that failed'",
        "rollback",
    ];
    sent.extend(others.map(str::to_owned));
    assert_eq!(shown, sent);
    // These had time to execute. (In the extended protocol, the time of a cancelled query begins while it is parsed.)
    let slept = [
        "FAILED select 1 / (select 0 from pg_sleep(0.06))",
        "FAILED select pg_sleep(60)",
    ];
    let sleepers = lines
        .iter()
        .filter(|line| slept.contains(&line[1..].join(" ").as_str()));
    let times: Vec<u64> = sleepers.map(|line| line[0].parse().expect("a time")).collect();
    assert_eq!(times.len(), slept.len());
    assert!(times.iter().all(|us| *us >= 50_000), "{times:?}");
    server.stop();
}

/// A python3 that already runs; gc.callbacks report each of its collections.
#[test]
fn gcpause_counts_the_collections_that_gc_callbacks_report() {
    let Some(python) = need_command("gcpause, attached", "python3") else {
        return;
    };
    let listed = run(Command::new(nanoprobe())
        .args(["-l", "-n", "python$target:::gc-start", "-c"])
        .arg(&python));
    if !listed.stdout.contains("gc-start") {
        return left_out("gcpause, attached", "this python3 has no static probes");
    }
    let text = "import gc, sys\n\
        told = [0, 0, 0]\n\
        def count(phase, about):\n    if phase == 'start': told[about['generation']] += 1\n\
        gc.collect(); gc.callbacks.append(count)\n\
        print('ready', flush=True); sys.stdin.readline()\n\
        kept = []\n\
        for n in range(60000): kept.append([n]); gc.collect(1) if n % 10000 == 0 else None\n\
        print('told', *told, flush=True); sys.stdin.readline()\n";
    let mut python = Running::start(Command::new(python).args(["-S", "-E", "-c", text]));
    python.wait_for("ready\n");
    let tool = Tool::attach("gcpause", python.pid(), &["0"]);
    python.go();
    python.wait_for("told ");
    python.wait_until("having told", |python| python.stdout().ends_with('\n'));
    let lines = tool.interrupt();
    let stdout = python.stdout();
    let told = stdout
        .lines()
        .find_map(|line| line.strip_prefix("told "))
        .expect("what it was told");
    let told: BTreeMap<u64, u64> = (0..)
        .zip(told.split(' ').map(|count| count.parse().expect("a count")))
        .collect();
    let at = lines
        .iter()
        .position(|line| line[0] == "COLLECTIONS")
        .expect("the summary");
    let number = |word: &String| word.parse::<u64>().expect("a number");
    // Count, average, longest, number of the generation, its name.
    let summary = lines[at + 1..].iter().map(|line| (number(&line[3]), number(&line[0])));
    assert_eq!(summary.collect::<BTreeMap<_, _>>(), told, "{lines:?}");
    assert!(told.values().all(|count| *count > 0), "{told:?}");
    assert_eq!(at - 1, told.values().sum::<u64>() as usize, "{lines:?}");
    python.go();
    python.finish().success();
}

/// node's own account of its collections is what `--trace-gc` prints.
#[test]
fn nodegc_counts_the_collections_that_node_traces() {
    let Some(node) = need_command("nodegc", "node") else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let script = folder.path().join("script.js");
    let text = "let kept = [];
        for (let i = 0; i < 300000; i++) kept[i % 1000] = { a: i, b: [i, i + 1], c: 'x' + i };
        for (let i = 0; i < 5; i++) global.gc();\n";
    std::fs::write(&script, text).expect("the script");
    let results = folder.path().join("results");
    let mut command = Command::new(nanoprobe());
    command.args(["tool", "nodegc", "-o"]).arg(&results).arg("-c");
    command.arg(format!(
        "{} --expose-gc --trace-gc {}",
        node.display(),
        script.display()
    ));
    let finished = run(command.arg("0"));
    if finished.stderr.contains("does not match any probes") {
        return left_out("nodegc", "this node has no symbols of its collector");
    }
    let finished = finished.success();
    assert_nothing_lost(&finished.stderr);
    let said = |kind: &str| {
        finished
            .stdout
            .lines()
            .filter(|line| line.contains(kind))
            .count()
            .to_string()
    };
    let said = [
        ("scavenge", said(": Scavenge")),
        ("mark-compact", said(": Mark-Compact")),
    ];
    assert!(said.iter().all(|(_, count)| count != "0"), "{}", finished.stdout);
    let text = std::fs::read_to_string(&results).expect("the results");
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    for (kind, count) in &said {
        let row = rows.iter().find(|row| row.len() == 4 && row[3] == *kind);
        assert!(row.is_some_and(|row| row[0] == *count), "{said:?}\n{text}");
        let singly = rows.iter().filter(|row| row.len() == 2 && row[1] == *kind).count();
        assert_eq!(singly.to_string(), *count, "{text}");
    }
}

/// redis-server's own information.
fn info(port: u16, section: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
    write!(stream, "INFO {section}\r\nQUIT\r\n").expect("sending");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("the answer");
    text
}

/// redis-server's own counts of commands, by name.
fn calls_of_commands(port: u16) -> BTreeMap<String, u64> {
    let text = info(port, "commandstats");
    let row = |line: &str| {
        let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        Some((name.to_owned(), rest.split(',').next()?.parse().ok()?))
    };
    text.lines().filter_map(row).collect()
}

/// The tools, one after the other, on a server under load from twenty clients: each command is a call of its function.
#[test]
fn counts_of_a_server_under_load_are_its_own() {
    let Some(redis) = need_command("tools on redis-server", "redis-server") else {
        return;
    };
    let Some(benchmark) = need_command("tools on redis-server", "redis-benchmark") else {
        return;
    };
    let port = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    let port = port.expect("a loopback port").port();
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = Command::new(redis);
    command.args([
        "--port",
        &port.to_string(),
        "--bind",
        "127.0.0.1",
        "--save",
        "",
        "--dir",
    ]);
    let mut server = Running::start(command.arg(folder.path()));
    server.wait_until("listening", |_| TcpStream::connect(("127.0.0.1", port)).is_ok());
    let load = || {
        let mut command = Command::new(&benchmark);
        command.args([
            "-h",
            "127.0.0.1",
            "-p",
            &port.to_string(),
            "-c",
            "20",
            "-q",
            "-n",
            "3000",
            "-t",
            "set,get,incr",
        ]);
        run(&mut command).success();
    };
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", server.pid()));
    let uses_jemalloc = maps.is_ok_and(|maps| maps.contains("libjemalloc"));
    // All tools come and go under load; then known commands are sent while each one traces.
    let mut counted = |tool: &str, arguments: &[&str]| {
        let snapshot = Snapshot::take(server.pid());
        let before = calls_of_commands(port);
        let tool = Tool::attach(tool, server.pid(), arguments);
        load();
        server.wait_until("alone with us", |_| {
            info(port, "clients").contains("connected_clients:1\r")
        });
        let lines = tool.interrupt();
        snapshot.assert_restored(server.pid());
        let after = calls_of_commands(port);
        let more = |name: &str| after.get(name).unwrap_or(&0) - before.get(name).unwrap_or(&0);
        (lines, ["set", "get", "incr"].map(more))
    };
    let (lines, commands) = counted("funccount", &["a.out:?etCommand"]);
    let count = |function: &str| {
        let row = lines
            .iter()
            .find(|line| line.len() == 2 && line[1].ends_with(&format!("`{function}")));
        row.and_then(|row| row[0].parse::<u64>().ok())
    };
    assert_eq!(
        (count("setCommand"), count("getCommand")),
        (Some(commands[0]), Some(commands[1])),
        "{lines:?}"
    );
    assert!(commands.iter().all(|count| *count >= 3000), "{commands:?}");

    let (lines, commands) = counted("funclatency", &["incrCommand"]);
    let row = lines
        .iter()
        .find(|line| line.len() == 4 && line[3].ends_with("`incrCommand"));
    assert_eq!(
        row.map(|row| row[0].clone()),
        Some(commands[2].to_string()),
        "{lines:?}"
    );
    let bars = lines.iter().filter(|line| line.len() > 2 && line[1].starts_with('|'));
    let sum: u64 = bars.filter_map(|line| line.last()?.parse::<u64>().ok()).sum();
    assert_eq!(sum, commands[2], "{lines:?}");

    let (lines, commands) = counted("stackcount", &["setCommand"]);
    let counts = lines
        .iter()
        .filter(|line| line.len() == 1)
        .filter_map(|line| line[0].parse::<u64>().ok());
    assert_eq!(counts.sum::<u64>(), commands[0], "{lines:?}");
    assert!(
        lines.iter().any(|line| line[0].contains("`processCommand+0x")),
        "{lines:?}"
    );

    // Each command is looked up once; `INFO` and the other requests of redis-benchmark are commands as well.
    let (lines, commands) = counted("argcount", &["a.out:setCommand", "arg0 != 0"]);
    assert!(
        lines.len() == 2 && lines[1].len() == 3 && lines[1][1].ends_with("`setCommand") && lines[1][2] == "1",
        "{lines:?}"
    );
    assert_eq!(lines[1][0], commands[0].to_string(), "{lines:?}");

    let (lines, commands) = counted("argdist", &["a.out:lookupKeyWrite", "arg1 != 0", "return"]);
    let bars = lines.iter().filter(|line| line.len() > 2 && line[1].starts_with('|'));
    let sum: u64 = bars.filter_map(|line| line.last()?.parse::<u64>().ok()).sum();
    assert!(sum >= commands[2], "{commands:?} {lines:?}");

    // There is a record for each call, and room for all of them, however long the tracer gets no processor.
    let (lines, commands) = counted("funcslower", &["-b", "4m", "a.out:incrCommand", "0us"]);
    assert_eq!(lines.len() as u64, commands[2] + 1);

    let (lines, commands) = counted("funcgraph", &["-b", "4m", "a.out:incrCommand", "a.out:incrCommand"]);
    let opened = lines.iter().filter(|line| line[1..] == ["incrCommand()", "{"]).count();
    let closed = lines.iter().filter(|line| line[1] == "}").count();
    assert_eq!((opened as u64, closed as u64), (commands[2], commands[2]));

    // Sixty clients, each with buffers of 32 KiB. After the clients have gone, none of these buffers is left, except
    // perhaps the last client's.
    if uses_jemalloc {
        let (lines, _) = counted("memleak", &["*", "a.out:createClient"]);
        let bytes: Vec<i64> = lines.iter().filter_map(|line| line.get(1)?.parse().ok()).collect();
        assert!(
            !bytes.is_empty() && bytes.iter().all(|bytes| (0..100_000).contains(bytes)),
            "{lines:?}"
        );
        let (lines, _) = counted("mallocstacks", &["libjemalloc*", "5"]);
        assert_eq!(
            lines
                .iter()
                .filter(|line| line.len() == 1 && line[0].parse::<u64>().is_ok())
                .count(),
            5,
            "{lines:?}"
        );
        assert!(
            lines.iter().any(|line| line[0].contains("`createClient+0x")),
            "{lines:?}"
        );
    }
    server.signal(Signal::SIGTERM);
    server.finish().success();
}

/// A python3 that also calls the allocator itself, a known number of times. Its leaks are found, to the byte, with
/// every form of the allocator's functions; glibc's aligned ones end by tail calls.
#[test]
fn memleak_finds_what_python_leaks() {
    let Some(python) = need_command("memleak, attached", "python3") else {
        return;
    };
    let text = "import ctypes, sys\n\
        libc = ctypes.CDLL(None)\n\
        P, N = ctypes.c_void_p, ctypes.c_size_t\n\
        def take(name, *of): f = libc[name]; f.restype = P; f.argtypes = of; return f\n\
        malloc, calloc, realloc = take('malloc', N), take('calloc', N, N), take('realloc', P, N)\n\
        aligned, memalign, valloc = take('aligned_alloc', N, N), take('memalign', N, N), take('valloc', N)\n\
        posix = libc.posix_memalign; posix.argtypes = [P, N, N]; free = take('free', P); slot = P()\n\
        print('ready', flush=True); sys.stdin.readline()\n\
        for n in range(500):\n\
        \x20   kept = [malloc(70001), calloc(3, 10000), aligned(64, 640), memalign(128, 70000), valloc(70002)]\n\
        \x20   posix(ctypes.byref(slot), 64, 70003)\n\
        \x20   free(malloc(77)); free(None); free(aligned(64, 64)); free(memalign(32, 77)); free(valloc(7))\n\
        \x20   free(realloc(realloc(calloc(3, 5), 600), 90000)); realloc(malloc(10), 0)\n\
        \x20   malloc(1 << 62); calloc(1 << 40, 1 << 40); free(realloc(None, 9))\n\
        print('done', flush=True); sys.stdin.readline()\n";
    let mut python = Running::start(Command::new(python).args(["-S", "-E", "-c", text]));
    python.wait_for("ready\n");
    let snapshot = Snapshot::take(python.pid());
    let tool = Tool::attach("memleak", python.pid(), &[]);
    python.go();
    python.wait_for("done\n");
    let lines = tool.interrupt();
    snapshot.assert_restored(python.pid());
    // All these calls come from the same instruction of libffi.
    let bytes = 70001 + 30000 + 640 + 70000 + 70002 + 70003;
    let wanted = [(6 * 500).to_string(), (bytes * 500).to_string()];
    assert_eq!(
        lines.iter().filter(|line| line.get(..2) == Some(&wanted[..])).count(),
        1,
        "{lines:?}"
    );
    python.go();
    python.finish().success();
}

/// The tool ends with the program, and has its counts.
#[test]
fn a_tool_ends_with_its_program() {
    for (name, row) in [("funccount", vec!["500", "looper`func"]), ("stackcount", vec!["500"])] {
        let mut looper = start_waiting(&program("looper.c"), "500");
        let tool = Tool::attach(name, looper.pid(), &["a.out:func"]);
        looper.go();
        looper.finish().success();
        let lines = tool.finish();
        assert!(lines.iter().any(|line| *line == row), "{name}: {lines:?}");
    }
}

/// If a program is killed, the counts up to then are printed.
#[test]
fn a_tool_prints_its_results_when_its_program_is_killed() {
    let mut busy = start_waiting(&program("looper.c"), "2000000000");
    let tool = Tool::attach("funccount", busy.pid(), &["a.out:func"]);
    let work = |pid: i32| -> u64 {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let time = stat
            .rsplit(')')
            .next()
            .and_then(|fields| fields.split_whitespace().nth(11));
        time.and_then(|ticks| ticks.parse().ok()).unwrap_or(0)
    };
    let before = work(busy.pid());
    busy.go();
    // Ticks of a hundredth of a second of its own time: millions of calls.
    busy.wait_until("having worked", |busy| work(busy.pid()) > before + 5);
    busy.signal(Signal::SIGKILL);
    let lines = tool.finish();
    let row = lines.iter().find(|line| line.len() == 2 && line[1] == "looper`func");
    let count = row.and_then(|row| row[0].parse::<u64>().ok());
    assert!(count.is_some_and(|count| count > 0), "{lines:?}");
}

/// The calls of four threads: each by its name, with those that fail, while a signal ends some and restarts others.
#[test]
fn syscount_counts_calls_and_failures() {
    let mut target = start_waiting(&program("system_calls.c"), "4 200");
    let tool = Tool::attach("syscount", target.pid(), &[]);
    target.go();
    let said = target.finish().success().stdout;
    let rows = tool.finish();
    let row = |name: &str| -> Vec<u64> {
        let found = rows.iter().find(|words| words.last().is_some_and(|last| last == name));
        let found = found.unwrap_or_else(|| panic!("no {name} in {rows:?}"));
        found.iter().filter_map(|word| word.parse().ok()).collect()
    };
    for (name, fails) in [("getppid", false), ("dup2", true), ("mkdir", true), ("uname", false)] {
        let calls = u64::try_from(nanoprobe_tests::results::said(&said, name)).expect("a number");
        let failed = if fails { calls } else { 0 };
        assert_eq!(row(name).get(..2), Some(&[calls, failed][..]), "{name}");
    }
}
