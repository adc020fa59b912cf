//! Interpreters: python3's static probes, compared with the interpreter's reports to its own program; typed arguments
//! of python3's and node's functions, where they have debug information.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use nanoprobe_tests::command::run;
use nanoprobe_tests::left_out::{find_command, left_out, need_command};
use nanoprobe_tests::live_tests;
use nanoprobe_tests::results::table;
use nanoprobe_tests::tracer::{Form, Tracer, nanoprobe};

fn script(suffix: &str, text: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::Builder::new().suffix(suffix).tempfile().expect("a file");
    file.write_all(text.as_bytes()).expect("the script");
    file
}

/// Between two audited events the script itself counts the events of the static probes: audited events by a hook,
/// collections by gc.callbacks, lines by sys.settrace (in a second call, since the probe does not see which frame is
/// traced).
const COUNTED: &str = r#"import sys, gc
events, collections, lines = {}, {}, {}
def hook(name, arguments):
    events[name] = events.get(name, 0) + 1
def collected(phase, about):
    if phase == "start":
        row = about["generation"]
        collections[row] = collections.get(row, 0) + 1
def loop(n):
    total = 0
    for i in range(n):
        if i % 3:
            total += i
    return total
def followed(frame, event, argument):
    if frame.f_code.co_name != "loop": return None
    if event == "line": lines[frame.f_lineno] = lines.get(frame.f_lineno, 0) + 1
    return followed
gc.disable()
gc.callbacks.append(collected)
sys.addaudithook(hook)
sys.audit("count.begin")
for i in range(30): compile("1", "<made>", "eval")
for i in range(11): sys.audit("own.event", i)
import colorsys
for generation, times in ((0, 9), (1, 5), (2, 3)):
    for i in range(times): gc.collect(generation)
loop(50)
sys.audit("count.end")
told = dict(events)
sys.settrace(followed)
loop(50)
sys.settrace(None)
for name, times in told.items(): print("row audit", name, times)
for generation, times in collections.items(): print("row gc", generation, times)
for line, times in lines.items(): print("row line", line, times)
print("OK")
"#;

live_tests! {
    fn pythons_static_probes_agree_with_its_own_hooks(form) {
        let Some(python) = need_command("python's static probes", "python3") else { return };
        let listed = run(Command::new(nanoprobe()).args(["-l", "-n", "python$target:::audit", "-c"]).arg(&python));
        if !listed.stdout.contains("audit") {
            return left_out("python's static probes", "this python3 has none for audited events");
        }
        let script = script(".py", COUNTED);
        let clause = r#"
            python$target:::audit /copyinstr(arg0) == "count.begin"/ { counting = 1; }
            python$target:::audit /counting/ { @audit["audit", copyinstr(arg0)] = count(); }
            python$target:::audit /copyinstr(arg0) == "count.end"/ { counting = 0; }
            python$target:::gc-start /counting/ { @gc["gc", arg0] = count(); }
            python$target:::gc-done /counting/ { @done["gc done"] = count(); }
            python$target:::line /counting && copyinstr(arg1) == "loop"/ { @line["line", arg2] = count(); }
            python$target:::import-find-load-start,python$target:::import-find-load-done /counting/
                { @import[probename, copyinstr(arg0)] = count(); }"#;
        let tracer = Tracer::new(form).clause(clause).command(&python, &format!("-S -E {}", script.path().display()));
        let traced = tracer.run().complete();
        let mut rows = table(&traced.results);
        // Only the probes show these.
        let import = |probe: &str| rows.keys().any(|row| *row == format!("import-find-load-{probe} colorsys"));
        assert!(import("start") && rows.remove("gc done") == Some(17), "{rows:#?}");
        rows.retain(|row, _| !row.starts_with("import-"));
        let told: Vec<Vec<&str>> = traced.finished.stdout.lines()
            .filter_map(|line| Some(line.strip_prefix("row ")?.split(' ').collect())).collect();
        let told: std::collections::BTreeMap<String, i64> = told.iter()
            .map(|row| (row[..2].join(" "), row[2].parse().expect("a number"))).collect();
        assert!(told.len() > 8 && told["audit own.event"] == 11 && told["gc 2"] == 3, "{told:#?}");
        assert_eq!(rows, told);
    }
}

