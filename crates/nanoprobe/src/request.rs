//! What the command is asked to do: to trace, or something smaller.

use clap::{CommandFactory as _, Parser as _};

use crate::arguments::{Arguments, LowArguments, parse_trace};
use crate::tools;

/// What to make of provider definitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Product {
    /// `-h`
    Header,
    /// `-G`
    Object,
}

/// What to do: trace, or something smaller.
#[derive(Debug)]
pub enum Request {
    Trace(Box<Arguments>),
    Cost(Box<Arguments>),
    /// `-h`, `-G`
    Provide(Product, Box<Arguments>),
    Restore {
        pid: i32,
    },
    /// With the arguments after the word `bench`.
    Bench(Vec<String>),
    /// A text to print.
    Print(String),
    Version,
}

/// Reads the command line.
///
/// # Errors
/// Clap's error; it knows its exit status, and whether help was asked for.
pub fn parse(words: &[String]) -> Result<Request, clap::Error> {
    if words.get(1).is_some_and(|word| word == "bench") {
        return Ok(Request::Bench(words.get(2..).unwrap_or_default().to_vec()));
    }
    if words.get(1).is_some_and(|word| word == "restore") {
        let pid = words
            .get(2)
            .and_then(|word| word.parse().ok())
            .filter(|_| words.len() == 3);
        return pid.map(|pid| Request::Restore { pid }).ok_or_else(|| {
            LowArguments::command().error(clap::error::ErrorKind::ValueValidation, "usage: nanoprobe restore PID")
        });
    }
    if words.get(1).is_some_and(|word| word == "tools") {
        return Ok(Request::Print(tools::list()));
    }
    if words.get(1).is_some_and(|word| word == "tool") {
        return Ok(match tools::parse(words.get(2..).unwrap_or_default())? {
            tools::Wanted::Run(arguments) => Request::Trace(arguments),
            tools::Wanted::Print(text) => Request::Print(text),
        });
    }
    // `cost` takes the flags of tracing, so that it can be asked about the same tracing.
    let is_cost = words.get(1).is_some_and(|word| word == "cost");
    let words = words.iter().enumerate().filter(|(index, _)| !(is_cost && *index == 1));
    let words: Vec<String> = words.map(|(_, word)| word.clone()).collect();
    let low = LowArguments::try_parse_from(&words)?;
    if low.version {
        return Ok(Request::Version);
    }
    let mut arguments = Box::new(parse_trace(&words)?);
    let product = match (low.header, low.object) {
        (true, _) => Some(Product::Header),
        (_, true) => Some(Product::Object),
        _ => None,
    };
    if let Some(product) = product {
        // Builds pass flags for the compiler here: -fPIC.
        arguments.programs.retain(|program| !program.is_position_independence());
        return Ok(Request::Provide(product, arguments));
    }
    Ok(if is_cost {
        Request::Cost(arguments)
    } else {
        Request::Trace(arguments)
    })
}

#[cfg(test)]
mod tests;
