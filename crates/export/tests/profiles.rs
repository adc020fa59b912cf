//! Profiles: what each format contains, how it is read again, and how two profiles are compared.
#![allow(clippy::unwrap_used, reason = "a test ends where it goes wrong")]

mod support;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use nanoprobe_export::profile::{Comparison, PROFILE_FORMATS, has_stacks};
use nanoprobe_export::{ModulePlace, Printer, Several, Source, Symbolizer};
use nanoprobe_lang::interpret::Value;
use nanoprobe_lang::program::{AggregatingFunction as Function, AggregationId, KeyType, Stack, SymbolKind};
use serde_json::Value as Json;
use support::*;

/// The names of `support`, with files, lines and a module.
struct Places;

impl Symbolizer for Places {
    fn symbolize(&mut self, address: u64) -> String {
        Names.symbolize(address)
    }

    fn start_of(&mut self, address: u64, kind: SymbolKind) -> u64 {
        Names.start_of(address, kind)
    }

    fn sources(&mut self, addresses: &[u64]) -> HashMap<u64, Source> {
        let known = addresses.iter().filter(|address| **address >= 0x1000);
        let place = |address: &u64| Source {
            file: format!("src/{}.c", address >> 12),
            line: address & 0xfff,
        };
        known.map(|address| (*address, place(address))).collect()
    }

    fn module(&mut self, address: u64) -> Option<ModulePlace> {
        (address < 0xc000).then(|| ModulePlace {
            start: 0x1000,
            end: 0xc000,
            path: "/bin/bash".to_owned(),
            build_id: "abcd01".to_owned(),
        })
    }
}

/// A folder with a file of each format.
struct Written {
    folder: tempfile::TempDir,
}

impl Written {
    fn of(session: &mut Session) -> Written {
        let folder = tempfile::tempdir().unwrap();
        session
            .table
            .add(&session.program, std::mem::take(&mut session.snapshot));
        let sinks = PROFILE_FORMATS.iter().map(|format| {
            let path = folder.path().join(format.flag);
            format.sink(path.to_str().unwrap(), "a \"test\"")
        });
        let sinks = Several(sinks.collect());
        let mut printer = Printer::new(&session.program, &session.options, Box::new(sinks));
        printer.finish(&mut Vec::new(), &session.table, &mut Places).unwrap();
        Written { folder }
    }

    fn path(&self, flag: &str) -> PathBuf {
        self.folder.path().join(flag)
    }

    fn text(&self, flag: &str) -> String {
        std::fs::read_to_string(self.path(flag)).unwrap()
    }
}

fn stack(frames: &[u64]) -> Value {
    Value::Stack(frames.to_vec())
}

/// Does `@[key] = count()` this many times.
fn count(session: &mut Session, id: u32, key: &[Value], times: usize) {
    for _ in 0..times {
        session.aggregate(id, key, 0, 1);
    }
}

/// `main` calls `reader_loop` from two places, and `_start` once from one.
fn calls() -> Session {
    let mut session = Session::new(&[]);
    let id = session.aggregation(Function::Count, &[STACK_KEY]);
    count(&mut session, id, &[stack(&[0x9000, 0xa010, 0xb001])], 3);
    count(&mut session, id, &[stack(&[0x9000, 0xa020, 0xb001])], 4);
    count(&mut session, id, &[stack(&[0xa000, 0xb001])], 5);
    session
}

#[test]
fn folded_stacks_are_the_outermost_frames_first() {
    let written = Written::of(&mut calls());
    assert_eq!(
        written.text("folded"),
        "bash`_start;bash`main 5\nbash`_start;bash`main;bash`reader_loop 7\n"
    );
}

#[test]
fn parts_of_a_key_are_frames_and_values_below_one_are_left_out() {
    let mut session = Session::new(&[]);
    let id = session.aggregation(Function::Sum, &[STACK_KEY, KeyType::String]);
    session.aggregate(id, &[stack(&[0xa000]), string("a;b")], 7, 1);
    session.aggregate(id, &[stack(&[0xa000]), string("less")], -7, 1);
    count(&mut session, id, &[stack(&[0xa000]), string("none")], 1);
    let written = Written::of(&mut session);
    assert_eq!(written.text("folded"), "bash`main;a:b 7\n");
}

