//! `--format json`: each line is valid JSON for an independent parser. The schema is in `docs/json.md`.

use std::process::{Command, Output};

use nanoprobe_tests::in_time::InTime;

use serde_json::{Value, json};

fn nanoprobe(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_nanoprobe"))
        .args(["--format", "json"])
        .args(arguments)
        .output_in_time()
        .expect("running nanoprobe")
}

/// The lines of a run; each must be an object with a type.
fn lines(arguments: &[&str]) -> Vec<Value> {
    let output = nanoprobe(arguments);
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{text}");
    let lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect();
    assert!(lines.iter().all(|line| line["type"].is_string()), "{text}");
    lines
}

/// The lines of one type.
fn of<'a>(lines: &'a [Value], kind: &str) -> Vec<&'a Value> {
    lines.iter().filter(|line| line["type"] == kind).collect()
}

/// The data of the records of BEGIN.
fn data(clause: &str) -> Value {
    let lines = lines(&["-n", clause]);
    let records = of(&lines, "record");
    assert_eq!(records.len(), 1, "{lines:?}");
    records[0]["data"].clone()
}

#[test]
fn a_session_from_its_match_to_its_exit() {
    let lines = lines(&["-n", "BEGIN { trace(1); exit(3); }"]);
    let [matched, record, exit] = &lines[..] else {
        panic!("{lines:?}");
    };
    assert_eq!(
        *matched,
        json!({"type": "match", "of": "description", "text": "BEGIN ", "probes": 1})
    );
    assert_eq!(record["provider"], "dtrace");
    assert_eq!((&record["module"], &record["function"]), (&json!(""), &json!("")));
    assert_eq!((&record["name"], &record["epid"]), (&json!("BEGIN"), &json!(1)));
    assert!(record["id"].is_u64() && record["cpu"].is_u64() && record["thread"].is_u64());
    assert_eq!(record["data"], json!([{"action": "trace", "value": 1}]));
    assert_eq!(*exit, json!({"type": "exit", "status": 3}));
    assert_eq!(nanoprobe(&["-n", "BEGIN { exit(3); }"]).status.code(), Some(3));
}

#[test]
fn numbers_are_whole() {
    let found =
        data("BEGIN { trace(-1); trace(18446744073709551615); trace((char)200); trace((unsigned char)200); exit(0); }");
    let values: Vec<&Value> = found.as_array().unwrap().iter().map(|datum| &datum["value"]).collect();
    assert_eq!(values, [&json!(-1), &json!(u64::MAX), &json!(-56), &json!(200)]);
}

