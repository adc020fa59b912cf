//! Programs that run and end: bash, python3, sqlite3, and every byte that they print.

use std::io::Write;
use std::path::Path;
use std::process::Command;

use nanoprobe_tests::command::{Finished, Running, run};
use nanoprobe_tests::left_out::need_command;
use nanoprobe_tests::live_tests;
use nanoprobe_tests::results::matched;
use nanoprobe_tests::tracer::{Form, Tracer};

use crate::{all_of, assert_counted};

const BASH_WORK: &str = r#"
fibonacci() { local n=$1; if ((n < 2)); then echo $n; else echo $(( $(fibonacci $((n-1))) + $(fibonacci $((n-2))) )); fi; }
declare -A seen
trap 'echo got a signal' USR1
for i in $(seq 1 2000); do
  key=$((i * 7919 % 101)); seen[$key]=$((${seen[$key]:-0} + i))
  case $i in *00) printf '%s %05d %s\n' "$i" "$key" "${seen[$key]}" ;; esac
done
text=$(for word in the quick brown fox; do echo "${word^} ${#word}"; done | sort -r | tr '\n' ',')
echo "$text"
[[ "nanoprobe-42" =~ ^([a-z]+)-([0-9]+)$ ]] && echo "${BASH_REMATCH[1]} ${BASH_REMATCH[2]}"
fibonacci 8
kill -USR1 $$
(exit 7); echo "status $?"
while read -r a b; do echo "$b $a"; done <<< $'one two\nthree four'
echo "${!seen[@]}" | wc -w
exit 5
"#;

const PYTHON_WORK: &str = r#"
import hashlib, json, re, threading, zlib, random, collections, itertools, gc, subprocess, sys
random.seed(7)
values = [random.random() for _ in range(20000)]
print(sum(sorted(values)[:100]))
print(hashlib.sha256(repr(values).encode()).hexdigest())
document = json.loads(json.dumps({str(i): [i, i * i, {"x": None}] for i in range(2000)}))
print(len(document), document["77"])
print(len(zlib.compress(json.dumps(document).encode())))
print(collections.Counter(re.findall(r"[a-z]+", "the quick the lazy the dog " * 500)).most_common(2))
def fib(n): return n if n < 2 else fib(n - 1) + fib(n - 2)
print(fib(17))
results = {}
def work(n): results[n] = sum(i * n for i in range(5000))
threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
[t.start() for t in threads]; [t.join() for t in threads]
print(sorted(results.items()))
class Odd(Exception): pass
def thrower(n):
    if n == 0: raise Odd("deep")
    return thrower(n - 1)
caught = 0
for _ in range(200):
    try: thrower(50)
    except Odd: caught += 1
print(caught, 2 ** 3000 % 1000007, list(itertools.islice(itertools.permutations("abcd"), 5, 8)))
print(subprocess.run(["echo", "child"], capture_output=True, text=True).stdout.strip())
gc.collect()
sys.exit(3)
"#;

const SQL_WORK: &str = r#"
CREATE TABLE numbers(id INTEGER PRIMARY KEY, value INT, name TEXT);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5000)
  INSERT INTO numbers SELECT i, i * 7919 % 1009, 'name ' || (i * 31 % 97) FROM n;
CREATE INDEX by_name ON numbers(name, value);
SELECT count(*), sum(value), avg(value), max(name) FROM numbers;
SELECT name, count(*) c, group_concat(value) FROM (SELECT * FROM numbers WHERE id < 500 ORDER BY value) GROUP BY name ORDER BY c DESC, name LIMIT 5;
UPDATE numbers SET value = value + 1 WHERE name LIKE '%7';
BEGIN; DELETE FROM numbers WHERE id % 3 = 0; ROLLBACK;
SELECT a.id, b.id FROM numbers a JOIN numbers b ON a.value = b.value AND a.id < b.id WHERE a.id < 40 ORDER BY 1, 2 LIMIT 10;
SELECT json_group_array(value) FROM (SELECT value FROM numbers LIMIT 20);
PRAGMA integrity_check;
SELECT printf('%.3f', total(value * 0.5)) FROM numbers;
"#;