/// The program has called the kernel, wherever the two stand in the key.
#[test]
fn the_kernels_frames_lie_on_those_of_the_program() {
    let kernels = KeyType::Stack(Stack::of_kernel(0));
    let (inner, outer) = (stack(&[0x9000, 0xa010]), stack(&[0xb000]));
    let mut session = Session::new(&[]);
    let first = session.aggregation(Function::Count, &[kernels.clone(), KeyType::String, STACK_KEY]);
    count(&mut session, first, &[inner.clone(), string("read"), outer.clone()], 3);
    let second = session.aggregation(Function::Count, &[STACK_KEY, kernels.clone()]);
    count(&mut session, second, &[outer, inner.clone()], 4);
    let third = session.aggregation(Function::Count, &[kernels]);
    count(&mut session, third, &[inner], 5);
    let written = Written::of(&mut session);
    assert_eq!(
        written.text("folded"),
        "@0;read;bash`_start;bash`main;bash`reader_loop 3\n@1;bash`_start;bash`main;bash`reader_loop \
         4\n@2;bash`main;bash`reader_loop 5\n"
    );
}

#[test]
fn several_aggregations_stand_beside_each_other() {
    let mut session = Session::new(&[]);
    let first = session.aggregation(Function::Count, &[STACK_KEY]);
    let second = session.aggregation(Function::Sum, &[STACK_KEY]);
    session.aggregation(Function::Maximum, &[STACK_KEY]);
    count(&mut session, first, &[stack(&[0xa000])], 2);
    session.aggregate(second, &[stack(&[0xa000])], 30, 1);
    let written = Written::of(&mut session);
    assert_eq!(written.text("folded"), "@0;bash`main 2\n@1;bash`main 30\n");
    assert!(written.text("flamegraph").contains("<title>@1 (30 "));
    for format in ["pprof", "speedscope"] {
        for (kind, total) in [("@0", 2), ("1", 30)] {
            let path = written.path(format);
            let path = path.to_str().unwrap();
            let compared = Comparison::of([path, path], Some(kind), true).unwrap();
            let json: Json = serde_json::from_str(&compared.json().to_string()).unwrap();
            assert_eq!(json["after"]["total"], total, "{format} {json}");
        }
    }
}

/// `memleak` counts by address.
#[test]
fn without_stacks_a_function_is_a_stack_of_one_frame() {
    let mut session = Session::new(&[]);
    let id = session.aggregation(Function::Count, &[KeyType::Symbol(SymbolKind::Address)]);
    count(&mut session, id, &[integer(0xa010)], 2);
    count(&mut session, id, &[integer(0xa020)], 3);
    assert!(has_stacks(&session.program));
    assert_eq!(Written::of(&mut session).text("folded"), "bash`main 5\n");
    session.aggregation(Function::Count, &[STACK_KEY]);
    assert_eq!(Written::of(&mut session).text("folded"), "");
    assert!(!has_stacks(&Session::new(&[]).program));
}

/// `trunc()` in END affects the printed text.
#[test]
fn what_is_truncated_at_the_end_is_in_profiles() {
    let mut session = calls();
    session
        .table
        .add(&session.program, std::mem::take(&mut session.snapshot));
    session.table.truncate(&session.program, AggregationId(0), 2);
    session.table.end();
    session.table.truncate(&session.program, AggregationId(0), 0);
    assert!(session.table.rows(&session.program, AggregationId(0)).is_empty());
    let written = Written::of(&mut session);
    assert_eq!(
        written.text("folded"),
        "bash`_start;bash`main 5\nbash`_start;bash`main;bash`reader_loop 4\n"
    );
}

/// The part of speedscope's schema that a sampled profile uses: the members, and their types.
fn check_speedscope(json: &Json) {
    assert_eq!(json["$schema"], "https://www.speedscope.app/file-format-schema.json");
    let known = [
        "$schema",
        "name",
        "exporter",
        "activeProfileIndex",
        "profiles",
        "shared",
    ];
    assert!(
        json.as_object().unwrap().keys().all(|key| known.contains(&&**key)),
        "{json}"
    );
    assert!(json["name"].is_string() && json["exporter"].is_string());
    let frames = json["shared"]["frames"].as_array().unwrap();
    for frame in frames {
        let frame = frame.as_object().unwrap();
        assert!(frame["name"].is_string());
        assert!(frame.get("file").is_none_or(Json::is_string));
        assert!(
            frame
                .keys()
                .all(|key| ["name", "file", "line", "col"].contains(&&**key))
        );
    }
    let profiles = json["profiles"].as_array().unwrap();
    assert!(json["activeProfileIndex"].as_u64().unwrap() < profiles.len() as u64);
    let units = [
        "bytes",
        "microseconds",
        "milliseconds",
        "nanoseconds",
        "none",
        "seconds",
    ];
    for profile in profiles {
        assert_eq!(profile["type"], "sampled");
        assert!(profile["name"].is_string() && units.contains(&profile["unit"].as_str().unwrap()));
        assert!(profile["startValue"].is_number() && profile["endValue"].is_number());
        let (samples, weights) = (
            profile["samples"].as_array().unwrap(),
            profile["weights"].as_array().unwrap(),
        );
        assert_eq!(samples.len(), weights.len());
        assert!(weights.iter().all(Json::is_number));
        let frame = |number: &Json| number.as_u64().unwrap() < frames.len() as u64;
        assert!(
            samples
                .iter()
                .all(|sample| sample.as_array().unwrap().iter().all(frame))
        );
    }
}

