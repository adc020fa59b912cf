//! Stacks of interpreted programs, compared with the runtime's own account of the same call.

mod inlined;
mod java;
mod javascript;
mod python;
mod sampled;
mod sampled_code;

use nanoprobe_tests::tracer::Traced;

/// Each call by its number, with the frames of interpreted code, innermost first.
type Stacks = Vec<(u64, Vec<String>)>;

/// The program's output: `stack N`, then a frame on each line.
fn told(stdout: &str) -> Stacks {
    let mut stacks = Stacks::new();
    for line in stdout.lines() {
        match (line.strip_prefix("stack "), stacks.last_mut()) {
            (Some(number), _) => stacks.push((number.parse().expect("a number"), Vec::new())),
            (None, Some((_, frames))) if line.contains(':') => frames.push(line.to_owned()),
            _ => {}
        }
    }
    stacks
}

/// The records of a clause: `call N`, then the frames of a `ustack()`, which include frames of machine code.
fn recorded(traced: &Traced) -> Stacks {
    let mut stacks = Stacks::new();
    for line in traced.results.lines().map(str::trim) {
        match (line.strip_prefix("call "), stacks.last_mut()) {
            (Some(number), _) => stacks.push((number.parse().expect("a number"), Vec::new())),
            (None, Some((_, frames))) if is_interpreted(line) => frames.push(line.to_owned()),
            _ => {}
        }
    }
    stacks
}

/// Whether a frame is not one of machine code: ``module`function`` or an address.
fn is_interpreted(frame: &str) -> bool {
    !frame.is_empty() && !frame.contains('`') && !frame.starts_with("0x")
}
