//! The hit path on a function in memory that the test has made. Handlers see the right values, their changes take
//! effect, and all other registers keep their values, SIMD registers included.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod registers;
mod simd;

use std::arch::global_asm;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use nanoprobe::hit::{self, Entry, ListHeader, Site};
use nanoprobe_patch::*;

/// All registers but rsp, in and out: 16 words (rsp means nothing), flags, 16 ymm registers.
#[repr(C, align(64))]
#[derive(Clone, Debug, PartialEq)]
struct State {
    /// r15 .. rdi in the order of [`Registers`].
    general: [u64; 15],
    flags: u64,
    vectors: [[u64; 4]; 16],
}

// run(state: rdi, target: rsi, wide: edx): loads, calls, stores. `wide`: the upper halves, too.
global_asm!(
    ".globl np_test_run",
    "np_test_run:",
    "push rbx; push rbp; push r12; push r13; push r14; push r15",
    "push rdi; push rdx; push rsi",
    "test edx, edx; jz 1f",
    ".irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15",
    "vmovups ymm\\n, [rdi + 128 + 32 * \\n]",
    ".endr",
    "jmp 2f",
    "1: vzeroupper",
    ".irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15",
    "movups xmm\\n, [rdi + 128 + 32 * \\n]",
    ".endr",
    "2: push qword ptr [rdi + 120]; popfq",
    "mov r15, [rdi]; mov r14, [rdi + 8]; mov r13, [rdi + 16]; mov r12, [rdi + 24]; mov rbp, [rdi + 32]",
    "mov rbx, [rdi + 40]; mov r11, [rdi + 48]; mov r10, [rdi + 56]; mov r9, [rdi + 64]; mov r8, [rdi + 72]",
    "mov rax, [rdi + 80]; mov rcx, [rdi + 88]; mov rdx, [rdi + 96]; mov rsi, [rdi + 104]; mov rdi, [rdi + 112]",
    "call [rsp]",
    "pushfq; push rdi",
    "mov rdi, [rsp + 32]",
    "mov [rdi], r15; mov [rdi + 8], r14; mov [rdi + 16], r13; mov [rdi + 24], r12; mov [rdi + 32], rbp",
    "mov [rdi + 40], rbx; mov [rdi + 48], r11; mov [rdi + 56], r10; mov [rdi + 64], r9; mov [rdi + 72], r8",
    "mov [rdi + 80], rax; mov [rdi + 88], rcx; mov [rdi + 96], rdx; mov [rdi + 104], rsi",
    "pop rax; mov [rdi + 112], rax; pop rax; mov [rdi + 120], rax; cld",
    "cmp dword ptr [rsp + 8], 0; je 3f",
    ".irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15",
    "vmovups [rdi + 128 + 32 * \\n], ymm\\n",
    ".endr",
    "vzeroupper",
    "jmp 4f",
    "3:",
    ".irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15",
    "movups [rdi + 128 + 32 * \\n], xmm\\n",
    ".endr",
    "4: add rsp, 24",
    "pop r15; pop r14; pop r13; pop r12; pop rbp; pop rbx",
    "ret",
);

unsafe extern "C" {
    fn np_test_run(state: *mut State, target: u64, wide: u32);
}

/// A site's list of one or two entries, in the layout of the C structure.
#[repr(C)]
struct List {
    header: ListHeader,
    entries: [*mut Entry; 2],
}

/// The code under test and its detour.
struct Code {
    text: u64,
}

const DETOUR: usize = 0x8000;

/// lea rax, [rdi + 2*rsi + 0]; add rax, ADDEND; ret: flags of the add are the result's.
const FUNCTION: [u8; 15] = [
    0x48, 0x8d, 0x84, 0x77, 0, 0, 0, 0, 0x48, 0x05, 0x10, 0x32, 0x54, 0x76, 0xc3,
];
const ADDEND: u64 = 0x7654_3210;
const SECOND: u64 = 8;

