//! The hit path on a function of this test's own, in memory of its own: what handlers see, that what they change holds,
//! and that what they do not change stays, SIMD registers included.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::arch::{asm, global_asm};
use std::ffi::c_int;
use std::ptr::{null, null_mut};
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use nanoprobe::c::{Probe, Registers};
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

/// A site's list of one or two entries, as C sees it.
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
    /// Patched at offset `at` with the site.
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
        // SAFETY: all of it lies within the mapping.
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
        // SAFETY: nobody runs there any more.
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
        data: null_mut(),
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

/// By the short way of np_hit (dispatch.S), or in full.
///
/// # Safety
/// Nobody reads the site's list at the moment, and it has this one entry.
unsafe fn set_way(site: &Site, entry: &Entry, short: bool) {
    // SAFETY: the caller's word.
    let header = unsafe { &mut *site.list.load(Ordering::Relaxed) };
    if short {
        header.set_only(entry);
    } else {
        header.only = null();
    }
}

/// What the last handler saw.
static SEEN: Mutex<Option<Registers>> = Mutex::new(None);
static TURN: Mutex<()> = Mutex::new(());

unsafe extern "C" fn look(_: *mut Probe, registers: *mut Registers) -> c_int {
    // SAFETY: the hit path hands out its own registers.
    *SEEN.lock().unwrap() = Some(unsafe { *registers });
    // SAFETY: handlers may use SIMD registers: all of them are destroyed, upper halves too.
    unsafe {
        asm!(
            "vpcmpeqd ymm0, ymm0, ymm0", "vmovaps ymm1, ymm0", "vmovaps ymm2, ymm0", "vmovaps ymm3, ymm0",
            "vmovaps ymm4, ymm0", "vmovaps ymm5, ymm0", "vmovaps ymm6, ymm0", "vmovaps ymm7, ymm0",
            "vmovaps ymm8, ymm0", "vmovaps ymm9, ymm0", "vmovaps ymm10, ymm0", "vmovaps ymm11, ymm0",
            "vmovaps ymm12, ymm0", "vmovaps ymm13, ymm0", "vmovaps ymm14, ymm0", "vmovaps ymm15, ymm0",
            out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _, out("xmm4") _, out("xmm5") _,
            out("xmm6") _, out("xmm7") _, out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _,
            out("xmm12") _, out("xmm13") _, out("xmm14") _, out("xmm15") _,
        );
    }
    0
}

unsafe extern "C" fn change(_: *mut Probe, registers: *mut Registers) -> c_int {
    // SAFETY: as above.
    let registers = unsafe { &mut *registers };
    registers.rdi = 1000;
    registers.rsi = 100;
    registers.rbx = 10;
    registers.r15 = 15;
    0
}

unsafe extern "C" fn skip(_: *mut Probe, registers: *mut Registers) -> c_int {
    // SAFETY: as above.
    let registers = unsafe { &mut *registers };
    // SAFETY: at the function's entry rsp points at the return address.
    registers.rip = unsafe { *(registers.rsp as *const u64) };
    registers.rsp += 8;
    registers.rax = 4242;
    registers.rflags |= 0x400;
    1
}

static AGAIN: AtomicU64 = AtomicU64::new(0);

unsafe extern "C" fn reenter(_: *mut Probe, registers: *mut Registers) -> c_int {
    let target = AGAIN.load(Ordering::Relaxed);
    // SAFETY: the function under test; the handler's own hit is left out.
    let result = unsafe { std::mem::transmute::<u64, extern "C" fn(u64, u64) -> u64>(target) }(1, 2);
    // SAFETY: as above.
    unsafe { (*registers).rdi = result };
    0
}

fn avx() -> bool {
    std::arch::is_x86_feature_detected!("avx")
}

