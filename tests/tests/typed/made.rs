//! Code that is made at run time: its names in stacks, from the map that its maker writes for perf.

use nanoprobe_tests::left_out::need_command;
use nanoprobe_tests::live_tests;
use nanoprobe_tests::program::program;
use nanoprobe_tests::results::stacks;
use nanoprobe_tests::tracer::{Form, Traced, Tracer, start_waiting};

const COUNT: &str = "pid$target:a.out:leaf:entry { @[ustack(3)] = count(); }";

/// The results of a clause on code without names, and where calls in it return to.
fn nameless(form: Form, clause: &str, flags: &[&std::ffi::OsStr]) -> (Traced, Vec<String>) {
    let mut target = start_waiting(&program("nameless.c"), "30");
    let tracer = flags
        .iter()
        .fold(Tracer::new(form).argument("-q"), |tracer, flag| tracer.argument(flag));
    let tracing = tracer.clause(clause).attach(target.pid());
    target.go();
    target.wait_for("done\n");
    let traced = tracing.interrupt();
    target.go();
    let stdout = target.finish().success().stdout;
    let returns = stdout.lines().filter_map(|line| line.strip_prefix("returns "));
    (traced, returns.map(str::to_owned).collect())
}

/// The message about code without names, in a program whose maker is not known.
const ADVICE: &str = "[jit] in stacks is code that was made at run time, without names; its maker may have an option to \
                      write /tmp/perf-PID.map: node --perf-basic-prof, java with perf-map-agent, \
                      php -d opcache.jit_debug=16, DOTNET_PerfMapEnabled=1, LuaJIT built with -DLUAJIT_USE_PERFTOOLS";

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

    fn code_without_a_name_is_jit_and_its_stacks_stay_apart(form) {
        let folded = tempfile::NamedTempFile::new().expect("a file");
        let (traced, _) = nameless(form, COUNT, &["--folded".as_ref(), folded.path().as_os_str()]);
        let found = stacks(&traced.results);
        assert_eq!(found.len(), 2, "{}", traced.results);
        for (frames, count) in &found {
            let [leaf, made, main] = frames.as_slice() else { panic!("{frames:?}") };
            assert_eq!((leaf.as_str(), made.as_str(), *count), ("nameless`leaf", "[jit]", 30));
            assert!(main.starts_with("nameless`main+0x"), "{main}");
        }
        let folded = std::fs::read_to_string(folded.path()).expect("the folded stacks");
        assert_eq!(folded, "nameless`main;[jit];nameless`leaf 60\n");
        assert_eq!(traced.finished.stderr.matches(ADVICE).count(), 1, "{}", traced.finished.stderr);
    }

    fn code_without_a_name_has_its_address_in_json(form) {
        let (traced, returns) = nameless(form, COUNT, &["--json".as_ref()]);
        assert_eq!(returns.len(), 2);
        for address in returns {
            let frame = format!("{{\"address\":{address},\"symbol\":\"[jit]\"}}");
            assert_eq!(traced.results.matches(&frame).count(), 1, "{frame}: {}", traced.results);
        }
        let warning = format!("{{\"type\":\"warning\",\"message\":\"{ADVICE}\"}}");
        assert_eq!(traced.results.matches(&warning).count(), 1, "{warning}: {}", traced.results);
    }

    fn records_have_code_without_a_name_too(form) {
        let clause = "pid$target:a.out:leaf:entry { ustack(2); }";
        let (traced, _) = nameless(form, clause, &[]);
        assert_eq!(traced.results.matches(" [jit]\n").count(), 60, "{}", traced.results);
        assert_eq!(traced.finished.stderr.matches(ADVICE).count(), 1, "{}", traced.finished.stderr);
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

/// Samples of a thread that runs a handler of ours are not of code that the program has made.
#[test]
fn handlers_are_not_code_of_the_program() {
    let clause = "pid$target:a.out:left:entry { @[ustack()] = count(); } \
                  profile-997 /pid == $target/ { @samples[ustack(1)] = count(); }";
    let tracer = Tracer::new(Form::Default).argument("-q").clause(clause);
    let traced = tracer.command(&program("shares.c"), "500000 10 1").run().complete();
    assert!(traced.results.contains("500000"), "{}", traced.results);
    let said = [&traced.results, &traced.finished.stderr];
    assert!(said.iter().all(|text| !text.contains("[jit]")), "{said:?}");
}
