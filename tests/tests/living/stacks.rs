//! The two actions that show a thread's stack.

use nanoprobe_tests::live_tests;
use nanoprobe_tests::program::program;
use nanoprobe_tests::results::{function_of, stacks};
use nanoprobe_tests::tracer::Tracer;

live_tests! {
    /// jstack() is another name for ustack(), with its own option.
    fn jstack_is_a_stack(form) {
        let counts = |action: &str, option: &str| {
            let clause = format!("pid$target:a.out:stack_compare:entry {{ @[{action}] = count(); }}");
            let tracer = Tracer::new(form).argument("-q").argument("-x").argument(option).clause(&clause);
            stacks(&tracer.command(&program("stacks.c"), "20").run().complete().results)
        };
        let deepest = |found: &[(Vec<String>, i64)]| found.iter().map(|(frames, _)| frames.len()).max();
        let whole = counts("ustack()", "ustackframes=50");
        let two = counts("ustack(2)", "ustackframes=50");
        let one = counts("ustack(1)", "ustackframes=50");
        assert!(deepest(&whole) > Some(2), "{whole:?}");
        assert_eq!((deepest(&two), deepest(&one)), (Some(2), Some(1)));
        assert_eq!(counts("jstack()", "ustackframes=1"), whole);
        assert_eq!(counts("jstack(2)", "jstackframes=1"), two);
        assert_eq!(counts("jstack()", "jstackframes=1"), one);
    }
    /// A call that does not return may be its function's last instruction; the return address is
    /// another function's then.
    fn a_frame_is_of_the_function_that_called(form) {
        let clause = "pid$target:a.out:stack_away:entry { @[ustack(3)] = count(); }";
        let found = stacks(&Tracer::new(form).argument("-q").clause(clause).command(&program("stacks.c"), "20").run().complete().results);
        let functions = |(frames, count): &(Vec<String>, i64)| {
            (frames.iter().map(|frame| function_of(frame).to_owned()).collect::<Vec<_>>().join(" "), *count)
        };
        let mut named: Vec<_> = found.iter().map(functions).collect();
        named.sort();
        let expected = ["stack_last", "stack_padded"].map(|caller| (format!("stack_away {caller} main"), 10));
        assert_eq!(named, expected);
        assert!(found.iter().flat_map(|(frames, _)| frames).any(|frame| frame.ends_with("`stack_last+0x9")), "{found:?}");
    }
}
