//! Real programs with every instruction of a module probed: same output, same exit status, hits
//! wherever they executed.

use std::path::{Path, PathBuf};
use std::process::Command;

use nanoprobe_tests::command::{Finished, Running};
use nanoprobe_tests::left_out::{left_out, need_command};
use nanoprobe_tests::results::value;
use nanoprobe_tests::tracer::{Form, Tracer, assert_nothing_lost};

use crate::subject::{Subject, all_is_asked_for, file, limit, path};

const SCRIPT: &str = r#"
f() { local i s=""; for ((i = 0; i < $1; i++)); do s="$s$i,"; done; echo "${s%%5*} ${#s} ${s//1/x}"; }
for n in 3 10 30; do f $n; done
echo "a b c" | while read x y z; do echo "$z $y $x"; done
(echo sub; exit 3); echo $?
v=$(printf '%05d|%s' 42 abc); echo "$v"
case $v in *abc) echo match;; esac
declare -A m; m[a]=1; m[b]=2; echo "${m[a]}${m[b]}"; [[ foobar =~ o+b ]] && echo "${BASH_REMATCH[0]}"
seq 1 5 | sort -r | tr '\n' ' '; echo
fib() { if (($1 < 2)); then echo $1; else echo $(($(fib $(($1 - 1))) + $(fib $(($1 - 2))))); fi; }
fib 5
trap 'echo trapped' USR1; kill -USR1 $$; trap - USR1
cat <<END
${v^^} $((16#ff * 3)) {1..3}
END
arr=(q w e r t y); echo "${arr[@]:1:3}" "${#arr[@]}" {a..e}
sleep 0 & wait $!; echo "waited $?"
"#;

#[test]
fn bash_and_its_libc() {
    let Some(bash) = need_command("every instruction of bash", "bash") else {
        return;
    };
    let script = file(SCRIPT);
    let subject = Subject::new(&bash, &["--norc", path(&script)]);
    assert!(
        subject.expected.stdout.contains("trapped"),
        "{}",
        subject.expected.stdout
    );
    let functions = subject.functions(Form::Default, "bash");
    for function in ["main", "execute_command_internal", "parse_command", "execute_command"] {
        assert!(
            functions.contains_key(function),
            "{function} of {} functions",
            functions.len()
        );
    }
    let sum: i64 = functions.values().sum();
    assert!(sum > 500_000, "{sum} hits");
    subject.sum(Form::Default, "libc.so.6");
    if all_is_asked_for("bash by traps") {
        subject.sum(Form::Trap, "bash");
        subject.sum(Form::Trap, "libc.so.6");
    }
}

const DATABASE: &str = "
.bail on
create table t(id integer primary key, a int, b text, c real);
with recursive n(i) as (select 1 union all select i + 1 from n where i < 600)
    insert into t select i, (i * 7919) % 1009, 'x' || ((i * 31) % 97), i / 3.0 from n;
create index ta on t(a);
create index tb on t(b, c);
begin; update t set a = a + 1 where id % 3 = 0; delete from t where id % 17 = 0; commit;
select count(*), sum(a), avg(c), group_concat(distinct substr(b, 1, 2)) from t;
select b, count(*) k, sum(a) over (order by b rows between 2 preceding and current row)
    from t group by b order by k desc, b limit 10;
select x.id, y.id from t x join t y on x.a = y.a + 1 and x.id < y.id order by 1, 2 limit 20;
begin; insert into t values(100000, 1, 'z', 1.5); rollback;
select count(*) from t where id = 100000;
select upper(b), length(b), hex(b), printf('%08.3f|%d|%s', c, a, b), round(c, 2) from t where b like 'x4%'
    order by id limit 10;
create view v as select a % 10 g, row_number() over (partition by a % 10 order by id) r,
    lag(id, 1, 0) over (order by id) l from t;
select g, max(r), sum(l) from v group by g order by g;
create trigger g after insert on t begin update t set c = c * 2 where id = new.id; end;
insert into t values(5000, 1, 'w', 2.25); select c from t where id = 5000;
select b from t where id in (select id from t intersect select a from t) order by b limit 5;
pragma integrity_check;
vacuum;
select count(*), max(rootpage) > 0 from sqlite_master;
";

#[test]
fn sqlite() {
    let Some(sqlite) = need_command("every instruction of sqlite", "sqlite3") else {
        return;
    };
    let script = file(DATABASE);
    let subject = Subject::new(&sqlite, &[":memory:", &format!(".read {}", path(&script))]);
    assert!(subject.expected.stdout.contains("ok\n"), "{}", subject.expected.stdout);
    // The distribution's library has only exported symbols, or the program itself contains the library.
    let sum = subject.sum(Form::Default, "*sqlite3*");
    assert_eq!(
        sum,
        subject.sum(Form::Default, "*sqlite3*"),
        "the same run has the same hits"
    );
    if all_is_asked_for("sqlite by traps, and its libc") {
        subject.sum(Form::Default, "libc.so.6");
        subject.sum(Form::Trap, "*sqlite3*");
    }
}

/// The beginning and end of a large script; thousands of statements, made by [`statements`], are between them.
const LARGE: [&str; 2] = [
    "
.bail on
pragma foreign_keys = on;
create table owner(id integer primary key, name text unique, born text);
create table item(id integer primary key, owner references owner(id) on delete cascade, kind text, price real,
    tags text check (json_valid(tags)), twice as (price * 2) stored);
create table log(at integer primary key autoincrement, what text, id int);
create index item_kind on item(kind, price desc);
create index item_tag on item(json_extract(tags, '$.a')) where kind <> 'k3';
create trigger item_new after insert on item begin insert into log(what, id) values('new', new.id); end;
create trigger item_gone before delete on item begin insert into log(what, id) values('gone', old.id); end;
create trigger item_dear after update of price on item when new.price > 900
    begin insert into log(what, id) values('dear', new.id); end;
create view dear as select o.name, i.* from item i join owner o on o.id = i.owner where i.price > 500;
",
    "
select what, count(*), sum(id) from log group by what order by what;
with recursive fib(n, a, b) as (select 1, 0, 1 union all select n + 1, b, a + b from fib where n < 60)
    select group_concat(a, ' ') from fib;
with recursive walk(id, depth, path) as (select id, 0, name from owner where id < 4
    union all select o.id, depth + 1, path || '>' || o.name from owner o join walk w on o.id = w.id * 3 where depth < 4)
    select max(depth), count(*), max(length(path)) from walk;
select kind, price, rank() over w, dense_rank() over w, ntile(4) over w, first_value(id) over w,
    sum(price) over (partition by kind order by price rows between 3 preceding and 1 following)
    from item window w as (partition by kind order by price) order by kind, price, id limit 200;
select o.name, count(i.id), total(i.price), group_concat(i.kind) from owner o left join item i on i.owner = o.id
    group by o.id having count(i.id) <> 7 order by o.name limit 100;
select json_group_array(json_object('k', kind, 'n', n)) from (select kind, count(*) n from item group by kind order by kind);
select e.key, sum(e.value) from item, json_each(item.tags) e where typeof(e.value) = 'integer' group by e.key order by e.key;
select name, sum(twice) from dear group by name order by 2 desc, 1 limit 30;
select a.id, b.id from item a, item b where a.price = b.price and a.id < b.id and a.kind = b.kind order by 1, 2 limit 50;
explain query plan select * from item where kind = 'k1' and price > 3;
analyze; reindex; vacuum;
pragma integrity_check;
pragma foreign_key_check;
pragma quick_check;
",
];

/// The file that contains the full text search.
const SEARCH: &str = "
create virtual table words using fts5(body, kind unindexed, prefix='2 3');
insert into words select name || ' ' || born || ' lorem ipsum dolor ' || (id * 7919 % 311), 'o' from owner;
insert into words(rowid, body, kind) select id + 1000, kind || ' ' || tags, kind from item;
select count(*) from words where words match 'lorem AND 12*';
select rowid, snippet(words, 0, '[', ']', '..', 6), round(bm25(words), 6) from words
    where words match 'NEAR(ipsum dolor) OR x*' order by rank, rowid limit 20;
delete from words where rowid % 13 = 0;
insert into words(words) values('optimize');
insert into words(words) values('integrity-check');
select highlight(words, 0, '<', '>') from words where words match '\"lorem ipsum\" NOT 2001*' order by rowid limit 10;
";

/// Inserts, updates, deletes and queries in transactions, some of which are rolled back.
fn statements() -> String {
    use std::fmt::Write as _;
    let mut text = String::new();
    let mut random = 12_345_u64;
    let mut below = |limit: u64| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % limit
    };
    for owner in 1..=300 {
        let (day, number) = (below(28) + 1, below(1000));
        writeln!(
            text,
            "insert into owner values({owner}, 'o{number}_{owner}', date('2001-01-{day:02}', '+{number} days'));"
        )
        .expect("a string");
    }
    for round in 0..250 {
        let ends = if round % 11 == 3 { "rollback" } else { "commit" };
        writeln!(text, "begin;\nsavepoint s;").expect("a string");
        for _ in 0..12 {
            let (owner, kind, price, tag) = (below(300) + 1, below(6), below(100_000), below(50));
            let line = match below(10) {
                0..=4 => format!(
                    "insert into item(owner, kind, price, tags) values({owner}, 'k{kind}', {price} / 100.0, '{{\"a\": {tag}, \"b\": [{kind}, null, \"x\\u00e9\"]}}');"
                ),
                5 => format!("update item set price = price * 1.25 + {tag} where owner = {owner} or id % 97 = {tag};"),
                6 => format!("delete from item where id % 101 = {tag} and kind = 'k{kind}';"),
                7 => format!(
                    "select count(*), avg(price), min(tags) from item where kind = 'k{kind}' and price between {tag} and {price} / 100.0;"
                ),
                8 => format!(
                    "select i.id, o.name, printf('%07.2f', i.price), json_extract(i.tags, '$.b[2]') from item i join owner o on o.id = i.owner where o.id > {owner} order by i.price desc, i.id limit 3;"
                ),
                _ => format!(
                    "insert into owner(id, name) values({owner}, 'again{tag}') on conflict(id) do update set born = excluded.name || replace(upper(hex(zeroblob(2))), '0', '{kind}');"
                ),
            };
            text.push_str(&line);
            text.push('\n');
        }
        let savepoint = if round % 7 == 5 { "rollback to s" } else { "release s" };
        writeln!(text, "{savepoint};\n{ends};").expect("a string");
    }
    text
}

/// Four thousand statements: joins, common table expressions, windows, triggers, JSON, foreign keys, savepoints.
#[test]
fn a_large_script_of_sqlite() {
    let Some(sqlite) = need_command("every instruction of sqlite", "sqlite3") else {
        return;
    };
    let mut options = Command::new(&sqlite);
    options.args([":memory:", "pragma compile_options"]);
    let options = Running::start(&mut options).finish().success().stdout;
    let search = if options.contains("ENABLE_FTS5") { SEARCH } else { "" };
    let text = [LARGE[0], &statements(), search, LARGE[1]].concat();
    assert!(text.matches(";\n").count() > 3500);
    let script = file(&text);
    let subject = Subject::new(&sqlite, &[":memory:", &format!(".read {}", path(&script))]);
    let said = &subject.expected.stdout;
    assert!(said.ends_with("ok\nok\n") && said.lines().count() > 1000, "{said}");
    subject.sum(Form::Default, "*sqlite3*");
}

/// Much of the interpreter, in a short time, with a fixed answer.
const PYTHON: &str = "
import hashlib, json, math, re, struct, zlib, collections, itertools, functools, decimal, random, heapq, bisect, string
def fib(n): return n if n < 2 else fib(n - 1) + fib(n - 2)
class A:
    __slots__ = ('x',)
    def __init__(self, x): self.x = x
    def __lt__(self, other): return self.x < other.x
    def __add__(self, other): return A(self.x + other.x)
def generate(n):
    for i in range(n):
        try:
            if i % 7 == 3: raise ValueError(i)
            yield i * i
        except ValueError as error: yield str(error)
        finally: pass
print(fib(13), sorted(A(i * 7919 % 101) for i in range(50))[10].x, sum((A(i) for i in range(9)), A(0)).x)
print(list(generate(12)), [*itertools.permutations('abc', 2)][:4], functools.reduce(lambda a, b: a * b, range(1, 60)))
print(json.loads(json.dumps({'a': [1, 2.5, None, True, 'x\\u1234'], 'b': {'c': -1e300}})), re.sub(r'(\\w)(\\d+)', r'\\2\\1', 'a12 b345'))
print(hashlib.sha256(b'abc').hexdigest(), zlib.crc32(b'hello'), zlib.decompress(zlib.compress(b'z' * 500))[:3])
print(decimal.Decimal(2).sqrt(), math.gamma(5.5), 2 ** 200 % 1000007, struct.pack('<IhQ', 7, -3, 2 ** 40).hex(), float('1e-7') / 3)
random.seed(7); print(random.sample(range(1000), 5), collections.Counter('mississippi').most_common(2))
print({i: chr(97 + i) for i in range(5)}, sorted(set('hello') & set('world')), f'{3.14159:>10.3f}|{255:#x}|{\"q\":^5}', 'ß'.upper(), ascii('é'))
h = [5, 3, 8, 1]; heapq.heapify(h); print(heapq.heappop(h), bisect.bisect([1, 3, 5], 4), string.capwords('a bc d'))
exec(compile('def g(a, *b, c=3, **d): return (a, b, c, sorted(d))\\nprint(g(1, 2, 3, c=4, z=5))', 'x', 'exec'))
def deep(n): return 0 if n == 0 else 1 + deep(n - 1)
try: deep(10 ** 6)
except RecursionError: print('too deep')
with open(__file__) as f: print(len(f.read()), sum(map(len, f)))
";

#[test]
fn python() {
    let Some(python) = need_command("every instruction of python", "python3") else {
        return;
    };
    let python = interpreter(&python, "sys").expect("an interpreter");
    let python = python.as_path();
    let script = file(PYTHON);
    let arguments = ["-I", "-S", "-B", "-X", "utf8", path(&script)];

    let subject = Subject::new(python, &arguments);
    let module = module_of(python);
    let functions = subject.functions(Form::Default, module);
    assert!(
        functions.contains_key("_PyEval_EvalFrameDefault"),
        "{} functions of {module}",
        functions.len()
    );
    assert!(functions.values().sum::<i64>() > 1_000_000);
    if all_is_asked_for("the libc of python") {
        subject.sum(Form::Default, "libc.so.6");
    }
}

/// The program that a `python3` really executes. `python3` itself may be a script, which has no instructions.
fn interpreter(python: &Path, import: &str) -> Option<PathBuf> {
    let mut command = Command::new(python);
    command.args([
        "-c",
        &format!("import {import}, sys, os; print(os.path.realpath(sys.executable))"),
    ]);
    let finished = Running::start(&mut command).finish();
    (finished.code() == 0).then(|| PathBuf::from(finished.stdout.trim()))
}

/// The file that contains an interpreter's code.
fn module_of(python: &Path) -> &'static str {
    let linked = std::fs::read(python).is_ok_and(|bytes| bytes.windows(9).any(|window| window == b"libpython"));
    if linked { "libpython*" } else { "a.out" }
}

