//! What clauses on derived probes become.

use crate::{MacroValues, Program, Source, compile};

fn compiled(text: &str) -> Program {
    let macros = MacroValues {
        target: Some(7),
        ..MacroValues::default()
    };
    compile(&[Source::new("test", text)], &macros).unwrap_or_else(|wrong| panic!("{text}: {wrong:?}"))
}

/// The clauses of a program: the derived probe, then the places.
fn shown(program: &Program) -> Vec<String> {
    let clauses = program.clauses.iter().map(|clause| {
        let places: Vec<String> = clause.probes.iter().map(ToString::to_string).collect();
        let derived = clause
            .derived
            .as_ref()
            .map(|derived| format!("{}:{} ", derived.provider, derived.name));
        format!("{}{}", derived.unwrap_or_default(), places.join(","))
    });
    clauses.collect()
}

#[test]
fn a_clause_becomes_one_for_each_group_of_places() {
    let shown = shown(&compiled(
        "BEGIN { } io:::start, syscall::close:entry { trace(arg0); } END { }",
    ));
    assert_eq!(shown[0], ":::BEGIN");
    assert_eq!(shown[1], "syscall::close:entry");
    assert_eq!(shown[2], "io:start syscall::read:entry,syscall::pread64:entry");
    assert_eq!(shown.last().map(String::as_str), Some(":::END"));
    assert!(
        shown[3..shown.len() - 1]
            .iter()
            .all(|one| one.starts_with("io:start syscall::"))
    );
    let names = |text| {
        let program = compiled(text);
        let mut names: Vec<String> = program
            .clauses
            .into_iter()
            .filter_map(|one| Some(one.derived?.name))
            .collect();
        names.sort();
        names.dedup();
        names
    };
    assert_eq!(names("io::: { }"), ["done", "start", "wait-done", "wait-start"]);
    assert_eq!(names("i?:::wait-* { }"), ["wait-done", "wait-start"]);
    assert_eq!(names("io:vmlinux::done { }"), ["done"]);
}

/// Other programs are what they were: no declaration and no clause is added.
#[test]
fn a_program_without_derived_probes_has_nothing_of_them() {
    let program = compiled("syscall::read:entry { trace(arg0); } :::BEGIN { } pid7:::entry { }");
    assert_eq!(program.clauses.len(), 3);
    let text = "syscall::read:entry { trace(B_READ); }";
    let refused = compile(&[Source::new("test", text)], &MacroValues::default()).unwrap_err();
    assert_eq!(refused[0].tag, "D_IDENT_UNDEF");
    // A module, a function and a name that no derived probe has.
    for other in ["io:libc::start { }", "io::read:start { }", "io:::stop { }"] {
        assert_eq!(shown(&compiled(other)).len(), 1, "{other}");
        assert_eq!(compiled(other).clauses[0].derived, None, "{other}");
    }
}

#[test]
fn errors_are_at_the_text_of_the_user_and_told_once() {
    for (text, tag, place) in [
        (
            "io:::start { trace(args[0]->b_none); }",
            "D_XLATE_NOCONV",
            "args[0]->b_none",
        ),
        ("io:::start { trace(args[0]); }", "D_CG_DYN", "args[0]"),
        ("io:::start { trace(args[7]); }", "D_ARGS_IDX", "args[7]"),
        (
            "io:::start { trace(args[2]->fi_name * 2); }",
            "D_OP_ARITH",
            "args[2]->fi_name",
        ),
        (
            "inline int half = arg0 / 2; io:::start { trace(half); }",
            "D_ARGS_NONE",
            "half",
        ),
        ("io:::start /nothing/ { }", "D_IDENT_UNDEF", "nothing"),
        ("io:::start { __file_status(1, 2); }", "D_FUNC_UNDEF", "__file_status"),
    ] {
        let source = Source::new("test", text);
        let refused = compile(std::slice::from_ref(&source), &MacroValues::default())
            .map(|_| text)
            .unwrap_err();
        assert_eq!(refused.len(), 1, "{refused:?}");
        assert!(refused[0].tag.starts_with(tag), "{refused:?}");
        assert_eq!(source.slice(refused[0].span), place, "{refused:?}");
    }
}