#[test]
fn handlers_see_all_and_nothing_else_changes() {
    let _turn = TURN.lock().unwrap();
    hit::initialise();
    let mut entry = entry(1, look);
    let mut list = List {
        header: ListHeader::new(1, true, false),
        entries: [&mut *entry, null_mut()],
    };
    let mut site = site(&mut list);
    let places = [(0, Position::Entry), (0, Position::Inside), (SECOND, Position::Inside)];
    // By the short way of np_hit, and in full.
    for ((at, position), only) in places
        .map(|place| [(place, true), (place, false)])
        .into_iter()
        .flatten()
    {
        // SAFETY: the list above, which nobody reads at the moment.
        unsafe { set_way(&site, &entry, only) };
        let code = Code::new(&site, at, position);
        site.address = code.text + at;
        let before = hit::counts(1).0;
        for seed in 1..200 {
            let wide = avx() && seed % 2 == 0;
            let state = state(seed);
            let after = run(&state, code.text, wide);
            let [r15, r14, r13, r12, rbp, rbx, r11, r10, r9, r8, rax, rcx, rdx, rsi, rdi] = state.general;
            let rax = if at == 0 { rax } else { rdi.wrapping_add(rsi << 1) };
            let seen = SEEN.lock().unwrap().take().unwrap();
            let expected = Registers {
                r15,
                r14,
                r13,
                r12,
                rbp,
                rbx,
                r11,
                r10,
                r9,
                r8,
                rax,
                rcx,
                rdx,
                rsi,
                rdi,
                rip: code.text + at,
                rflags: seen.rflags,
                rsp: seen.rsp,
            };
            assert_eq!(seen, expected, "seed {seed}");
            assert_eq!(seen.rflags & 0xcd5, state.flags & 0xcd5);
            // The return address is np_test_run's, whose own stack lies above.
            assert_eq!(seen.rsp & 7, 0);
            let (sum, carry) = rdi.wrapping_add(rsi << 1).overflowing_add(ADDEND);
            let mut general = state.general;
            general[10] = sum;
            assert_eq!(after.general, general, "seed {seed}");
            assert_eq!(after.vectors, state.vectors, "seed {seed}, wide: {wide}");
            assert_eq!(after.flags & 1, u64::from(carry));
            assert_eq!(after.flags & 0x40 != 0, sum == 0);
        }
        assert_eq!(hit::counts(1).0 - before, 199);
    }
}

#[test]
fn what_a_handler_changes_holds() {
    let _turn = TURN.lock().unwrap();
    hit::initialise();
    let (mut first, mut second) = (entry(2, change), entry(3, look));
    let mut list = List {
        header: ListHeader::new(2, true, false),
        entries: [&mut *first, &mut *second],
    };
    let site = site(&mut list);
    let code = Code::new(&site, 0, Position::Entry);
    let after = run(&state(7), code.text, false);
    assert_eq!(after.general[10], 1000 + 200 + ADDEND);
    assert_eq!(
        [after.general[0], after.general[5], after.general[13], after.general[14]],
        [15, 10, 100, 1000]
    );
    // In the order of registration: the second sees what the first did.
    assert_eq!(SEEN.lock().unwrap().take().unwrap().rdi, 1000);
}

#[test]
fn a_function_is_skipped() {
    let _turn = TURN.lock().unwrap();
    hit::initialise();
    let (mut first, mut second) = (entry(4, skip), entry(5, look));
    let mut list = List {
        header: ListHeader::new(2, false, false),
        entries: [&mut *first, &mut *second],
    };
    let site = site(&mut list);
    for position in [Position::Entry, Position::Inside] {
        let code = Code::new(&site, 0, position);
        SEEN.lock().unwrap().take();
        for seed in 1..50 {
            let state = state(seed);
            let after = run(&state, code.text, false);
            let mut general = state.general;
            general[10] = 4242;
            assert_eq!(after.general, general);
            assert_eq!(
                after.flags & 0xcd5,
                state.flags & 0xcd5 | 0x400,
                "all flags, direction too"
            );
            assert_eq!(after.vectors, state.vectors);
        }
        assert!(SEEN.lock().unwrap().is_none(), "who comes later is left out");
    }
}

#[test]
fn a_hit_inside_of_a_handler_is_missed() {
    let _turn = TURN.lock().unwrap();
    hit::initialise();
    let mut entry = entry(6, reenter);
    let mut list = List {
        header: ListHeader::new(1, true, false),
        entries: [&mut *entry, null_mut()],
    };
    let site = site(&mut list);
    let code = Code::new(&site, 0, Position::Entry);
    AGAIN.store(code.text, Ordering::Relaxed);
    let mut state = state(3);
    state.general[13] = 10;
    let before = hit::counts(6);
    let after = run(&state, code.text, false);
    let now = hit::counts(6);
    assert_eq!((now.0 - before.0, now.1 - before.1), (1, 1));
    // rdi became the inner call's result.
    assert_eq!(after.general[14], 1 + 2 * 2 + ADDEND);
    assert_eq!(after.general[10], 5 + ADDEND + 2 * 10 + ADDEND);
    assert!(!hit::in_handler());
    // Disabled: nothing fires.
    entry.enabled.store(0, Ordering::Relaxed);
    run(&state, code.text, false);
    assert_eq!(hit::counts(6), now);
}

