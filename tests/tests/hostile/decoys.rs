//! A target cannot make the tracer write to files that belong to other users.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;

use nanoprobe_tests::left_out::{has_another_user, left_out};
use nanoprobe_tests::number_from_environment;
use nanoprobe_tests::program::program;
use nanoprobe_tests::text::Snapshot;
use nanoprobe_tests::tracer::{Form, Tracer, start_waiting_as};

/// While the shared memory is made, a thread puts handles of a file of root's over its descriptor.
#[test]
fn nothing_is_written_to_a_file_that_the_target_names() {
    if !has_another_user() {
        left_out("a hostile target of another user", "needs root and another user");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).expect("its permissions");
    let path = folder.path().join("victim");
    let content = b"root's own bytes, which nobody else may change.\n";
    let mut victim = std::fs::File::create_new(&path).expect("a file");
    victim
        .set_permissions(PermissionsExt::from_mode(0o600))
        .expect("its permissions");
    victim.write_all(content).expect("its bytes");

    let mut target = start_waiting_as(&program("decoys.c"), &path.display().to_string(), true);
    let snapshot = Snapshot::take(target.pid());
    target.go();
    target.wait_for("working\n");
    let mut worked = 0;
    let mut refused = Vec::new();
    for _ in 0..number_from_environment("NANOPROBE_CYCLES", 50).min(50) {
        let clause = "pid$target:a.out:decoys_work:entry { @ = count(); } tick-10ms { exit(0); }";
        let finished = Tracer::new(Form::Default)
            .clause(clause)
            .process(target.pid())
            .run()
            .finished;
        assert_eq!(std::fs::read(&path).expect("the file"), content);
        assert!(target.is_running(), "the target died: {}", target.stdout());
        match finished.code() {
            0 => worked += 1,
            1 => refused.push(finished.stderr),
            _ => panic!("{finished:?}"),
        }
    }
    // Either the verification failed, or the target's own mmap failed: its thread had put another file in that place.
    let known = [" shows ", "the memory shared with process", "mmap of "];
    let is_other = |text: &&String| !known.iter().any(|words| text.contains(words));
    let others: Vec<&String> = refused.iter().filter(is_other).collect();
    assert!(others.is_empty(), "{others:?}");
    println!("{worked} attached, {} were refused", refused.len());
    snapshot.assert_restored(target.pid());
    target.write("stop\n");
    assert!(target.finish().success().stdout.ends_with("OK\n"));
}