impl Code {
    /// Makes the code and a patch at offset `at`, which leads to the site.
    fn new(site: &Site, at: u64, position: Position) -> Code {
        // SAFETY: fresh memory of our own; not executable while it is written.
        let text = unsafe {
            libc::mmap(
                null_mut(),
                0x10000,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert_ne!(text, libc::MAP_FAILED);
        let start = TargetAddress(text as u64);
        let map = analyze(
            &CodeView {
                start,
                bytes: &FUNCTION,
            },
            &FunctionExtent {
                start,
                size: 15,
                fragments: Vec::new(),
            },
        );
        let point = Point {
            site: TargetAddress(start.0 + at),
            condition: FireCondition::Always,
            position,
            full_frame: false,
            fires: vec![Fire::Function {
                dispatch: TargetAddress(hit::dispatch_address()),
                resume: TargetAddress(hit::resume_address()),
                cookie: site as *const Site as u64,
                quick: None,
            }],
        };
        let planned = plan(&map, &[point], &PlanOptions::default());
        let [run] = planned.runs.as_slice() else {
            panic!("{planned:?}");
        };
        let runtime = Runtime {
            enter: TargetAddress(0),
            table: TargetAddress(0),
            thread_key: ThreadKey::TlsSelf,
            trap: None,
        };
        let detour = TargetAddress(start.0 + DETOUR as u64);
        let built = build(run, detour, &runtime).unwrap();
        // SAFETY: all addresses lie within the mapping.
        unsafe {
            std::ptr::copy_nonoverlapping(FUNCTION.as_ptr(), text.cast(), FUNCTION.len());
            std::ptr::copy_nonoverlapping(built.detour.as_ptr(), detour.0 as *mut u8, built.detour.len());
            std::ptr::copy_nonoverlapping(built.patched.as_ptr(), built.address.0 as *mut u8, built.patched.len());
            assert_eq!(libc::mprotect(text, 0x10000, libc::PROT_READ | libc::PROT_EXEC), 0);
        }
        Code { text: text as u64 }
    }
}

impl Drop for Code {
    fn drop(&mut self) {
        // SAFETY: no thread executes this memory any more.
        unsafe { libc::munmap(self.text as *mut libc::c_void, 0x10000) };
    }
}

fn site(list: &mut List) -> Box<Site> {
    Box::new(Site {
        address: 0,
        list: AtomicPtr::new((list as *mut List).cast()),
        next: 0,
        missed_without_thread: AtomicU64::new(0),
        otherwise: AtomicU64::new(0),
        emulation: 0,
        next_with_fault: AtomicPtr::default(),
    })
}

fn entry(index: u32, pre: nanoprobe::c::PreHandler) -> Box<Entry> {
    Box::new(Entry {
        owner: null_mut(),
        pre: Some(pre),
        post: None,
        fault: None,
        function: None,
        index,
        enabled: AtomicU32::new(1),
        data: null_mut::<std::ffi::c_void>().into(),
    })
}

fn state(seed: u64) -> State {
    let mut random = seed | 1;
    let mut next = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    State {
        general: std::array::from_fn(|_| next()),
        flags: next() & 0x8d5 | 0x202,
        vectors: std::array::from_fn(|_| std::array::from_fn(|_| next())),
    }
}

fn run(state: &State, target: u64, wide: bool) -> State {
    let mut state = state.clone();
    // SAFETY: the target is the function under test, which takes any state and keeps rsp.
    unsafe { np_test_run(&mut state, target, u32::from(wide)) };
    state
}

/// Makes hits take the short way of np_hit (dispatch.S), or the full one.
///
/// # Safety
/// No thread reads the site's list at the moment, and the list has only this entry.
unsafe fn set_way(site: &Site, entry: &Entry, short: bool) {
    // SAFETY: the caller promises that no thread reads the list.
    let header = unsafe { &mut *site.list.load(Ordering::Relaxed) };
    if short {
        header.set_only(entry, None);
    } else {
        header.only = null();
    }
}

/// Only one test runs at a time, because tests share counters, and variables in which handlers store what they saw.
static TURN: Mutex<()> = Mutex::new(());

/// The calling test's turn. A test that failed during its own turn does not make the next test fail.
fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}
