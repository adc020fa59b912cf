//! Seed 000, List 15: what each kind of probe can do. Every cell is tried, on a function made for
//! it, and the answer is the observed result.

use std::arch::global_asm;
use std::ffi::{c_int, c_long, c_uint, c_ulong, c_void};
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Result, bail, ensure};
use nanoprobe::c::{Probe, Registers, ReturnInstance};

use super::calls::{Form, JUMP_ONLY, Registered, TRAP};

// bench_own_shapes(x) returns x + 7.
global_asm!(
    ".p2align 12",
    ".globl bench_own_shapes",
    ".type bench_own_shapes, @function",
    "bench_own_shapes:",
    "push rbp",                           // 0
    "mov rbp, rsp",                       // 1
    ".byte 0x48, 0x8d, 0x87, 7, 0, 0, 0", // 4: lea rax, [rdi + 7], long form
    ".byte 0x48, 0x83, 0xff, 0",          // 11: cmp rdi, 0
    ".byte 0x74, 1",                      // 15: je 18
    "nop",                                // 17
    "call bench_own_leaf",                // 18
    "pop rbp",                            // 23
    "ret",                                // 24
    ".size bench_own_shapes, . - bench_own_shapes",
    ".p2align 6",
    ".type bench_own_leaf, @function",
    "bench_own_leaf: ret",
    ".size bench_own_leaf, . - bench_own_leaf",
    ".p2align 12",
);

unsafe extern "C" {
    fn bench_own_shapes(value: c_long) -> c_long;
}

const ARGUMENT: c_long = 35;
const RESULT: c_long = 42;

const PLACES: [(&str, usize); 6] = [
    ("at a function's entry (push)", 0),
    ("at a long instruction inside (lea)", 4),
    ("at a branch (je)", 15),
    ("at an instruction of one byte (nop)", 17),
    ("at a call", 18),
    ("at a return (ret)", 24),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Plain(c_uint),
    Jumper,
    Return,
}

const KINDS: [(&str, Kind); 4] = [
    ("probe by trap", Kind::Plain(TRAP)),
    ("jumper probe", Kind::Jumper),
    ("probe by jump", Kind::Plain(JUMP_ONLY)),
    ("return probe", Kind::Return),
];

static FIRED: AtomicU64 = AtomicU64::new(0);
static SEEN: AtomicU64 = AtomicU64::new(0);

unsafe extern "C" fn look(_: *mut Probe, registers: *mut Registers) -> c_int {
    // SAFETY: the library hands the thread's registers.
    SEEN.store(unsafe { (*registers).rdi }, Ordering::Relaxed);
    FIRED.fetch_add(1, Ordering::Relaxed);
    0
}

unsafe extern "C" fn behind(_: *mut Probe, _: *mut Registers, _: c_ulong) {
    FIRED.fetch_add(1, Ordering::Relaxed);
}

unsafe extern "C" fn change(_: *mut Probe, registers: *mut Registers) -> c_int {
    // SAFETY: as above.
    unsafe { (*registers).rdi += 1 };
    0
}

/// Returns to the function's caller without executing the function.
unsafe extern "C" fn skip(_: *mut Probe, registers: *mut Registers) -> c_int {
    // SAFETY: at the entry the stack pointer is at the return address.
    unsafe {
        let registers = &mut *registers;
        registers.rip = *(registers.rsp as *const u64);
        registers.rsp += 8;
        registers.rax = 1000;
    }
    1
}

unsafe extern "C" fn enter(_: *mut ReturnInstance, registers: *mut Registers) -> c_int {
    // SAFETY: as above.
    SEEN.store(unsafe { (*registers).rdi }, Ordering::Relaxed);
    0
}

unsafe extern "C" fn leave(_: *mut ReturnInstance, _: *mut Registers) -> c_int {
    FIRED.fetch_add(1, Ordering::Relaxed);
    0
}

unsafe extern "C" fn change_result(_: *mut ReturnInstance, registers: *mut Registers) -> c_int {
    // SAFETY: as above.
    unsafe { (*registers).rax += 1 };
    0
}