/// The module and the function of a lock's probe are those of its place.
#[test]
fn a_description_of_a_lock_may_name_its_place() {
    let places = |text: &str| {
        let program = compiled(text);
        let derived = program.clauses.into_iter().filter(|clause| {
            let derived = clause.derived.as_ref();
            derived.is_some_and(|derived| !derived.is_hidden)
        });
        let places = derived.flat_map(|clause| clause.probes).map(|probe| probe.to_string());
        places.collect::<Vec<String>>()
    };
    let in_libc = [
        "pid7:libc:pthread_mutex_unlock:return",
        "pid7:libc.so.6:pthread_cond_wait:entry",
        "pid7:libc.so.6:pthread_cond_timedwait:entry",
    ];
    assert_eq!(places("plockstat7:libc::mutex-release { }"), in_libc);
    let in_libm = ["pid7:libm*:pthread_mutex_unlock:return"];
    assert_eq!(places("plockstat7:libm*::mutex-release { }"), in_libm);
    assert_eq!(places("plockstat7::*cond_w*:mutex-release { }"), in_libc[1..2]);
    assert_eq!(
        places("plockstat$target:vmlinux::rw-block { }"),
        ["syscall::futex:entry"]
    );
    assert_eq!(places("plock*7:::rw-block { }"), ["syscall::futex:entry"]);
    for other in ["plockstat:::rw-block { }", "plockstat8:libc:open:rw-acquire { }"] {
        assert_eq!(places(other), [""; 0], "{other}");
    }
}

/// What a probe needs is kept only for it.
#[test]
fn hidden_clauses_are_added_where_they_are_needed() {
    let hidden = |text: &str| {
        let program = compiled(text);
        let is_hidden = |clause: &&crate::program::Clause| clause.derived.as_ref().is_some_and(|one| one.is_hidden);
        program.clauses.iter().filter(is_hidden).count()
    };
    assert_eq!(hidden("plockstat7:::futex-wait { } proc:::exec { } io::: { }"), 0);
    assert_eq!(hidden("proc:::exec-success { }"), 1);
    assert!(hidden("plockstat7:::mutex-acquire { }") > 10);
    // Where a function spins is of interest to those only who ask how often.
    let at_pauses = |text: &str| {
        let clauses = compiled(text).clauses.into_iter();
        clauses
            .flat_map(|clause| clause.probes)
            .filter(|probe| probe.name == "pause")
            .count()
    };
    assert_eq!(
        at_pauses("plockstat7:::mutex-acquire,plockstat7:::mutex-block { trace(arg0); }"),
        0
    );
    for asks in ["trace(arg2);", "this->spins = x;", "if (arg0) { trace(arg2); }"] {
        let text = format!("inline int x = arg2; plockstat7:::mutex-acquire {{ {asks} }}");
        assert_eq!(at_pauses(&text), 3, "{asks}");
    }
    assert_eq!(at_pauses("plockstat7:::mutex-spun { }"), 3);
    // No program can name what they keep.
    let text = "plockstat7:::mutex-acquire { trace(self->lock); }";
    let refused = compile(&[Source::new("test", text)], &MacroValues::default())
        .map(|_| ())
        .unwrap_err();
    assert_eq!(refused[0].tag, "D_VAR_UNDEF");
}

/// Each probe of each built-in text compiles, and is among the names that a hint tells.
#[test]
fn built_in_texts_are_whole() {
    for built in super::BUILT {
        let number = if built.is_of_process { "7" } else { "" };
        for name in built.probes {
            let text = format!("{}{number}:::{name} {{ trace(arg0); }}", built.name);
            let program = compiled(&text);
            let found = program.clauses.iter().filter_map(|clause| clause.derived.as_ref());
            assert!(
                found
                    .filter(|derived| !derived.is_hidden)
                    .all(|derived| derived.name == *name),
                "{text}"
            );
            assert!(
                program
                    .clauses
                    .iter()
                    .any(|clause| clause.derived.as_ref().is_some_and(|one| one.name == *name)),
                "{text}"
            );
        }
        let (read, _) = super::text::read(built.name, built.text, 7).unwrap();
        assert!(
            read.places
                .iter()
                .all(|place| built.probes.contains(&place.name.as_str())),
            "{}",
            built.name
        );
    }
}
