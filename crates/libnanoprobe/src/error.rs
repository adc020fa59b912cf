//! Errors as types, the codes of `enum np_error`, and the details for `np_last_error`.

use std::cell::{Cell, RefCell};
use std::ffi::{CStr, CString, c_char, c_int};

use nanoprobe_patch::{Refusal, TargetAddress};

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The contents of a structure make no sense.
    #[error("{0}")]
    Argument(&'static str),
    /// No module defines the symbol.
    #[error("no module of the program defines `{0}`")]
    Symbol(String),
    /// The address is no instruction of a mapped file.
    #[error("{0} is not in the code of the program or its libraries")]
    NotCode(TargetAddress),
    /// The address lies within an instruction.
    #[error("{at} is not an instruction's start; the nearest are {before} and {after}")]
    Boundary {
        /// The address asked for.
        at: TargetAddress,
        /// The start of the last instruction below the address.
        before: TargetAddress,
        /// The start of the first instruction above the address.
        after: TargetAddress,
    },
    /// The address is on the black list.
    #[error("{0} is in nanoprobe's own code, or in code that its handlers need")]
    Forbidden(TargetAddress),
    /// The structure is registered already.
    #[error("this structure is registered already")]
    Registered,
    /// The structure was never registered, or is not any more.
    #[error("this structure is not registered")]
    NotRegistered,
    /// The probe's module was unloaded.
    #[error("the module was unloaded while the probe was registered")]
    Unloaded,
    /// The caller asked for a jump (`NP_PROBE_JUMP_ONLY`), and none fits.
    #[error("no jump fits at {0}")]
    Tactic(TargetAddress),
    /// The planner's reason.
    #[error("{0}")]
    Refused(#[from] Refusal),
    /// Not all exits of the function are known.
    #[error("not all exits of the function at {0} are known")]
    Exits(TargetAddress),
    /// One of the limits of invariant I10 is reached.
    #[error("{0}")]
    Limit(&'static str),
    /// A resource limit is in the way. This error's text needs no memory.
    #[error("{}", .0.to_string_lossy())]
    NoRoom(&'static CStr),
    /// The kernel refused a system call.
    #[error("{call}: {error}")]
    System {
        /// The system call that failed.
        call: &'static str,
        /// The kernel's answer.
        error: std::io::Error,
    },
    /// The caller is a handler, which would wait for itself.
    #[error("called from a handler")]
    InHandler,
    /// All debug registers are taken.
    #[error("all debug registers are taken in thread {0}: the processor has four")]
    NoWatchpoint(i32),
    /// The kernel forbids watchpoints.
    #[error(
        "perf_event_open is forbidden ({error}): see /proc/sys/kernel/perf_event_paranoid, or the sandbox's filter"
    )]
    Permission {
        /// The kernel's answer.
        error: std::io::Error,
    },
    /// Another watchpoint is on some of these bytes.
    #[error("another watchpoint is on some of the bytes at {0}")]
    Watched(TargetAddress),
    /// The machine or the kernel does not support the request.
    #[error("{0}")]
    Unsupported(&'static str),
    /// The function's return address may not be replaced.
    #[error("the return address of the function at {at} cannot be replaced: {because}")]
    ReturnAddress {
        /// The function.
        at: TargetAddress,
        /// The reason.
        because: nanoprobe_text::ReturnRefusal,
    },
    /// A thread blocks the signals, so that a breakpoint would kill the program.
    #[error(
        "thread {} (`{}`) blocks {}: a breakpoint that it meets while the text changes would end the program; have it \
         unblock these signals, or register something before it blocks them", .0.tid, .0.name, .0.names()
    )]
    Blocked(crate::self_process::Blocking),
    /// A name stands for several functions, like kprobes' EADDRNOTAVAIL.
    #[error(
        "`{name}` is {count} functions of {module}, none of them global, at {first} and elsewhere: give the address"
    )]
    Ambiguous {
        /// The symbol.
        name: String,
        /// How many functions have the name.
        count: usize,
        /// The module that has them.
        module: String,
        /// The address of the first of these functions.
        first: TargetAddress,
    },
    /// The function has a hook already.
    #[error("{0} is replaced already")]
    Busy(TargetAddress),
}