/// Modules whose outcomes do not depend on how fast they are.
const SUITE: [&str; 12] = [
    "test_bool",
    "test_coroutines",
    "test_dict",
    "test_exceptions",
    "test_generators",
    "test_grammar",
    "test_heapq",
    "test_int",
    "test_json",
    "test_list",
    "test_re",
    "test_struct",
];

/// Each test of the suite ends in the same way as without probes. Distributions leave the suite out, so the test uses
/// any python that has it.
#[test]
fn pythons_own_tests() {
    if !all_is_asked_for("python's own tests") {
        return;
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut pythons = std::env::split_paths(&path).map(|folder| folder.join("python3"));
    let Some(python) =
        pythons.find_map(|python| interpreter(python.is_file().then_some(&python)?, "test.test_grammar"))
    else {
        return left_out("python's own tests", "no python3 has them");
    };
    let module = module_of(&python);
    let suite = [&["-m", "test", "-v"], &SUITE[..]].concat();
    let mut command = Command::new(&python);
    command.args(&suite);
    let mut unprobed = Running::start(&mut command);
    unprobed.close_input();
    let unprobed = unprobed.finish_within(limit());
    let outcomes = |stdout: &str| -> Vec<String> {
        let is_outcome = |line: &&str| line.contains(" ... ") || line.starts_with("Result: ");
        stdout.lines().filter(is_outcome).map(str::to_owned).collect()
    };
    let expected = outcomes(&unprobed.stdout);
    if unprobed.code() != 0 || expected.len() < 500 {
        return left_out("python's own tests", "they fail without probes");
    }
    let line = format!("{} {}", python.display(), suite.join(" "));
    let tracer = Tracer::new(Form::Default).clause(&format!("pid$target:{module}:: {{ @ = count(); }}"));
    let mut tracing = tracer.argument("-c").argument(&line).start();
    tracing.running.close_input();
    let traced = tracing.finish_within(limit()).success();
    let Finished { stdout, stderr, .. } = &traced.finished;
    assert!(
        !stderr.contains("killed by") && !stderr.contains("(status"),
        "{stdout}\n{stderr}"
    );
    let differing: Vec<(String, String)> = expected
        .iter()
        .cloned()
        .zip(outcomes(stdout))
        .filter(|(was, is)| was != is)
        .collect();
    assert!(differing.is_empty(), "{differing:?}");
    assert_eq!(outcomes(stdout).len(), expected.len(), "{stdout}");
    assert_nothing_lost(stderr);
    assert!(value(&traced.results) > 1_000_000);
}
