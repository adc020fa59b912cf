//! Code that is made at run time: its names in stacks, from the map that its maker writes for perf.

use nanoprobe_tests::left_out::need_command;
use nanoprobe_tests::live_tests;
use nanoprobe_tests::program::program;
use nanoprobe_tests::tracer::{Form, Tracer};

live_tests! {
    fn made_code_has_its_name_in_stacks_and_by_address(form) {
        let clause = "pid$target:a.out:leaf:entry { @stack[ustack(3)] = count(); @by[usym(ucaller), umod(ucaller)] = count(); }";
        let traced = Tracer::new(form).argument("-q").clause(clause).command(&program("jit.c"), "30").run().complete();
        let map = traced.finished.stdout.lines().find_map(|line| line.strip_prefix("map ")).expect("where the map is");
        std::fs::remove_file(map).expect("the map");
        let lines: Vec<&str> = traced.results.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        let [leaf, made, main, count, by] = lines.as_slice() else { panic!("{lines:?}") };
        assert_eq!((*leaf, *made, *count), ("jit`leaf", "jit`~made here jit.js:7+0x6", "30"));
        assert!(main.starts_with("jit`main+0x"), "{main}");
        let by: Vec<&str> = by.split_whitespace().collect();
        assert_eq!(by, ["jit`~made", "here", "jit.js:7", "jit", "30"]);
    }
}

/// This test runs only with the default tactics: with traps each call takes a signal, which on a busy machine takes
/// minutes.
#[test]
fn node_s_functions_have_their_names() {
    let Some(node) = need_command("names of made code", "node") else {
        return;
    };
    // V8 also writes a log, by default into the current folder.
    let folder = tempfile::tempdir().expect("a folder");
    let (script, log) = (folder.path().join("script.js"), folder.path().join("v8.log"));
    let text = "const fs = require('fs'); function innermost(n) { fs.fstatSync(0); return n + 1; }\n\
                function caller() { let n = 0; for (let i = 0; i < 20000; i++) n = innermost(n); return n; }\n\
                console.log('map /tmp/perf-' + process.pid + '.map'); console.log(caller());\n";
    std::fs::write(&script, text).expect("the script");
    let clause = "pid$target:node:uv_fs_fstat:entry { @[ustack(40)] = count(); }";
    let arguments = format!(
        "--perf-basic-prof --no-logfile-per-isolate --logfile={} {}",
        log.display(),
        script.display()
    );
    let traced = Tracer::new(Form::Default)
        .argument("-q")
        .clause(clause)
        .command(&node, &arguments)
        .run()
        .success();
    let map = traced
        .finished
        .stdout
        .lines()
        .find_map(|line| line.strip_prefix("map "))
        .expect("where the map is");
    std::fs::remove_file(map).expect("the map");
    assert!(traced.results.contains("innermost"), "{}", traced.results);
    assert!(traced.results.contains("caller"), "{}", traced.results);
}
