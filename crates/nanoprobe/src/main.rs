//! The command. This is the only crate that prints or exits.
//!
//! The exit status is dtrace's: 0 on success, the status of an `exit()` in D, 1 after an error, 2
//! for a wrong command line.

mod arguments;
mod bench;
mod commands;
mod compile;
mod cost;
mod diff;
mod interrupt;
mod libraries;
mod list;
mod losses;
mod macros;
mod manual;
mod memory;
mod numbers;
mod output;
mod own_probes;
mod places;
mod preprocess;
mod processes;
mod progress;
mod provide;
mod ps;
mod request;
mod restore;
mod retry;
mod screen;
mod service;
mod standard_output;
mod tools;
mod trace;
mod traced;
mod wanted;
mod words;

use std::io::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::ExitCode;

use request::Request;

#[global_allocator]
static MEMORY: memory::Reserving = memory::Reserving;

/// If the main thread's stack is smaller than this (ulimit -s), reading programs and planning probes may overflow it.
const STACK_ENOUGH: u64 = 4 << 20;
const STACK_BYTES: usize = 8 << 20;

fn main() -> ExitCode {
    memory::tune();
    interrupt::survive_file_limit();
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: fills in one rlimit of ours.
    let known = unsafe { libc::getrlimit(libc::RLIMIT_STACK, &raw mut limit) } == 0;
    if !known || limit.rlim_cur >= STACK_ENOUGH {
        return run();
    }
    let thread = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(run);
    match thread.map(std::thread::JoinHandle::join) {
        Ok(Ok(status)) => status,
        // The panic has printed its message.
        Ok(Err(_)) => ExitCode::from(101),
        Err(error) => {
            output::message(format_args!(
                "the stack is limited to less than {} MiB (ulimit -s), and another cannot be had: {error}",
                STACK_ENOUGH >> 20
            ));
            ExitCode::FAILURE
        }
    }
}

fn run() -> ExitCode {
    let words: Vec<String> = std::env::args_os()
        .map(|word| nanoprobe_lang::bytes::text_of(word.as_bytes()))
        .collect();
    let request = match request::parse(&words) {
        Ok(request) => request,
        Err(error) if error.use_stderr() => {
            output::message(request::misuse(&error));
            return ExitCode::from(2);
        }
        Err(help) => return print(&help.to_string()),
    };
    match request {
        Request::Version => print(concat!("nanoprobe: ", env!("CARGO_PKG_VERSION"), ", Sun D 1.13\n")),
        Request::Print(text) => print(&text),
        Request::Restore { pid } => restore::one(pid),
        Request::RestoreAll => restore::all(),
        Request::Ps { as_json } => match ps::list(as_json) {
            Ok(text) => print(&text),
            Err(status) => status,
        },
        Request::Manual(folder) => write_manual(&folder),
        Request::Bench(arguments) => bench::run(&arguments),
        Request::Diff(flags) => match diff::run(&flags) {
            Ok(text) => print(&text),
            Err(status) => status,
        },
        Request::Cost(arguments) => cost::run(&arguments),
        Request::Provide(product, arguments) => provide::run(product, &arguments),
        Request::Trace(arguments) => {
            let _shown = progress::Shown::start(arguments.quiet || !arguments.format.is_for_people);
            trace::run(*arguments)
        }
    }
}

/// Prints a text. A reader that has closed its end has read enough, so this is no error.
fn print(text: &str) -> ExitCode {
    let mut out = std::io::stdout();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            output::message(format_args!("cannot write output: {error}"));
            ExitCode::FAILURE
        }
        _ => ExitCode::SUCCESS,
    }
}

fn write_manual(folder: &Path) -> ExitCode {
    match manual::write(folder) {
        Ok(pages) => print(&format!("{pages} pages in {}\n", folder.display())),
        Err(error) => {
            output::message(format_args!(
                "cannot write the manual into {}: {error}",
                folder.display()
            ));
            ExitCode::FAILURE
        }
    }
}
