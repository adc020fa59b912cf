//! Facts that the kernel knows about a program: the paths of its files and folders, the names of its threads.

use nanoprobe_tests::live_tests;
use nanoprobe_tests::program::program;
use nanoprobe_tests::tracer::Tracer;

live_tests! {
    fn files_have_their_paths_and_threads_their_names(form) {
        let folder = tempfile::tempdir().expect("a folder");
        let real = folder.path().canonicalize().expect("its path").display().to_string();
        let clause = r#"pid$target:a.out:takes:entry {
            printf("%s|%s|%s|%s|%s\n", fds[arg0].fi_pathname, fds[arg0].fi_name, cwd, root, threadname); }
            BEGIN { printf("of the tracer: %d %d\n", strlen(threadname) > 0, cwd[0] == '/'); }"#;
        let tracer = Tracer::new(form).argument("-q").clause(clause);
        let traced = tracer.command(&program("files.c"), &real).run().complete();
        let lines: Vec<&str> = traced.results.lines().filter(|line| !line.is_empty()).collect();
        let [tracer, opened, pipe, other, closed, last] = lines.as_slice() else { panic!("{lines:?}") };
        assert_eq!(*tracer, "of the tracer: 1 1");
        assert_eq!(*opened, format!("{real}/some file|some file|{real}|/|files"));
        assert!(pipe.starts_with("pipe:[") && pipe.ends_with(&format!("|{real}|/|files")), "{pipe}");
        assert_eq!(*other, format!("{real}/some file|some file|{real}|/|the other one"));
        assert_eq!(*closed, format!("<none>|<none>|{real}|/|files"));
        assert_eq!(*last, "<none>|<none>|/|/|files");
    }
}