extern "C" fn mirror(value: c_long) -> c_long {
    SEEN.store(value as u64, Ordering::Relaxed);
    FIRED.fetch_add(1, Ordering::Relaxed);
    0
}

fn call() -> c_long {
    // SAFETY: the function above has no effect but its result.
    unsafe { bench_own_shapes(ARGUMENT) }
}

fn at(kind: Kind, offset: usize) -> Result<Registered> {
    let address = bench_own_shapes as *mut c_void;
    match kind {
        Kind::Plain(flags) => Registered::plain(address, offset, Some(look), None, flags),
        Kind::Jumper => Registered::jumper_at(address, offset, mirror as *mut c_void, 0),
        Kind::Return => Registered::returning_at(address, offset, Some(enter), leave, Form::Exits, 0),
    }
}

/// Checks that the probe fires once in a call, and that the function returns the right value.
fn fires(probe: Result<Registered>) -> Result<()> {
    let _probe = probe?;
    FIRED.store(0, Ordering::Relaxed);
    ensure!(call() == RESULT, "the function returned something else");
    ensure!(FIRED.load(Ordering::Relaxed) == 1, "it did not fire");
    Ok(())
}

fn plain(kind: Kind, pre: nanoprobe::c::PreHandler) -> Result<Registered> {
    match kind {
        Kind::Plain(flags) => Registered::plain(bench_own_shapes as *mut c_void, 0, Some(pre), None, flags),
        Kind::Jumper => bail!("its handler is a function of the probed one's prototype"),
        Kind::Return => bail!("it has handlers for the call and for the return"),
    }
}

fn tried(question: &str, kind: Kind) -> Result<()> {
    if let Some((_, offset)) = PLACES.iter().find(|(place, _)| *place == question) {
        return fires(at(kind, *offset));
    }
    match question {
        "sees the function's arguments" => {
            fires(at(kind, 0))?;
            ensure!(SEEN.load(Ordering::Relaxed) == ARGUMENT as u64, "it saw something else");
        }
        "a handler behind the instruction" => match kind {
            Kind::Plain(flags) => {
                let address = bench_own_shapes as *mut c_void;
                fires(Registered::plain(address, 4, None, Some(behind), flags))?;
            }
            Kind::Jumper => bail!("runs before the function only"),
            Kind::Return => bail!("runs when the function returns"),
        },
        "changes registers" => {
            let _probe = plain(kind, change)?;
            ensure!(call() == RESULT + 1, "the change had no effect");
        }
        "returns in the function's place" => {
            let _probe = plain(kind, skip)?;
            ensure!(call() == 1000, "the function ran");
        }
        "changes the value returned" => {
            ensure!(kind == Kind::Return, "it runs before that value is there");
            let address = bench_own_shapes as *mut c_void;
            let _probe = Registered::returning_at(address, 0, None, change_result, Form::Exits, 0)?;
            ensure!(call() == RESULT + 1, "the change had no effect");
        }
        "two at one place" => {
            let _both = [at(kind, 0)?, at(kind, 0)?];
            FIRED.store(0, Ordering::Relaxed);
            ensure!(call() == RESULT && FIRED.load(Ordering::Relaxed) == 2, "not both fired");
        }
        _ => bail!("unknown question"),
    }
    Ok(())
}

const CAPABILITIES: [&str; 6] = [
    "sees the function's arguments",
    "a handler behind the instruction",
    "changes registers",
    "returns in the function's place",
    "changes the value returned",
    "two at one place",
];

/// Prints the facts.
pub fn run(out: &mut dyn Write) -> Result<()> {
    ensure!(call() == RESULT, "the function is not what it should be");
    for question in PLACES.iter().map(|(place, _)| *place).chain(CAPABILITIES) {
        for (name, kind) in KINDS {
            let answer = match tried(question, kind) {
                Ok(()) => "yes".to_owned(),
                Err(error) => format!("no: {error:#}").replace(['\n', '\t'], " "),
            };
            writeln!(out, "fact\t{question}\t{name}\t{answer}")?;
        }
    }
    ensure!(call() == RESULT, "something was left behind");
    Ok(())
}