impl Error {
    /// `enum np_error`.
    pub fn code(&self) -> c_int {
        match self {
            Error::Argument(_) => -1,
            Error::Symbol(_) => -2,
            Error::NotCode(_) | Error::Refused(Refusal::OutsideFunction { .. } | Refusal::Undecodable { .. }) => -3,
            Error::Boundary { .. } | Error::Refused(Refusal::NotAnInstruction { .. }) => -4,
            Error::Forbidden(_) => -5,
            Error::Registered => -6,
            Error::NotRegistered => -7,
            Error::Unloaded => -8,
            Error::Tactic(_) | Error::Refused(Refusal::TacticUnavailable { .. }) => -9,
            Error::Refused(Refusal::Breakpoint { .. }) => -10,
            Error::Refused(Refusal::Unmovable { .. } | Refusal::NoSuchEdge { .. }) => -11,
            Error::Exits(_) => -12,
            Error::Limit(_) | Error::NoRoom(_) | Error::Refused(_) => -13,
            Error::System { .. } => -14,
            Error::InHandler => -15,
            Error::NoWatchpoint(_) => -16,
            Error::Unsupported(_) => -17,
            Error::Busy(_) | Error::Watched(_) => -18,
            Error::ReturnAddress { .. } => -19,
            Error::Permission { .. } => -20,
            Error::Blocked(_) => -21,
            Error::Ambiguous { .. } => -22,
        }
    }

    pub(crate) fn last_os(call: &'static str) -> Error {
        Error::System {
            call,
            error: std::io::Error::last_os_error(),
        }
    }
}

/// The sentences of `np_strerror`, by code from 0 down.
const SENTENCES: [&CStr; 23] = [
    c"no error",
    c"the arguments are not valid",
    c"no module defines the symbol",
    c"the address is no code",
    c"no instruction starts there",
    c"this code is nanoprobe's own, or its handlers need it",
    c"registered already",
    c"not registered",
    c"the module was unloaded",
    c"no jump fits",
    c"somebody else's breakpoint is there",
    c"the instruction cannot be executed at another address",
    c"not all exits are known",
    c"a limit is reached",
    c"the system refuses it",
    c"called from a handler",
    c"all debug registers are taken",
    c"this machine or kernel does not support it",
    c"replaced, or watched, already",
    c"the return address cannot be replaced",
    c"perf_event_open is forbidden",
    c"a thread blocks SIGTRAP, or another signal that breakpoints need",
    c"several functions have that name",
];

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
    /// The last error's text if storing it must need no memory: memory may have run out, or a handler may have
    /// interrupted malloc. (For the same reason this variable has no destructor.)
    static FIXED: Cell<Option<&'static CStr>> = const { Cell::new(None) };
}

/// `np_strerror`.
#[unsafe(no_mangle)]
pub extern "C" fn np_strerror(error: c_int) -> *const c_char {
    let index = error.checked_neg().and_then(|index| usize::try_from(index).ok());
    index
        .and_then(|index| SENTENCES.get(index))
        .copied()
        .unwrap_or(c"unknown error")
        .as_ptr()
}

/// `np_last_error`.
#[unsafe(no_mangle)]
pub extern "C" fn np_last_error() -> *const c_char {
    if let Some(text) = FIXED.get() {
        return text.as_ptr();
    }
    LAST.with(|last| last.try_borrow().map_or(c"".as_ptr(), |text| text.as_ptr()))
}

/// A result in C's form; the details are kept for this thread.
pub(crate) fn answer(result: Result<(), Error>) -> c_int {
    let Err(error) = &result else { return 0 };
    FIXED.set(match error {
        Error::InHandler => Some(c"called from a handler, which may not wait for others"),
        Error::NoRoom(text) => Some(text),
        _ => None,
    });
    match result {
        Ok(()) => 0,
        Err(error) if FIXED.get().is_some() => error.code(),
        Err(error) => {
            let code = error.code();
            let text = CString::new(error.to_string()).unwrap_or_default();
            LAST.with(|last| {
                if let Ok(mut last) = last.try_borrow_mut() {
                    *last = text;
                }
            });
            code
        }
    }
}