/// A python3 whose functions have debug information, as one built from source or by pyenv, and the module that contains
/// them.
fn python_with_types() -> Option<(PathBuf, String)> {
    let first = std::env::var("PATH").unwrap_or_default();
    let first = first.split(':').map(|folder| Path::new(folder).join("python3"));
    let candidates = first.filter(|path| path.is_file()).chain(find_command("python3"));
    for candidate in candidates {
        let asked = run(Command::new(&candidate).args(["-c", "import sys; print(sys.executable)"]));
        let executable = PathBuf::from(asked.stdout.trim());
        for module in ["libpython*", "a.out"] {
            let clause = format!(
                "pid$target:{module}:PyObject_Repr:entry {{ trace(args[0]->ob_refcnt); }} BEGIN {{ exit(0); }}"
            );
            let listed = run(Command::new(nanoprobe())
                .args(["-l", "-n", &clause, "-c"])
                .arg(format!("{} -c 1", executable.display())));
            if listed.status.success() && listed.stdout.contains("PyObject_Repr") {
                return Some((executable, module.to_owned()));
            }
        }
    }
    None
}

const OBJECTS: &str = r#"
class Thing: pass
class Odd(Thing):
    def __repr__(self): return "odd"
for object in [Thing() for _ in range(25)] + [Odd() for _ in range(4)] + [(), (1, 2), (1, 2, 3)]: repr(object)
print("OK")
"#;

/// Counts of calls, by fields of structures to which the first argument points.
#[test]
fn python_s_functions_have_typed_arguments() {
    let Some((python, module)) = python_with_types() else {
        return left_out("typed arguments of python3", "no python3 in PATH has debug information");
    };
    let script = script(".py", OBJECTS);
    for form in [Form::Default, Form::Trap] {
        let clause = format!(
            r#"pid$target:{module}:PyObject_Repr:entry /args[0] != NULL/ {{ @[stringof(args[0]->ob_type->tp_name)] = count(); }}
               pid$target:{module}:PyObject_Repr:entry /stringof(args[0]->ob_type->tp_name) == "tuple"/
                   {{ @sizes["of size", ((PyTupleObject *)args[0])->ob_base.ob_size] = count(); }}"#
        );
        let arguments = format!("-S -E {}", script.path().display());
        let traced = Tracer::new(form)
            .clause(&clause)
            .command(&python, &arguments)
            .run()
            .complete();
        let rows = table(&traced.results);
        for (row, count) in [
            ("Thing", 25),
            ("Odd", 4),
            ("of size 0", 1),
            ("of size 2", 1),
            ("of size 3", 1),
        ] {
            assert_eq!(rows.get(row), Some(&count), "{row}: {rows:#?}");
        }
    }
}

/// node contains libuv, in C: its file system functions get the arguments that the script has passed.
#[test]
fn node_s_functions_have_typed_arguments() {
    let Some(node) = need_command("typed arguments of node", "node") else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let text = "const fs = require('fs');
        for (let i = 0; i < 23; i++) fs.statSync(__dirname);
        for (let i = 0; i < 9; i++) try { fs.openSync(__dirname + '/absent-' + i % 3, 'r', 0o640); } catch (error) {}
        console.log('OK');\n";
    let script = folder.path().join("script.js");
    std::fs::write(&script, text).expect("the script");
    let place = folder.path().display();
    let clause = format!(
        r#"pid$target:a.out:uv_fs_stat:entry /stringof(args[2]) == "{place}"/ {{ @["stat", args[3] == NULL] = count(); }}
           pid$target:a.out:uv_fs_open:entry /strstr(stringof(args[2]), "/absent-") != NULL/
               {{ @open["open", basename(stringof(args[2])), args[3], args[4]] = count(); }}
           pid$target:a.out:uv_run:entry {{ @run["run", args[1]] = count(); }}"#
    );
    let traced = Tracer::new(Form::Default)
        .clause(&clause)
        .command(&node, &script.display().to_string())
        .run();
    if traced.finished.stderr.contains("[D_ARGS_") {
        return left_out("typed arguments of node", "this node has no debug information of libuv");
    }
    let traced = traced.complete();
    let rows = table(&traced.results);
    let mode = 0o640;
    let mut expected = vec![("stat 1".to_owned(), 23)];
    expected.extend((0..3).map(|number| (format!("open absent-{number} 0 {mode}"), 3)));
    for (row, count) in expected {
        assert_eq!(rows.get(&row), Some(&count), "{row}: {rows:#?}");
    }
    assert!(rows.contains_key("run UV_RUN_DEFAULT"), "{rows:#?}");
}