/// What [`State`] has no room for: zmm0-31 whole, k0-k7, mxcsr.
#[repr(C, align(64))]
#[derive(Clone, Debug, PartialEq)]
struct Wide {
    vectors: [[u64; 8]; 32],
    masks: [u64; 8],
    mxcsr: u32,
}

/// An area of xsave's standard form in which every part is initial: 4096 bytes, mxcsr at 24.
#[repr(C, align(64))]
struct Initial([u8; 4096]);

// run_wide(state: rdi, target: rsi, live: edx, initial: rcx): all parts initial, those that are live loaded, the call, all
// stored. Bits of `live` are XINUSE's.
global_asm!(
    ".globl np_test_run_wide",
    "np_test_run_wide:",
    "push rbx; push r12; push r13; push r14; push r15",
    "mov r12, rdi; mov r13, rsi; mov r14d, edx",
    "mov eax, 0xe6; xor edx, edx; xrstor [rcx]",
    "ldmxcsr [r12 + 2112]",
    "test r14d, 0x40; jz 1f",
    ".irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15",
    "vmovups zmm\\n, [r12 + 64 * \\n]",
    ".endr",
    "jmp 3f",
    "1: test r14d, 4; jz 2f",
    ".irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15",
    "vmovups ymm\\n, [r12 + 64 * \\n]",
    ".endr",
    "jmp 3f",
    "2:",
    ".irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15",
    "movups xmm\\n, [r12 + 64 * \\n]",
    ".endr",
    "3: test r14d, 0x80; jz 4f",
    ".irp n, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31",
    "vmovups zmm\\n, [r12 + 64 * \\n]",
    ".endr",
    "4: test r14d, 0x20; jz 5f",
    ".irp n, 0, 1, 2, 3, 4, 5, 6, 7",
    "kmovq k\\n, [r12 + 2048 + 8 * \\n]",
    ".endr",
    "5: call r13",
    "stmxcsr [r12 + 2112]",
    ".irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31",
    "vmovups [r12 + 64 * \\n], zmm\\n",
    ".endr",
    ".irp n, 0, 1, 2, 3, 4, 5, 6, 7",
    "kmovq [r12 + 2048 + 8 * \\n], k\\n",
    ".endr",
    "vzeroupper",
    "pop r15; pop r14; pop r13; pop r12; pop rbx",
    "ret",
    // int spoil(probe, regs): every bit of it all becomes another.
    ".globl np_test_spoil",
    "np_test_spoil:",
    ".irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31",
    "vpternlogd zmm\\n, zmm\\n, zmm\\n, 0x55",
    ".endr",
    ".irp n, 0, 1, 2, 3, 4, 5, 6, 7",
    "knotq k\\n, k\\n",
    ".endr",
    "push 0x1fbf; ldmxcsr [rsp]; pop rax",
    "xor eax, eax",
    "ret",
);

unsafe extern "C" {
    fn np_test_run_wide(state: *mut Wide, target: u64, live: u32, initial: *const Initial);
    fn np_test_spoil(probe: *mut Probe, registers: *mut Registers) -> c_int;
}

/// Whatever part of the SIMD state is live, and whatever is initial, is so behind a handler that spoils all of it.
#[test]
fn every_part_of_the_simd_state_stays() {
    if !std::arch::is_x86_feature_detected!("avx512bw") {
        return;
    }
    let _turn = TURN.lock().unwrap();
    hit::initialise();
    let mut entry = entry(7, np_test_spoil);
    let mut list = List {
        header: ListHeader::new(1, true, false),
        entries: [&mut *entry, null_mut()],
    };
    let mut site = site(&mut list);
    let code = Code::new(&site, 0, Position::Entry);
    site.address = code.text;
    let mut initial = Box::new(Initial([0; 4096]));
    initial.0[24..28].copy_from_slice(&0x1f80_u32.to_le_bytes());
    let before = hit::counts(7).0;
    for short in [true, false] {
        // SAFETY: the list above, which nobody reads at the moment.
        unsafe { set_way(&site, &entry, short) };
        for combination in 0..16 {
            let live = [4, 0x40, 0x80, 0x20]
                .into_iter()
                .enumerate()
                .filter(|(bit, _)| combination & 1 << bit != 0)
                .fold(2, |live, (_, part)| live | part);
            let mut state = Box::new(Wide {
                vectors: std::array::from_fn(|row| std::array::from_fn(|word| (row * 8 + word + 1) as u64 * 0x1_0001)),
                masks: std::array::from_fn(|mask| mask as u64 + 0x77),
                mxcsr: 0x5f80,
            });
            let mut expected = state.clone();
            let words = if live & 0x40 != 0 {
                8
            } else if live & 4 != 0 {
                4
            } else {
                2
            };
            for vector in &mut expected.vectors[..16] {
                vector[words..].fill(0);
            }
            if live & 0x80 == 0 {
                expected.vectors[16..].fill([0; 8]);
            }
            if live & 0x20 == 0 {
                expected.masks.fill(0);
            }
            // SAFETY: the target is the function under test, which touches no SIMD register.
            unsafe { np_test_run_wide(&mut *state, code.text, live, &*initial) };
            assert_eq!(state, expected, "live: {live:#x}, the short way: {short}");
        }
    }
    assert_eq!(hit::counts(7).0 - before, 32);
}

