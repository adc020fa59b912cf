//! Scripts that go through the preprocessor.

use std::process::{Command, Output};

use nanoprobe_tests::in_time::InTime;
use nanoprobe_tests::left_out::left_out;

fn nanoprobe(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_nanoprobe"))
        .args(arguments)
        .output_in_time()
        .expect("running nanoprobe")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn another_preprocessor_can_be_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let script = folder.path().join("script.d");
    std::fs::write(&script, "BEGIN { trace(EXTRA); exit(0); }\n").expect("a script");
    let path = script.to_string_lossy().into_owned();
    let output = nanoprobe(&["-xcpppath=/nowhere/cpp", "-q", "-C", "-s", &path]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stderr).contains("/nowhere/cpp"),
        "{}",
        text(&output.stderr)
    );
    if Command::new("cpp").arg("--version").output_in_time().is_err() {
        return left_out("a preprocessor by its path", "there is no cpp");
    }
    let output = nanoprobe(&["-xcpppath=cpp", "-xcppargs=-DEXTRA=5 -P", "-q", "-C", "-s", &path]);
    assert_eq!(
        (text(&output.stdout), text(&output.stderr)),
        ("5\n".into(), String::new())
    );
}

#[test]
fn scripts_go_through_the_preprocessor() {
    let folder = tempfile::tempdir().expect("a folder");
    let script = folder.path().join("script.d");
    std::fs::write(folder.path().join("number.h"), "#define NUMBER 20\n").expect("a header");
    let source = "#!/usr/bin/nanoprobe -Cs\n#include \"number.h\"\n#ifdef MORE\n\
                  BEGIN { printf(\"%d %d\\n\", NUMBER, MORE); exit(0); }\n#endif\n";
    std::fs::write(&script, source).expect("a script");
    let path = script.to_string_lossy().into_owned();
    if Command::new("cpp").arg("--version").output_in_time().is_err() {
        return left_out("scripts that go through the preprocessor", "there is no cpp");
    }
    let output = nanoprobe(&["-q", "-C", "-DMORE=22", "-s", &path]);
    assert_eq!(
        (text(&output.stdout), text(&output.stderr)),
        ("20 22\n\n".into(), String::new())
    );
    let without = nanoprobe(&["-q", "-s", &path]);
    assert!(
        text(&without.stderr).contains("D_PRAGCTL_INVAL"),
        "{}",
        text(&without.stderr)
    );
    std::fs::write(&script, "#include \"nowhere.h\"\n").expect("a script");
    let failed = nanoprobe(&["-q", "-C", "-s", &path]);
    assert_eq!(failed.status.code(), Some(1));
    assert!(text(&failed.stderr).contains("Preprocessor failed to process input program"));
}

/// The definitions that the guide promises every script, and headers of the C library that scripts include.
#[test]
fn the_preprocessor_knows_the_machine_and_reads_system_headers() {
    if Command::new("cpp").arg("--version").output_in_time().is_err() {
        return left_out("system headers in scripts", "there is no cpp");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let script = folder.path().join("script.d");
    let headers = [
        "errno",
        "fcntl",
        "signal",
        "stdint",
        "stdlib",
        "sys/prctl",
        "sys/socket",
        "sys/stat",
        "sys/types",
        "sys/user",
        "time",
        "unistd",
    ];
    let mut source: String = headers.iter().map(|name| format!("#include <{name}.h>\n")).collect();
    source += "#if !defined __unix || !defined __SVR4 || !defined __Linux || !defined __SUNW_D_64\n\
               #error of the machine\n#endif\n\
               BEGIN { printf(\"%d %x %d %d %d\\n\", __SUNW_D, __SUNW_D_VERSION, O_CREAT, ENOENT, sizeof (struct stat)); exit(0); }\n";
    std::fs::write(&script, source).expect("a script");
    let output = nanoprobe(&["-q", "-C", "-s", &script.to_string_lossy()]);
    assert_eq!(
        (text(&output.stdout), text(&output.stderr)),
        ("1 100d000 64 2 144\n\n".into(), String::new())
    );
}
