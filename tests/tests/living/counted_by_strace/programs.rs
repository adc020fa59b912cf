//! Programs that do the same in every run.

use std::path::Path;
use std::process::Command;

use nanoprobe_tests::command::run;
use nanoprobe_tests::left_out::{left_out, need_command};
use nanoprobe_tests::postgres::{find, make_database};
use nanoprobe_tests::program::{Build, need_program};

use super::Subject;

const WHAT: &str = "counts of strace";

/// The calls by which threads of Go's scheduler wait for each other, and those that each new thread makes.
pub const BY_GO: &[&str] = &[
    "nanosleep",
    "sched_yield",
    "epoll_pwait",
    "clone",
    "gettid",
    "rt_sigprocmask",
    "sigaltstack",
];
/// /proc/self/maps has more lines in a traced process.
const BY_MAPS: &[&str] = &["read"];
/// node reads that file, and its threads wake each other.
const BY_NODE: &[&str] = &["read", "write", "epoll_pwait", "epoll_wait", "sched_yield"];
/// The threads that compile, collect and tick sleep for some time.
const BY_JAVA: &[&str] = &[
    "clock_nanosleep",
    "prctl",
    "sched_yield",
    "read",
    "openat",
    "close",
    "newfstatat",
    "sched_getaffinity",
    "rt_sigprocmask",
    "rt_sigreturn",
    "gettid",
    "getpid",
];
/// The names of temporary files are made of random numbers, of which some are not taken.
const BY_GCC: &[&str] = &["getrandom"];
/// How much a pipe has when it is looked at depends on its writer.
const BY_PIPES: &[&str] = &["poll", "read", "rt_sigprocmask"];

/// A folder of files for programs to look at.
pub fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).expect("a file");
    for inner in 0..40 {
        std::fs::create_dir_all(folder.path().join(format!("tree/folder{inner}"))).expect("a folder");
        for file in 0..10 {
            write(&format!("tree/folder{inner}/file{file}"), "text");
        }
    }
    write(
        "script.sh",
        "for i in {1..50}; do [ -e $0 ] && echo $i > /dev/null; done; read line < $0; true",
    );
    write("hello.c", "int main(void)\n{\n\treturn 0;\n}\n");
    write("hello.go", "package main\n\nfunc main() {\n\tprintln(\"hello\")\n}\n");
    write(
        "Hello.java",
        "class Hello { public static void main(String[] a) { System.out.println(\"hello\"); } }",
    );
    write(
        "Makefile",
        "all:\n\t@for i in 1 2 3; do echo $$i; done\n\t@cat hello.c\n",
    );
    folder
}

