//! `--format json`: the bounds of distributions, and the records of every action in a live process.

use std::path::Path;
use std::process::Command;

use nanoprobe_tests::in_time::InTime;

use serde_json::{Value, json};

/// The lines of a run that prints nothing on standard error.
fn lines(arguments: &[&str]) -> Vec<Value> {
    let output = Command::new(env!("CARGO_BIN_EXE_nanoprobe"))
        .args(["--format", "json"])
        .args(arguments)
        .output_in_time()
        .expect("running nanoprobe");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{text}");
    let read = |line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    text.lines().map(read).collect()
}

fn of<'a>(lines: &'a [Value], kind: &str) -> Vec<&'a Value> {
    lines.iter().filter(|line| line["type"] == kind).collect()
}

fn whole(value: &Value) -> Option<i128> {
    value
        .as_i64()
        .map(i128::from)
        .or_else(|| value.as_u64().map(i128::from))
}

/// The edges of every power of two and of ten, and their neighbours, of both signs.
fn values() -> Vec<i64> {
    let powers = (0..63).map(|shift| 1_i64 << shift);
    let tens = (0..19).map(|power| 10_i64.pow(power));
    let mut values: Vec<i64> = powers
        .chain(tens)
        .flat_map(|value| [value - 1, value, value + 1])
        .collect();
    values.extend([i64::MAX - 1, i64::MAX, i64::MIN, i64::MIN + 1]);
    values.extend(values.clone().into_iter().map(i64::wrapping_neg));
    values.sort_unstable();
    values.dedup();
    values
}

/// A value as it is written in D, which has no constant -2^63.
fn written(value: i64) -> String {
    match value {
        i64::MIN => "(-9223372036854775807 - 1)".to_owned(),
        _ => value.to_string(),
    }
}

/// Every value is in the one bucket whose bounds include it, and no two buckets share a value.
#[test]
fn every_counted_value_lies_within_its_buckets_bounds() {
    for function in [
        "quantize(VALUE)",
        "lquantize(VALUE, -10, 10, 3)",
        "lquantize(VALUE, -2147483648, -2147483000, 10)",
        "lquantize(VALUE, 2147483000, 2147483647, 10)",
        "lquantize(VALUE, -1000000, 1000000, 65535)",
        "llquantize(VALUE, 10, 0, 6, 20)",
        "llquantize(VALUE, 10, 0, 17, 10)",
        "llquantize(VALUE, 2, 0, 61, 2)",
        "llquantize(VALUE, 2, 3, 30, 16)",
        "llquantize(VALUE, 16, 1, 5, 64)",
    ] {
        let mut program = String::from("BEGIN { ");
        for value in values() {
            let value = written(value);
            let counted = function.replace("VALUE", &value);
            program.push_str(&format!("@[(int64_t)({value})] = {counted}; "));
        }
        program.push_str("exit(0); }");
        let lines = lines(&["-x", "aggsize=64m", "-n", &program]);
        let rows = of(&lines, "aggregation");
        assert_eq!(rows.len(), values().len(), "{function}");
        let mut bounds: Vec<(i128, i128)> = Vec::new();
        for row in rows {
            let value = whole(&row["key"][0]).expect("a number");
            let buckets = row["value"].as_array().expect("buckets");
            let [bucket] = &buckets[..] else {
                panic!("{function}: {row}")
            };
            let from = bucket
                .get("from")
                .map_or(i128::MIN, |from| whole(from).expect("a number"));
            let below = bucket
                .get("below")
                .map_or(i128::MAX, |below| whole(below).expect("a number"));
            assert_eq!(bucket["count"], 1);
            assert!(from <= value && value < below, "{function} of {value}: {bucket}");
            bounds.push((from, below));
        }
        bounds.sort_unstable();
        bounds.dedup();
        let apart = bounds.windows(2).all(|pair| pair[0].1 <= pair[1].0);
        assert!(apart, "{function}: {bounds:?}");
    }
}

/// Weights, including negative ones, and the values that normalize() divides.
#[test]
fn weights_are_signed_and_normalised() {
    let program = "BEGIN {
        @q = quantize(5, 7); @q = quantize(-5, -3); @l = lquantize(4, 0, 10, 5, 100); @ll = llquantize(15, 10, 0, 2, 10, -20);
        normalize(@l, 7); exit(0); }";
    let lines = lines(&["-n", program]);
    let found = of(&lines, "aggregation");
    let value = |name: &str| {
        found
            .iter()
            .find(|row| row["name"] == name)
            .map(|row| row["value"].clone())
    };
    let right = json!([{"from": -7, "below": -3, "count": -3}, {"from": 4, "below": 8, "count": 7}]);
    assert_eq!(value("@q"), Some(right));
    assert_eq!(value("@l"), Some(json!([{"from": 0, "below": 5, "count": 14}])));
    assert_eq!(value("@ll"), Some(json!([{"from": 10, "below": 20, "count": -20}])));
}