/// Runs a program on a script unprobed and probed, and compares output and exit status.
#[track_caller]
fn compare(form: Form, program: &Path, script: &str, options: &[&str], modules: &[&str], at_least: u64) {
    let mut file = tempfile::Builder::new()
        .prefix("nanoprobe-script")
        .tempfile()
        .expect("a temporary file");
    file.write_all(script.as_bytes()).expect("writing the script");
    let path = file.path().display().to_string();
    let mut arguments: Vec<&str> = options.to_vec();
    arguments.push(&path);
    let right: Finished = run(Command::new(program).args(&arguments));
    let clauses: Vec<String> = modules.iter().map(|module| all_of(module)).collect();
    let tracer = Tracer::new(form)
        .clause(&clauses.join("\n"))
        .command(program, &arguments.join(" "));
    let traced = tracer.run().success();
    let stdout: String = traced
        .finished
        .stdout
        .lines()
        .filter(|line| !line.starts_with("nanoprobe: "))
        .map(|line| format!("{line}\n"))
        .collect();
    assert_eq!(stdout, right.stdout, "{}", traced.finished.stderr);
    assert!(!right.stdout.is_empty());
    // Each line of the program's own stderr must be on stderr in both runs.
    for line in right.stderr.lines() {
        assert!(
            traced.finished.stderr.contains(line),
            "{line:?} is not in {}",
            traced.finished.stderr
        );
    }
    let found = matched(&traced.finished.stderr);
    assert!(found >= at_least, "{found} probes matched");
    assert_counted(&traced, 1000);
}

live_tests! {
    fn bash(form) {
        let Some(bash) = need_command("all of bash", "bash") else { return };
        compare(form, &bash, BASH_WORK, &["--norc"], &["bash"], 3000);
    }

    fn bash_with_its_libraries(form) {
        let Some(bash) = need_command("all of bash and libc", "bash") else { return };
        compare(form, &bash, BASH_WORK, &["--norc"], &["bash", "libtinfo", "libc"], 6000);
    }

    fn python3(form) {
        let Some(python) = need_command("all of python3", "python3") else { return };
        compare(form, &python, PYTHON_WORK, &["-I"], &["a.out"], 2500);
    }

    fn sqlite3(form) {
        let Some(sqlite) = need_command("all of sqlite3", "sqlite3") else { return };
        // -init reads the file; then the empty standard input ends the program.
        compare(form, &sqlite, SQL_WORK, &["-batch", ":memory:", "-init"], &["libsqlite3"], 2000);
    }
}

/// The comparison relies on this: unprobed, each script has the same output every time, and ends as intended.
#[test]
fn the_scripts_repeat_themselves() {
    for (name, script, options, code) in [
        ("bash", BASH_WORK, &["--norc"][..], 5),
        ("python3", PYTHON_WORK, &["-I"], 3),
        ("sqlite3", SQL_WORK, &["-batch", ":memory:", "-init"], 0),
    ] {
        let Some(program) = need_command("scripts", name) else {
            continue;
        };
        let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
        file.write_all(script.as_bytes()).expect("writing the script");
        let once = || run(Command::new(&program).args(options).arg(file.path()));
        let (first, second) = (once(), once());
        assert_eq!((first.code(), second.code()), (code, code), "{name}: {}", first.stderr);
        assert_eq!(first.stdout, second.stdout, "{name}");
        assert!(first.stdout.lines().count() > 5, "{name}: {}", first.stdout);
    }
}

/// bash, attached to in the middle of its work, again and again.
#[test]
fn bash_attached_to_while_it_works() {
    let Some(bash) = need_command("all of bash, attached", "bash") else {
        return;
    };
    let script = "for ((i = 0; i < 150000; i++)); do x=$((x + i % 7)); y=${x#1}; done; echo $x; read line; echo $line";
    let mut command = Command::new(bash);
    command.args(["--norc", "-c", script]);
    let mut shell = Running::start(&mut command);
    let pid = shell.pid();
    let mut rounds = 0;
    while !shell.stdout().contains('\n') {
        let clause = format!("{} tick-20ms {{ exit(0); }}", all_of("bash"));
        Tracer::new(Form::Default).clause(&clause).process(pid).run().success();
        rounds += 1;
    }
    assert!(rounds > 0);
    shell.go();
    let right: u64 = (0..150_000).map(|i| i % 7).sum();
    assert_eq!(shell.finish().success().stdout, format!("{right}\ngo\n"));
}
