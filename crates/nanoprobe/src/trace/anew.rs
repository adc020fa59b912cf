//! The program for what a traced process executes: types and addresses are those of that file, if the program has any.

use std::rc::Rc;

use nanoprobe_lang::Source;
use nanoprobe_session::{Acquired, Compiled, TracedProgram};

use super::compiling::{ForProcess, compile_for, first_of, has_same_results};
use crate::arguments::Arguments;
use crate::retry::Attempt;

/// The program as it was compiled for a process that is a member, or the first one.
#[derive(Clone)]
pub struct Root {
    pub compiled: Rc<Compiled>,
    /// Whether it has types, or addresses of variables, of that process.
    pub asks: bool,
}

/// A program, and the process to which its types refer.
pub type Anew = (Rc<Compiled>, Option<Rc<TracedProgram>>);

/// The program for a process that executes another file than `root`. The error says why there is none.
pub fn compile_anew(
    arguments: &Arguments,
    sources: &[Source],
    acquired: &Acquired,
    root: &Root,
) -> Result<Anew, String> {
    if !root.asks {
        return Ok((root.compiled.clone(), None));
    }
    let only = Attempt {
        is_first: false,
        may_wait: false,
    };
    let compiled = compile_for(arguments, sources, acquired, only).map_err(|error| error.to_string())?;
    let ForProcess {
        traced,
        program,
        options,
    } = compiled.map_err(|diagnostics| first_of(&diagnostics))?;
    if !has_same_results(&program, root.compiled.program()) {
        return Err("its aggregations have other types than those of the first process".to_owned());
    }
    let compiled = root.compiled.anew(program, options);
    Ok((compiled.map_err(|error| error.to_string())?, Some(traced)))
}
