//! `-h` and `-G`: make from provider definitions the header whose macros are a program's probes, and the object that
//! goes with it.
//!
//! ```text
//! provider.d --h--> provider.h    PROVIDER_PROBE(...), PROVIDER_PROBE_ENABLED(): notes of .note.stapsdt
//!            \-G--> provider.o    the semaphores that PROVIDER_PROBE_ENABLED() reads and a tracer raises
//! ```
//!
//! The flags are dtrace(1)'s, so that software can be built with nanoprobe in its place. The objects that are passed to
//! `-G` are ignored: nothing in them has to change.

mod header;
mod object;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::ExitCode;

use nanoprobe_lang::bytes::bytes_of;
use nanoprobe_lang::{Program, Source};

use crate::arguments::{Arguments, ProgramText};
use crate::compile;
use crate::macros::macro_values;
use crate::output::message;
use crate::request::Product;

impl Product {
    fn flag(self) -> &'static str {
        match self {
            Product::Header => "-h",
            Product::Object => "-G",
        }
    }

    fn extension(self) -> &'static str {
        match self {
            Product::Header => "h",
            Product::Object => "o",
        }
    }
}

/// The exit status of a wrong command line.
const USAGE: u8 = 2;

/// Makes the header or the object.
pub fn run(product: Product, arguments: &Arguments) -> ExitCode {
    let flag = product.flag();
    if arguments.programs.is_empty() {
        message(format_args!(
            "{flag} requires one or more scripts with provider definitions: nanoprobe {flag} -s provider.d \
             (--help tells of all flags)"
        ));
        return ExitCode::from(USAGE);
    }
    match try_run(product, arguments) {
        Ok(status) => status,
        Err(error) => {
            message(error);
            ExitCode::FAILURE
        }
    }
}

fn try_run(product: Product, arguments: &Arguments) -> Result<ExitCode, String> {
    // As in dtrace: an unknown option is an error; a known one has no effect here.
    compile::options(arguments, &Program::default())?;
    let path = match (&arguments.output, arguments.programs.as_slice()) {
        (Some(path), _) => path.clone(),
        (None, [ProgramText::Script(script)]) => beside(script, product).ok_or_else(|| {
            format!(
                "{} requires an output file (-o) unless the script is called *.d",
                product.flag()
            )
        })?,
        (None, _) => {
            let flag = product.flag();
            message(format_args!(
                "{flag} requires an output file (-o) unless there is one script"
            ));
            return Ok(ExitCode::from(USAGE));
        }
    };
    let sources: Vec<Source> = compile::sources(arguments)?;
    let providers = match nanoprobe_lang::providers(&sources, &macro_values(arguments)) {
        Ok(providers) => providers,
        Err(diagnostics) => {
            for diagnostic in &diagnostics {
                compile::show(&sources, diagnostic);
            }
            return Ok(ExitCode::FAILURE);
        }
    };
    let bytes = match product {
        Product::Header => header::header(&providers.list, &path).into_bytes(),
        Product::Object => object::object(&providers.list),
    };
    let what = match product {
        Product::Header => "header",
        Product::Object => "object",
    };
    std::fs::write(OsStr::from_bytes(&bytes_of(&path)), bytes)
        .map_err(|error| format!("failed to create {what} file {path}: {error}"))?;
    if providers.has_clauses {
        message(format_args!(
            "{}: clauses are ignored: {path} has provider definitions only",
            product.flag()
        ));
    }
    Ok(ExitCode::SUCCESS)
}

/// The product's file, in the current directory: `probes.h` for `src/probes.d`.
fn beside(script: &str, product: Product) -> Option<String> {
    let name = Path::new(script).file_name()?.to_str()?;
    let stem = name.strip_suffix(".d")?;
    Some(format!("{stem}.{}", product.extension()))
}

/// The symbol that the header refers to and the object defines.
fn semaphore(provider: &str, probe: &str) -> String {
    format!("{provider}_{probe}_semaphore")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_product_is_called_as_its_script() {
        assert_eq!(beside("src/probes.d", Product::Header).as_deref(), Some("probes.h"));
        assert_eq!(beside("probes.d", Product::Object).as_deref(), Some("probes.o"));
        assert_eq!(beside("probes", Product::Object), None);
        assert_eq!(beside("-", Product::Header), None);
    }
}