#[test]
fn speedscope_s_json_is_as_its_schema_says() {
    let written = Written::of(&mut calls());
    let json: Json = serde_json::from_str(&written.text("speedscope")).unwrap();
    check_speedscope(&json);
    assert_eq!(json["name"], "a \"test\"");
    let profile = &json["profiles"][0];
    assert_eq!(profile["endValue"], 12);
    assert_eq!(profile["weights"].as_array().unwrap().len(), 3);
    let frames = json["shared"]["frames"].as_array().unwrap();
    let main = frames.iter().find(|frame| frame["name"] == "bash`main").unwrap();
    assert_eq!(main["file"], "src/10.c");
}

fn compared(former: &Path, latter: &Path, is_normalized: bool) -> Comparison {
    let paths = [former.to_str().unwrap(), latter.to_str().unwrap()];
    Comparison::of(paths, None, is_normalized).unwrap()
}

/// Each format is read, and compared with folded stacks of the same profile: there is no difference.
#[test]
fn every_format_is_read_as_it_was_written() {
    let written = Written::of(&mut calls());
    for flag in ["folded", "pprof", "speedscope"] {
        let comparison = compared(&written.path("folded"), &written.path(flag), false);
        let json: Json = serde_json::from_str(&comparison.json().to_string()).unwrap();
        assert_eq!(
            (&json["before"]["total"], &json["after"]["total"]),
            (&Json::from(12), &Json::from(12))
        );
        assert_eq!(json["functions"], Json::Array(Vec::new()), "{flag}");
    }
}

fn two_profiles() -> (tempfile::TempDir, PathBuf, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let (former, latter) = (folder.path().join("a"), folder.path().join("b"));
    std::fs::write(&former, "main;left 70\nmain;right 30\nmain;both;both 100\n").unwrap();
    std::fs::write(&latter, "main;left 60\nmain;right 140\nmain;both;both 200\n").unwrap();
    (folder, former, latter)
}

#[test]
fn shares_are_compared() {
    let (_folder, former, latter) = two_profiles();
    let text = compared(&former, &latter, true).text(10);
    let text = text
        .replace(former.to_str().unwrap(), "a")
        .replace(latter.to_str().unwrap(), "b");
    golden("difference", &text);
    assert!(text.lines().all(|line| line.len() <= 80));
}

#[test]
fn values_are_compared_if_asked() {
    let (_folder, former, latter) = two_profiles();
    let comparison = compared(&former, &latter, false);
    let json: Json = serde_json::from_str(&comparison.json().to_string()).unwrap();
    let functions = json["functions"].as_array().unwrap();
    let change = |name: &str, of: &str| {
        let function = functions.iter().find(|function| function["function"] == name).unwrap();
        function[of]["change"].as_f64().unwrap()
    };
    assert_eq!(json["normalized"], false);
    assert_eq!((change("right", "self"), change("left", "self")), (110.0, -10.0));
    // A function that calls itself counts once.
    assert_eq!((change("both", "self"), change("both", "total")), (100.0, 100.0));
    assert_eq!((change("main", "self"), change("main", "total")), (0.0, 200.0));
    assert!(comparison.text(2).contains("+110  right"), "{}", comparison.text(2));
}

#[test]
fn a_difference_is_drawn() {
    let (folder, former, latter) = two_profiles();
    let comparison = compared(&former, &latter, true);
    let path = folder.path().join("out.html");
    comparison.draw(path.to_str().unwrap()).unwrap();
    let page = std::fs::read_to_string(&path).unwrap();
    assert!(page.starts_with("<!DOCTYPE html>"));
    // 70 of 200 became 60 of 400.
    assert!(
        page.contains("<title>left (60 hits, 15.00%; self -20.00%)</title>"),
        "{page}"
    );
    assert!(
        page.contains("<title>right (140 hits, 35.00%; self +20.00%)</title>"),
        "{page}"
    );
}

#[test]
fn a_file_that_is_no_profile_is_an_error_with_its_name() {
    let (folder, former, _) = two_profiles();
    let path = folder.path().join("no");
    std::fs::write(&path, "hello").unwrap();
    let error = Comparison::of([former.to_str().unwrap(), path.to_str().unwrap()], None, true).unwrap_err();
    let text = error.to_string();
    assert!(
        text.starts_with(path.to_str().unwrap()) && text.contains("line 1 is no folded stack"),
        "{text}"
    );
    let missing = folder.path().join("missing");
    let paths = [former.to_str().unwrap(), missing.to_str().unwrap()];
    assert!(
        Comparison::of(paths, None, true)
            .unwrap_err()
            .to_string()
            .contains("missing")
    );
}
