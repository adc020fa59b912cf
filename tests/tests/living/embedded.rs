//! Data among the code: every instruction is probed, and the program reads the same bytes from its text as before.

use nanoprobe_tests::live_tests;
use nanoprobe_tests::program::program;
use nanoprobe_tests::results::table;

use crate::traced_from_start;

live_tests! {
    fn data_inside_of_functions_is_not_patched(form) {
        let functions = ["text_inside", "table_inside", "constant_inside", "falls_in", "prefix_inside", "dense"];
        let names: Vec<String> = functions.iter().map(|name| format!("pid$target:a.out:{name}:")).collect();
        let clause = format!("{} {{ @[probefunc, probename] = count(); }}", names.join(","));
        let rounds = form.scale(3600, 90) as i64;
        // Asserts that the output, with the checksum of all bytes read, is that of the unprobed run.
        let traced = traced_from_start(form, &clause, &program("embedded.c"), &rounds.to_string());
        let rows = table(&traced.results);
        for (name, calls) in [("text_inside", rounds + 2), ("table_inside", rounds), ("falls_in", rounds), ("dense", rounds)] {
            assert_eq!(rows.get(&format!("{name} entry")), Some(&calls), "{name} is entered");
            assert_eq!(rows.get(&format!("{name} return")), Some(&calls), "{name} is left once a call");
        }
        // Control continues into the next function, which does not count as an exit.
        assert_eq!(rows.get("constant_inside entry"), Some(&rounds));
        assert_eq!(rows.get("constant_inside return"), None);
        let of = |function: &str| {
            let mut found: Vec<String> = rows
                .keys()
                .filter_map(|key| Some(key.strip_prefix(function)?.trim().to_owned()))
                .filter(|name| name != "entry" && name != "return")
                .collect();
            found.sort();
            found
        };
        assert_eq!(of("text_inside "), ["0", "7", "9", "b", "f"]);
        // The four cases after the table, each with its count; the third one jumps to the second one.
        let fifth = rounds / 5;
        let cases = [("27", 1), ("2c", 1), ("2d", 2), ("32", 2), ("33", 1), ("37", 1), ("39", 1), ("3b", 1)];
        for (offset, fifths) in cases {
            let counted = rows.get(&format!("table_inside {offset}"));
            assert_eq!(counted, Some(&(fifths * fifth)), "+{offset}");
        }
        // Both ways around the lock prefix.
        assert_eq!(rows.get("prefix_inside entry"), Some(&rounds));
        assert_eq!(rows.get("prefix_inside return"), Some(&rounds));
    }
}
