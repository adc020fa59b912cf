//! The output of dtrace(1), byte for byte: for every kind of output, ours is compared with
//! the bytes that the D guide, the manual pages and DTrace's own library for Linux define.
//! Every blank counts.

mod errors;
mod linux;
mod outputs;
mod provider;
mod signs;

use std::os::unix::process::CommandExt as _;
use std::process::Command;

use nanoprobe_tests::command::{Finished, run};
use nanoprobe_tests::tracer::nanoprobe;

/// Runs nanoprobe on one processor, so that the column of processors is known.
fn command(arguments: &[&str]) -> Finished {
    let mut one = no_processors();
    // SAFETY: writes a bit of the set; the number is less than the set's size.
    unsafe { libc::CPU_SET(processor(), &mut one) };
    let mut command = Command::new(nanoprobe());
    command.args(arguments);
    // SAFETY: the closure makes one system call and allocates nothing.
    unsafe {
        command.pre_exec(move || match libc::sched_setaffinity(0, size_of_val(&one), &one) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        });
    }
    run(&mut command)
}

fn no_processors() -> libc::cpu_set_t {
    // SAFETY: a set of no processors is all zeros.
    unsafe { std::mem::zeroed() }
}

/// The first of the processors on which we may run.
fn processor() -> usize {
    let mut allowed = no_processors();
    // SAFETY: writes no more than the set.
    let result = unsafe { libc::sched_getaffinity(0, size_of_val(&allowed), &mut allowed) };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
    // SAFETY: reads a bit of the set; the numbers are less than its size.
    let is_allowed = |number: &usize| unsafe { libc::CPU_ISSET(*number, &allowed) };
    (0..libc::CPU_SETSIZE as usize).find(is_allowed).expect("a processor")
}

/// The expected records, written with processor 0.
fn on_its_processor(expected: &str) -> String {
    let column = format!("{:>3} ", processor());
    let lines = expected.split_inclusive('\n');
    let lines = lines.map(|line| match line.strip_prefix("  0 ") {
        Some(rest) => format!("{column}{rest}"),
        None => line.to_owned(),
    });
    lines.collect()
}

/// Standard output of a program that ends by itself, byte for byte.
#[track_caller]
fn prints(arguments: &[&str], expected: &str) {
    let found = command(arguments).success().stdout;
    let expected = on_its_processor(expected);
    assert!(
        found == expected,
        "{arguments:?}\n--- expected\n{}--- found\n{}",
        visible(&expected),
        visible(&found)
    );
}

/// The text with a mark at the end of each line.
fn visible(text: &str) -> String {
    text.split_inclusive('\n')
        .map(|line| line.replace('\n', "$\n"))
        .collect()
}
