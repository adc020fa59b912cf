//! `args[]` of one function, by its module's debug information and by how its language calls it.

use nanoprobe_lang::target::{Argument, Unknown};
use nanoprobe_symbols::{Function, FunctionKind, GoCall, Module};
use nanoprobe_types::{Problem, at_entry, at_entry_of_go, at_return, at_return_of_go};

use crate::debug::debug_info;

/// The types and places of `args[]` of one function.
pub fn arguments_of(module: &Module, function: &Function, name: &str) -> Result<Vec<Argument>, Unknown> {
    let what = format!("args[ ] of {}`{}", module.name(), function.name);
    let refuse = |why: &str| Err(Unknown::new("D_ARGS_TYPE", format!("failed to resolve {what}: {why}")));
    if let FunctionKind::Ifunc { .. } = function.kind {
        return refuse("it is an IFUNC: the program chooses the function at run time");
    }
    let is_changed = |name: &str| {
        [".isra.", ".constprop.", ".part."]
            .iter()
            .any(|mark| name.contains(mark))
    };
    if function.names().any(is_changed) {
        return refuse("it is a copy of a function whose parameters the compiler has changed");
    }
    let call = module.go_call(function.address);
    if matches!(call, Some(GoCall::Stack | GoCall::Unknown)) {
        let unknown =
            refuse("it is Go assembly, or called by Go assembly, and its debug information describes no parameters");
        return unknown.map_err(|unknown| unknown.with_help("arg0, arg1, ... are the words of its arguments"));
    }
    let signature = debug_info(module)
        .and_then(|info| info.function(function.address.0))
        .and_then(|signature| match signature.go == call.is_some() {
            true => Ok(signature),
            false => Err(Problem::Go {
                module: module.name().to_owned(),
            }),
        })
        .map_err(|problem| {
            of_go(
                call,
                unknown("D_ARGS_TYPE", &format!("failed to resolve {what}"), &problem),
            )
        })?;
    match name {
        "entry" if call.is_some() => Ok(at_entry_of_go(&signature)),
        "return" if call.is_some() => Ok(at_return_of_go(&signature)),
        "entry" => Ok(at_entry(&signature)),
        "return" => Ok(at_return(&signature)),
        _ => refuse("parameters are known at entry, and the value at return"),
    }
}

/// If the function is Go's, adds advice to the error: a Go program may lack debug information of its types.
fn of_go(call: Option<GoCall>, unknown: Unknown) -> Unknown {
    match call {
        Some(_) => unknown.with_help(
            "build it without -ldflags=-w and -s; without that, use arg0, arg1, ...: the words of its arguments (a \
             string or an interface takes two, a slice three)",
        ),
        None => unknown,
    }
}

/// An error with this tag, which says what the debug information lacks.
pub fn unknown(tag: &'static str, what: &str, problem: &Problem) -> Unknown {
    let unknown = Unknown::new(tag, format!("{what}: {problem}"));
    match problem.help() {
        Some(help) => unknown.with_help(help),
        None => unknown,
    }
}
