//! Arguments and results of Go's functions follow Go's rules; they are compared with the functions' own output.

use std::path::Path;

use nanoprobe_tests::program::{Build, need_program};
use nanoprobe_tests::results::said;
use nanoprobe_tests::tracer::{Form, Tracer, assert_nothing_lost};
use nanoprobe_tests::{live_tests, number_from_environment};

use crate::traced_when_attached;

const TURNS: &str = "6";

/// The arguments that each function prints, and the same as a tracer prints them by their types.
const TYPED: [(&str, &str); 13] = [
    (
        "integers",
        "%d %d %d %d %d %d %d %d %d %d %d %d\", args[0], args[1], args[2], args[3], args[4], args[5], args[6], \
         args[7], args[8], args[9], args[10], args[11]",
    ),
    (
        "text",
        "%s %d %d\", copyinstr((uintptr_t)args[0].str, args[0].len + 1), args[0].len, args[1]",
    ),
    (
        "slice",
        "%d %d %d %s\", args[0].array[2], args[0].len, args[0].cap, copyinstr((uintptr_t)args[1].str, args[1].len + 1)",
    ),
    (
        "place",
        "%d %d %s %d %d\", args[0].a, args[0].b, copyinstr((uintptr_t)args[0].c.str, args[0].c.len + 1), \
         args[0].d, args[1]",
    ),
    ("blank", "%d %d %d\", args[1], args[3].first, args[3].second"),
    (
        "face",
        "%d %d %d\", *(long *)args[0].data, *(long *)args[1].data, args[2]",
    ),
    ("floats", "%d %d %d\", args[0], args[2], args[4]"),
    ("array", "%d %d %d %d\", args[0][0], args[0][1], args[1][0], args[2]"),
    ("shape*", "%d\", args[1]"),
    ("adder", "%d\", args[0]"),
    (
        "said",
        "%d %s %d\", args[0]->weight, copyinstr((uintptr_t)args[0]->name.str, args[0]->name.len + 1), args[1]",
    ),
    (
        "shown",
        "%d %s %d\", args[0].weight, copyinstr((uintptr_t)args[0].name.str, args[0].name.len + 1), args[1]",
    ),
    ("put", "%d %d\", args[0]->length, args[2]"),
];

fn function_of(name: &str) -> String {
    match name {
        "adder" => "main.adder.func1".to_owned(),
        "said" => "main.??thing?.said".to_owned(),
        "shown" => "main.thing.shown".to_owned(),
        "put" => "main.*list*put".to_owned(),
        _ => format!("main.{name}"),
    }
}

/// The lines of a program that begin with one of the names.
fn told(text: &str, names: &[&str]) -> Vec<String> {
    let first = |line: &&str| names.contains(&line.split(' ').next().unwrap_or_default());
    let mut lines: Vec<String> = text.lines().filter(first).map(str::to_owned).collect();
    lines.sort();
    lines
}

#[track_caller]
fn compare(form: Form, program: &Path, clauses: &str, names: &[&str]) {
    let clause = format!("#pragma D option quiet\n{clauses}");
    let (target, traced) = traced_when_attached(form, &clause, program, TURNS);
    assert_nothing_lost(&traced.finished.stderr);
    let expected = told(&target.stdout, names);
    assert!(expected.len() >= 6, "{}", target.stdout);
    assert_eq!(told(&traced.results, names), expected, "{}", traced.finished.stderr);
}

