//! Debug information of running programs in C, C++ and Rust: types, names, lines, inlined copies.

mod builds;
mod entered;
mod inlined;
mod libraries;
mod lines;
mod made;
mod names;
mod real;
mod types;

use std::path::Path;

use nanoprobe_tests::tracer::{Form, Tracer};

/// The output of a script on a command, line by line.
fn printed(form: Form, program: &Path, rounds: &str, clauses: &[&str]) -> Vec<String> {
    let mut tracer = Tracer::new(form).argument("-q");
    for clause in clauses {
        tracer = tracer.clause(clause);
    }
    let traced = tracer.command(program, rounds).run().complete();
    traced
        .results
        .lines()
        .map(str::trim_end)
        .filter(|line| !line.is_empty())
        .map(str::to_owned)
        .collect()
}