#[test]
fn text_is_kept_to_the_byte() {
    let found = data(r#"BEGIN { trace("a\"\\\n\té"); trace(substr("é", 0, 1)); exit(0); }"#);
    assert_eq!(found[0]["value"], "a\"\\\n\té");
    assert_eq!(found[1]["value"], json!({"text": "\u{fffd}", "hex": "c3"}));
}

#[test]
fn a_format_has_its_text_and_its_values() {
    let found = data(r#"BEGIN { printf("%5d|%s\n", 42, "x"); exit(0); }"#);
    let right = json!([{"action": "printf", "text": "   42|x\n", "values": [42, "x"]}]);
    assert_eq!(found, right);
}

#[test]
fn bytes_and_types() {
    let found =
        data("struct s { int a; char b; }; struct s x; BEGIN { x.a = 5; x.b = 'q'; print(x); print(7); exit(0); }");
    assert_eq!(
        (&found[0]["action"], &found[0]["of"]),
        (&json!("print"), &json!("struct s"))
    );
    assert!(found[0]["text"].as_str().unwrap().contains("int a = 0x5"), "{found}");
    assert_eq!(found[1], json!({"action": "print", "of": "int", "text": "int 0x7\n"}));
}

#[test]
fn an_empty_clause_is_a_record_without_data() {
    let lines = lines(&["-n", "BEGIN { }", "-n", "BEGIN { exit(0); }"]);
    assert_eq!(of(&lines, "record")[0]["data"], json!([]));
}

#[test]
fn aggregations_of_all_kinds() {
    let program = r#"BEGIN {
        @c["k", 1] = count(); @s = sum(-5); @a = avg(5); @a = avg(6); @mi = min(3); @ma = max(9); @d = stddev(1); @d = stddev(5);
        @q = quantize(0); @q = quantize(5); @q = quantize(-5); @q = quantize(5);
        @l = lquantize(-1, 0, 10, 5); @l = lquantize(7, 0, 10, 5); @l = lquantize(10, 0, 10, 5);
        @ll = llquantize(0, 10, 0, 1, 10); @ll = llquantize(3, 10, 0, 1, 10); @ll = llquantize(1000, 10, 0, 1, 10);
        @n = sum(100); normalize(@n, 10);
        exit(0);
    }"#;
    let lines = lines(&["-n", program]);
    let found = of(&lines, "aggregation");
    let value = |name: &str| {
        let mut rows = found.iter().filter(|row| row["name"] == name);
        let row = rows.next().unwrap_or_else(|| panic!("{name}"));
        assert!(rows.next().is_none());
        row["value"].clone()
    };
    assert_eq!(found.len(), 10);
    assert_eq!(
        *found[0],
        json!({"type": "aggregation", "name": "@c", "function": "count", "key": ["k", 1], "value": 1})
    );
    for (name, right) in [("@s", -5), ("@a", 5), ("@mi", 3), ("@ma", 9), ("@d", 2)] {
        assert_eq!(value(name), right, "{name}");
    }
    let right = json!([
        {"from": -7, "below": -3, "count": 1}, {"from": 0, "below": 1, "count": 1}, {"from": 4, "below": 8, "count": 2}
    ]);
    assert_eq!(value("@q"), right);
    let right = json!([{"below": 0, "count": 1}, {"from": 5, "below": 10, "count": 1}, {"from": 10, "count": 1}]);
    assert_eq!(value("@l"), right);
    let right =
        json!([{"from": 0, "below": 1, "count": 1}, {"from": 3, "below": 4, "count": 1}, {"from": 100, "count": 1}]);
    assert_eq!(value("@ll"), right);
    let normalised = found.iter().find(|row| row["name"] == "@n").unwrap();
    assert_eq!((&normalised["value"], &normalised["normal"]), (&json!(10), &json!(10)));
}

#[test]
fn printa_has_rows_and_with_a_format_their_text() {
    let found =
        data(r#"BEGIN { @a["x"] = sum(2); @a["y"] = sum(1); printa("%s=%@d;", @a); printa(@a); clear(@a); exit(0); }"#);
    let row = |key: &str, value: i32| json!({"name": "@a", "function": "sum", "key": [key], "value": value});
    let rows = json!([row("y", 1), row("x", 2)]);
    let right = json!([{"action": "printa", "text": "y=1;x=2;", "rows": rows}, {"action": "printa", "rows": rows}]);
    assert_eq!(found, right);
}

#[test]
fn what_printa_has_printed_is_not_printed_again() {
    let lines = lines(&[
        "-n",
        r#"BEGIN { @a = count(); @b = count(); printa("%@d", @a); exit(0); }"#,
    ]);
    let names: Vec<&Value> = of(&lines, "aggregation").iter().map(|row| &row["name"]).collect();
    assert_eq!(names, ["@b"]);
}

#[test]
fn errors_and_drops_by_kind() {
    let mut program = String::from(
        "BEGIN { trace(*(int *)64); } BEGIN { x = 0; trace(1 / x); } BEGIN { speculation(); speculation(); ",
    );
    (0..500).for_each(|key| program.push_str(&format!("a[{key}] = 1; ")));
    program.push_str("exit(0); }");
    let lines = lines(&["-x", "dynvarsize=4k", "-n", &program]);
    let errors = of(&lines, "error");
    assert_eq!(errors.len(), 2, "{lines:?}");
    assert_eq!(
        (&errors[0]["fault"], &errors[0]["address"], &errors[0]["action"]),
        (&json!("invalid address"), &json!(64), &json!(1))
    );
    assert_eq!(
        (&errors[1]["fault"], &errors[1]["epid"]),
        (&json!("divide-by-zero"), &json!(2))
    );
    assert!(errors[1].get("address").is_none());
    assert!(
        errors[0]["message"]
            .as_str()
            .unwrap()
            .starts_with("error on enabled probe ID 1 ")
    );
    let drops = of(&lines, "drops");
    let counts = |kind: &str| -> u64 {
        let drops = drops.iter().filter(|drop| drop["kind"] == kind);
        drops.map(|drop| drop["count"].as_u64().unwrap()).sum()
    };
    assert_eq!(counts("failed speculation"), 1);
    assert!((1..500).contains(&counts("dynamic variable")), "{drops:?}");
}

#[test]
fn a_list_of_probes() {
    let lines = lines(&["-l", "-n", "BEGIN,END"]);
    let names: Vec<&Value> = lines.iter().map(|line| &line["name"]).collect();
    assert_eq!(names, ["BEGIN", "END"]);
    assert!(of(&lines, "probe").len() == 2 && lines[0]["provider"] == "dtrace" && lines[0]["id"].is_u64());
}

/// A live process: its stack, as a datum and as a key, and its end.
#[test]
fn a_process_that_ends() {
    let clause = "pid$target:libc:_exit:entry { ustack(); @[ustack(), tid != 0] = count(); }";
    let lines = lines(&["-n", clause, "-c", "/bin/sh -c 'exit 5'"]);
    assert_eq!(of(&lines, "match")[0]["probes"], 1);
    let record = of(&lines, "record")[0];
    assert_eq!(record["function"], "_exit");
    let frames = record["data"][0]["frames"].as_array().unwrap();
    assert!(frames[0]["symbol"].as_str().unwrap().contains("`_"), "{record}");
    assert!(frames.len() > 1 && frames.iter().all(|frame| frame["address"].is_u64()));
    let row = of(&lines, "aggregation")[0];
    assert_eq!(
        (&row["key"][0], &row["key"][1]),
        (&record["data"][0]["frames"], &json!(1))
    );
    assert_eq!(of(&lines, "exited")[0]["status"], 5);
    assert_eq!(lines.last().unwrap(), &json!({"type": "exit", "status": 0}));
}