live_tests! {
    fn arguments_by_their_types_are_what_the_program_was_given(form) {
        for build in [Build::Go, Build::GoPie] {
            let Some(path) = need_program("goargs", build) else { continue };
            let clauses: Vec<String> = TYPED
                .iter()
                .map(|(name, values)| {
                    let shown = name.trim_end_matches('*');
                    let function = function_of(name);
                    format!("pid$target:a.out:{function}:entry {{ printf(\"{shown} {values}); printf(\"\\n\"); }}")
                })
                .collect();
            let names: Vec<&str> = TYPED.iter().map(|(name, _)| name.trim_end_matches('*')).collect();
            compare(form, &path, &clauses.join("\n"), &names);
        }
    }

    /// Arguments are printed as words, which also works in a program without symbols and types.
    fn words_of_arguments_are_go_s(form) {
        for build in [Build::Go, Build::GoPie, Build::GoStripped, Build::GoPieStripped] {
            let Some(path) = need_program("goargs", build) else { continue };
            let clauses = "
                pid$target:a.out:main.integers:entry {
                    printf(\"integers %d %d %d %d %d %d %d %d %d %d %d \",
                        arg0, (char)arg1, (unsigned char)arg2, (short)arg3, (unsigned int)arg4, arg5, arg6,
                        (unsigned char)arg7, arg8, arg9, *(char *)copyin(uregs[R_SP] + 16, 1));
                    printf(\"%d\\n\", *(long *)copyin(uregs[R_SP] + 24, 8));
                }
                pid$target:a.out:main.text:entry {
                    printf(\"text %s %d %d\\n\", copyinstr(arg0, arg1 + 1), arg1, arg2);
                }
                pid$target:a.out:main.adder.func1:entry { printf(\"adder %d\\n\", arg0); }
                pid$target:a.out:main.add.abi0:entry { printf(\"add %d\\n\", arg0 + arg1 + (char)arg2); }";
            compare(form, &path, clauses, &["integers", "text", "adder", "add"]);
        }
    }

    fn results_are_go_s(form) {
        let Some(path) = need_program("goargs", Build::Go) else { return };
        let clauses = "
            pid$target:a.out:main.several:return {
                printf(\"%d %s %d %d\\n\", args[1], copyinstr((uintptr_t)args[2].str, args[2].len + 1),
                    args[3].data != NULL, args[4]);
            }
            pid$target:a.out:main.several:return { printf(\"%d %d %d\\n\", arg1, arg3, (char)arg6); }
            pid$target:a.out:main.place:return {
                printf(\"%d %d %s %d\\n\", args[1].a, args[1].b,
                    copyinstr((uintptr_t)args[1].c.str, args[1].c.len + 1), args[1].d);
            }
            pid$target:a.out:main.floats:return { printf(\"%d\\n\", args[2]); }";
        let clause = format!("#pragma D option quiet\n{clauses}");
        let (_, traced) = traced_when_attached(form, &clause, &path, "1");
        assert_nothing_lost(&traced.finished.stderr);
        let expected = "-4 -70001 inside! 65001\n3\n2 several 1 -1\n2 7 -1\n";
        assert_eq!(traced.results.trim(), expected.trim());
    }
}

/// The error of a clause that is refused.
#[track_caller]
fn refusal(program: &Path, clause: &str) -> String {
    let traced = Tracer::new(Form::Default).clause(clause).command(program, "").run();
    assert!(!traced.finished.status.success(), "{}", traced.finished.stdout);
    traced.finished.stderr
}

#[test]
fn unreadable_arguments_are_refused_with_the_reason() {
    if let Some(path) = need_program("goargs", Build::Go) {
        let refused = refusal(&path, "pid$target:a.out:main.floats:entry { trace(args[1]); }");
        assert!(
            refused.contains("it is passed in %xmm0, which D does not read"),
            "{refused}"
        );
        let refused = refusal(&path, "pid$target:a.out:main.add.abi0:entry { trace(args[0]); }");
        assert!(
            refused.contains("it is Go assembly") && refused.contains("arg0"),
            "{refused}"
        );
        let refused = refusal(&path, "pid$target:a.out:main.add.abi0:return { trace(arg1); }");
        assert!(refused.contains("leaves its results on the stack"), "{refused}");
        let refused = refusal(&path, "profile-97 /pid == $target/ { trace(goid); }");
        assert!(refused.contains("a sample does not tell which goroutine"), "{refused}");
    }
    if let Some(path) = need_program("goargs", Build::GoStripped) {
        let refused = refusal(&path, "pid$target:a.out:main.text:entry { trace(args[1]); }");
        assert!(refused.contains("has no debug information"), "{refused}");
        assert!(
            refused.contains("build it without -ldflags=-w and -s; without that, use arg0"),
            "{refused}"
        );
    }
    let refused = refusal(Path::new("/bin/true"), "pid$target:a.out::entry { trace(goid); }");
    assert!(refused.contains("no program of Go is traced"), "{refused}");
}

/// C functions of the same program take their arguments as C does, and the goroutine that has called them is known
/// there.
#[test]
fn c_beside_go_keeps_its_own_arguments() {
    for build in [Build::Go, Build::GoPie, Build::GoStripped, Build::GoPieStripped] {
        let Some(path) = need_program("cgo.go", build) else {
            continue;
        };
        let is_named = matches!(build, Build::Go | Build::GoPie);
        let of_c = match is_named {
            true => {
                "pid$target:a.out:c_leaf:entry /self->c/ { @c[arg0 == self->value, goid == self->number] = count(); }
                     pid$target:a.out:c_back:entry /self->c/ { @back[arg0 == self->value] = count(); }"
            }
            false => "",
        };
        let clause = format!(
            "pid$target:a.out:main.turn:entry {{
                 self->c = 1; self->value = arg0 + 1; self->value--; self->number = goid;
             }}
             {of_c}
             pid$target:a.out:main.fromC:entry /self->c/ {{ @go[arg0 == self->value, goid == self->number] = count(); }}
             pid$target:a.out:main.turn:return {{ self->c = 0; self->value = 0; self->number = 0; }}"
        );
        let turns = number_from_environment("NANOPROBE_GO_TURNS", 500);
        let (target, traced) = traced_when_attached(Form::Default, &clause, &path, &turns.to_string());
        assert_nothing_lost(&traced.finished.stderr);
        let all = said(&target.stdout, "turns");
        let mut right = Vec::new();
        for line in traced.results.lines().filter(|line| !line.trim().is_empty()) {
            let words: Vec<i64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
            let (count, truths) = words.split_last().expect("a count");
            assert!(truths.iter().all(|truth| *truth == 1), "{build:?}: {}", traced.results);
            right.push(*count);
        }
        let expected = if is_named { vec![all, all, all] } else { vec![all] };
        assert_eq!(right, expected, "{build:?}: {}", traced.results);
    }
}