/// The programs of this machine.
pub fn subjects(folder: &Path) -> Vec<Subject> {
    let at = |name: &str| folder.join(name).to_str().expect("a path").to_owned();
    let (tree, script, source, object) = (at("tree"), at("script.sh"), at("hello.c"), at("hello.o"));
    let (here, database) = (at(""), at("database"));
    let python = "import os\nfor name in sorted(os.listdir('/')): os.path.exists('/' + name)";
    let parent = format!("import subprocess\nprint(subprocess.run(['ls', '{tree}'], capture_output=True).stdout)");
    let sql = "drop table if exists t; create table t(a, b); insert into t values(1, 2), (3, 4); select * from t;";
    let script_of_node = "for (let i = 0; i < 100; i++) require('fs').readdirSync('/'); console.log(1)";
    let archive = format!("tar cf - -C '{here}' tree | cksum");
    let copies = format!("rm -rf '{here}/copy'; cp -r '{tree}' '{here}/copy'; find '{here}/copy' -name file1 | wc -l");
    let file = format!("file://{source}");
    let all: [(&[&str], &'static [&'static str]); 18] = [
        (&["ls", "-lR", &tree], &[]),
        (&["bash", &script], &[]),
        (&["bash", "-c", &archive], BY_PIPES),
        (&["bash", "-c", &copies], BY_PIPES),
        (&["grep", "-r", "text", &tree], BY_MAPS),
        (&["sqlite3", ":memory:", sql], &[]),
        // It names its journal by random numbers, and locks bytes of the file that are chosen by them.
        (&["sqlite3", &database, sql], &["getrandom"]),
        (&["/usr/bin/python3", "-B", "-S", "-E", "-c", python], &[]),
        (&["/usr/bin/python3", "-B", "-S", "-E", "-c", &parent], BY_PIPES),
        (
            &[
                "perl",
                "-e",
                "opendir(D, '/'); -e \"/$_\" for sort readdir D; system('true')",
            ],
            &[],
        ),
        (&["curl", "-s", &file], &[]),
        (&["gcc", "-c", &source, "-o", &object], BY_GCC),
        (&["make", "-s", "-C", &here], BY_PIPES),
        (&["openssl", "dgst", "-sha256", "/etc/passwd"], &[]),
        (&["xz", "-kc", &source], &[]),
        (&["gofmt", "-l", &at("hello.go")], BY_GO),
        (&["node", "-e", script_of_node], BY_NODE),
        (
            &[
                "dd",
                "if=/dev/zero",
                "of=/dev/null",
                "bs=4k",
                "count=500",
                "status=none",
            ],
            &[],
        ),
    ];
    let installed = all
        .into_iter()
        .filter(|(words, _)| need_command(WHAT, words[0]).is_some());
    let mut subjects: Vec<Subject> = installed.map(|(words, varies)| Subject::new(words, varies)).collect();
    for (name, build, arguments) in [
        ("staticprog.c", Build::Static, "50"),
        ("files.c", Build::MuslStatic, tree.as_str()),
    ] {
        if let Some(program) = need_program(name, build) {
            subjects.push(Subject::new(&[program.to_str().expect("a path"), arguments], &[]));
        }
    }
    subjects.extend(repository(folder));
    subjects.extend(java(folder));
    subjects.extend(postgres(folder));
    subjects
}

/// git, on a repository of these files.
fn repository(folder: &Path) -> Option<Subject> {
    need_command(WHAT, "git")?;
    let at = folder.join("repository").to_str().expect("a path").to_owned();
    run(Command::new("cp").arg("-r").arg(folder.join("tree")).arg(&at)).success();
    for arguments in [
        vec!["init", "-q", "."],
        vec!["add", "."],
        vec!["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "-m", "one"],
    ] {
        run(Command::new("git").current_dir(&at).args(arguments)).success();
    }
    Some(Subject::new(&["git", "-C", &at, "log", "--stat"], &[]))
}

/// A virtual machine that interprets.
fn java(folder: &Path) -> Option<Subject> {
    let (compiler, _) = (need_command(WHAT, "javac")?, need_command(WHAT, "java")?);
    run(Command::new(compiler).current_dir(folder).arg("Hello.java")).success();
    let options = ["-Xint", "-XX:+UseSerialGC", "-XX:-UsePerfData"];
    let classes = folder.to_str().expect("a path");
    let words: Vec<&str> = ["java"]
        .into_iter()
        .chain(options)
        .chain(["-cp", classes, "Hello"])
        .collect();
    Some(Subject::new(&words, BY_JAVA))
}

/// A server without clients, which executes what it reads.
fn postgres(folder: &Path) -> Option<Subject> {
    let (Some(initdb), Some(postgres)) = (find("initdb"), find("postgres")) else {
        left_out(WHAT, "postgres is not installed");
        return None;
    };
    if !nix::unistd::geteuid().is_root() {
        left_out(WHAT, "postgres runs as another user, which needs root");
        return None;
    }
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(folder, PermissionsExt::from_mode(0o777)).expect("its permissions");
    let data = folder.join("data");
    make_database(&initdb, &data);
    let sql =
        "create table t(a int); insert into t select generate_series(1, 1000); select sum(a) from t; drop table t;";
    std::fs::write(folder.join("script.sql"), sql).expect("a file");
    let line = format!(
        "exec setpriv --reuid 65534 --regid 65534 --clear-groups '{}' --single -D '{}' postgres < '{}'",
        postgres.display(),
        data.display(),
        folder.join("script.sql").display()
    );
    // How full its pages are, and so what it writes at the end, depends on the runs before.
    let varies: &[&str] = &[
        "close",
        "fsync",
        "fdatasync",
        "lseek",
        "openat",
        "pread64",
        "pwrite64",
        "sync_file_range",
        "unlink",
        "newfstatat",
    ];
    Some(Subject::new(&["sh", "-c", &line], varies))
}