/// Tests extreme values of aggregations other than distributions.
#[test]
fn extremes_are_whole() {
    let program = "BEGIN { x = -9223372036854775807 - 1;
        @s = sum(x); @mi = min(x); @ma = max(x); @a = avg(x); @k[x, (uint64_t)x, (char)-1, (unsigned char)255] = count(); exit(0); }";
    let lines = lines(&["-n", program]);
    let found = of(&lines, "aggregation");
    for row in &found[..4] {
        assert_eq!(row["value"], i64::MIN, "{row}");
    }
    assert_eq!(found[4]["key"], json!([i64::MIN, 1_u64 << 63, -1, 255]));
}

/// Tests the actions that leave data in a record of a process, and the actions that leave none.
#[test]
fn every_action_of_a_process() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("freopened");
    let clause = format!(
        r#"pid$target:libc:_exit:entry {{
            trace(arg0); tracemem(copyin(uregs[R_RSP], 8), 8); tracemem(copyin(uregs[R_RSP], 8), 8, 3); trace(copyin(uregs[R_RSP], 4));
            ustack(1); jstack(1); uaddr(uregs[R_PC]); usym(uregs[R_PC]); ufunc(uregs[R_PC]); umod(uregs[R_PC]);
            printf("%d %s %a", (int)arg0, probefunc, uregs[R_PC]); print(-2);
            system("true %d", 1); setopt("quiet"); freopen("{}"); freopen("");
            @[usym(uregs[R_PC]), umod(uregs[R_PC]), uaddr(uregs[R_PC])] = count(); printa(@); printa("%A %A %A %@d", @);
            normalize(@, 1); denormalize(@); clear(@); trunc(@);
        }}"#,
        out.display()
    );
    let lines = lines(&["-w", "-n", &clause, "-c", "/bin/sh -c 'exit 5'"]);
    let records = of(&lines, "record");
    assert_eq!(records.len(), 1, "{lines:?}");
    let data = records[0]["data"].as_array().expect("a list");
    let actions: Vec<&str> = data
        .iter()
        .map(|datum| datum["action"].as_str().expect("a name"))
        .collect();
    assert_eq!(
        actions,
        [
            "trace", "tracemem", "tracemem", "trace", "ustack", "ustack", "uaddr", "usym", "usym", "umod", "printf",
            "print", "printa", "printa"
        ]
    );
    let stack = data[1]["hex"].as_str().expect("text");
    assert_eq!((stack.len(), data[0]["value"].as_i64()), (16, Some(5)));
    assert_eq!(data[2]["hex"], stack[..6], "three bytes of the eight");
    assert_eq!(data[3]["value"], json!({"hex": stack[..8]}));
    let frame = &data[4]["frames"][0];
    assert_eq!(data[5]["frames"], data[4]["frames"]);
    let name = frame["symbol"].as_str().expect("a name");
    for datum in &data[6..10] {
        assert_eq!(datum["address"], frame["address"]);
    }
    let module = name.split_once('`').expect("a module").0;
    for (index, right) in [(6, name), (7, name), (8, name), (9, module)] {
        assert_eq!(data[index]["value"], right, "{}", data[index]);
    }
    assert_eq!(data[10]["text"], format!("5 _exit {name}"));
    assert_eq!(data[10]["values"], json!([5, "_exit", frame["address"]]));
    assert_eq!(
        (&data[11]["of"], &data[11]["text"]),
        (&json!("int"), &json!("int 0xfffffffe\n"))
    );
    let row = json!({"name": "@", "function": "count", "key": [name, module, name], "value": 1});
    assert_eq!(data[12]["rows"], json!([row]));
    assert_eq!(data[13]["rows"], json!([row]));
    assert_eq!(data[13]["text"], format!("{name} {module} {name} 1"));
    assert!(Path::new(&out).exists());
}

/// A speculated record is printed when it is committed, and never when it is not.
#[test]
fn speculations() {
    let program = r#"
        BEGIN { self->a = speculation(); self->b = speculation(); }
        BEGIN { speculate(self->a); trace("kept"); }
        BEGIN { speculate(self->b); trace("lost"); }
        BEGIN { commit(self->a); }
        BEGIN { discard(self->b); exit(0); }"#;
    let lines = lines(&["-x", "nspec=2", "-n", program]);
    let data = of(&lines, "record").into_iter().map(|record| &record["data"]);
    let full: Vec<&Value> = data.filter(|data| **data != json!([])).collect();
    assert_eq!(full, [&json!([{"action": "trace", "value": "kept"}])], "{lines:?}");
}

/// A floating-point conversion yields a floating-point number, and the values around it stay in their places.
#[test]
fn floating_point() {
    let program = r#"
        struct s { double d; float f; };
        struct s x;
        BEGIN { *(uint64_t *)&x.d = 0x4004000000000000; *(uint32_t *)&x.f = 0xbf000000; }
        BEGIN { printf("%.1f %*d %g", x.d, 3, 7, x.f); exit(0); }"#;
    let lines = lines(&["-n", program]);
    let printed = of(&lines, "record")
        .into_iter()
        .filter_map(|record| record["data"].get(0))
        .find(|data| data["action"] == "printf")
        .expect("a printf");
    assert_eq!(printed["text"], "2.5   7 -0.5");
    assert_eq!(printed["values"], json!([2.5, 3, 7, -0.5]));
}