/// What a handler with SIMD registers saved finds of the x87 unit, and what its own sum of eight registers was.
static FOUND: Mutex<Option<(u16, u32)>> = Mutex::new(None);

unsafe extern "C" fn use_x87(_: *mut Probe, _: *mut Registers) -> c_int {
    let (mut control, mut sum) = (0_u16, 0_u32);
    let other = 0x77f_u16;
    // SAFETY: eight registers are used, and given back; the control word is left another.
    unsafe {
        asm!(
            "fnstcw word ptr [{control}]",
            "fld1", "fld1", "fld1", "fld1", "fld1", "fld1", "fld1", "fld1",
            "faddp", "faddp", "faddp", "faddp", "faddp", "faddp", "faddp",
            "fistp dword ptr [{sum}]",
            "fldcw word ptr [{other}]",
            control = in(reg) &raw mut control, sum = in(reg) &raw mut sum, other = in(reg) &raw const other,
        );
    }
    *FOUND.lock().unwrap() = Some((control, sum));
    0
}

/// fnsave's area: control, status and tag word in the first three double words, the registers behind 28 bytes.
#[repr(C, align(16))]
#[derive(Clone, Copy, Debug, PartialEq)]
struct X87 {
    words: [u32; 3],
    /// Of the last instruction.
    pointers: [u32; 4],
    registers: [u8; 80],
}

/// The x87 unit is as it was behind a handler that uses it, which finds it as the ABI wants it at any function's entry.
#[test]
fn the_x87_unit_stays_and_handlers_find_it_empty() {
    let _turn = TURN.lock().unwrap();
    hit::initialise();
    let mut entry = entry(8, use_x87);
    let mut list = List {
        header: ListHeader::new(1, true, false),
        entries: [&mut *entry, null_mut()],
    };
    let mut site = site(&mut list);
    let code = Code::new(&site, 0, Position::Entry);
    site.address = code.text;
    let values = [3.25_f64, -7.5];
    for short in [true, false] {
        // SAFETY: the list above, which nobody reads at the moment.
        unsafe { set_way(&site, &entry, short) };
        for (in_use, control) in [(false, 0x37f_u16), (false, 0x27f), (true, 0x37f), (true, 0xc7f)] {
            let mut after = X87 {
                words: [0; 3],
                pointers: [0; 4],
                registers: [0; 80],
            };
            let mut expected = after;
            let load = || {
                // SAFETY: between here and the fnsave nothing of this test's uses the unit.
                unsafe {
                    asm!("fninit", "fld qword ptr [{0}]", "fld qword ptr [{0} + 8]", in(reg) &raw const values);
                    if !in_use {
                        asm!("fstp st(0)", "fstp st(0)");
                    }
                    asm!("fldcw word ptr [{0}]", in(reg) &raw const control);
                }
            };
            load();
            // SAFETY: 108 bytes; fnsave leaves the unit as at the start.
            unsafe { asm!("fnsave [{0}]", in(reg) &raw mut expected) };
            load();
            run(&state(5), code.text, false);
            // SAFETY: as above.
            unsafe { asm!("fnsave [{0}]", in(reg) &raw mut after) };
            let found = FOUND.lock().unwrap().take().unwrap();
            let case = format!("in use: {in_use}, control word {control:#x}, the short way: {short}");
            assert_eq!(found, (0x37f, 8), "{case}");
            assert_eq!(after.words, expected.words, "{case}");
            assert_eq!(after.registers, expected.registers, "{case}");
        }
    }
}
