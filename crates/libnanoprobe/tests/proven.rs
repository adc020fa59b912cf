//! SIMD registers are saved around handlers unless the handlers provably do not change them.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod common;

use common::Built;

/// The probed code finds all of its registers unchanged, whatever the handlers do. Around handlers that provably leave
/// the SIMD registers alone, these are not saved. This stays so whatever is hooked later, as long as the handlers' code
/// is loaded.
#[test]
fn proven_handlers_are_called_as_they_are() {
    let built = Built::new();
    let library = |name: &str, flags: &[&str]| {
        let flags = [&["-shared", "-fPIC"], flags].concat();
        built.compile_with("cc", "proven_library.c", name, &flags)
    };
    let (quiet, loud) = (library("quiet.so", &[]), library("loud.so", &["-DLOUD"]));
    let program = built.compile_with("cc", "proven.c", "program", &["-Wno-pedantic", "-ldl"]);
    let output = built.run_with(&program, &[quiet.to_str().unwrap(), loud.to_str().unwrap()]);
    assert_eq!(output, "another library\ndone\n");
}

/// Handlers reach errno in several ways, or not at all. After each handler errno is unchanged.
#[test]
fn errno_stays_unchanged() {
    let built = Built::new();
    let program = built.compile("cc", "errors.c");
    let ways = [
        "by_call",
        "by_system_call",
        "by_pointer",
        "by_thread_pointer",
        "by_function_of_its_own",
        "by_distance",
        "by_string",
        "not_at_all",
    ];
    let expected: String = ways.map(|way| format!("{way}: 210 came, 0 wrong\n")).concat();
    assert_eq!(built.run(&program), expected);
}
