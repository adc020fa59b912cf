//! SIMD registers, the x87 unit and MXCSR around handlers that use them.

use std::arch::{asm, global_asm};
use std::ffi::c_int;

use nanoprobe::c::{Probe, Registers};
use nanoprobe_tests::left_out::left_out;

use super::*;

/// The registers that do not fit into [`State`]: zmm0-31 whole, k0-k7, mxcsr.
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

// run_wide(state: rdi, target: rsi, live: edx, initial: rcx): all parts initial,
// those that are live loaded, the call, all stored. Bits of `live` are XINUSE's.
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
    // int spoil(probe, regs): inverts every bit of all vector and mask registers, and changes mxcsr.
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
    // int spoil_xmm(probe, regs): spoils the lower halves, by instructions that change nothing else.
    ".globl np_test_spoil_xmm",
    "np_test_spoil_xmm:",
    ".irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15",
    "pcmpeqd xmm\\n, xmm\\n",
    ".endr",
    "push 0x1fbf; ldmxcsr [rsp]; pop rax",
    "xor eax, eax",
    "ret",
);

unsafe extern "C" {
    fn np_test_run_wide(state: *mut Wide, target: u64, live: u32, initial: *const Initial);
    fn np_test_spoil(probe: *mut Probe, registers: *mut Registers) -> c_int;
    fn np_test_spoil_xmm(probe: *mut Probe, registers: *mut Registers) -> c_int;
}

/// Each part of the SIMD state may be live or in its initial state. A handler spoils all parts; afterwards each part is
/// as before.
#[test]
fn every_part_of_the_simd_state_stays() {
    every_part_stays(hit::Saved::All, np_test_spoil);
}

/// Only xmm0-15 are saved, and the handler spoils no other registers.
#[test]
fn every_part_of_the_simd_state_stays_around_legacy_code() {
    every_part_stays(hit::Saved::Xmm, np_test_spoil_xmm);
}

fn every_part_stays(saved: hit::Saved, spoil: unsafe extern "C" fn(*mut Probe, *mut Registers) -> c_int) {
    if !std::arch::is_x86_feature_detected!("avx512bw") {
        return left_out(
            "each part of the SIMD state around handlers",
            "this processor has no AVX-512",
        );
    }
    let _turn = turn();
    hit::initialise();
    let mut entry = entry(7, spoil);
    let mut list = List {
        header: ListHeader::new(1, saved, false),
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

/// The state of the x87 unit in a handler, if SIMD registers are saved around it: the control word, and the sum of
/// eight registers.
static FOUND: Mutex<Option<(u16, u32)>> = Mutex::new(None);

unsafe extern "C" fn use_x87(_: *mut Probe, _: *mut Registers) -> c_int {
    let (mut control, mut sum) = (0_u16, 0_u32);
    let other = 0x77f_u16;
    // SAFETY: eight x87 registers are used, and empty again at the end. The control word is changed on purpose.
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
    *FOUND.lock().unwrap_or_else(PoisonError::into_inner) = Some((control, sum));
    0
}

/// fnsave's area: control, status and tag word in the first three double words, the registers behind 28 bytes.
#[repr(C, align(16))]
#[derive(Clone, Copy, Debug, PartialEq)]
struct X87 {
    words: [u32; 3],
    /// The pointers of the last instruction.
    pointers: [u32; 4],
    registers: [u8; 80],
}

/// A handler uses the x87 unit. The handler finds the unit as the ABI demands it at a function's entry, and afterwards
/// the unit is as it was before.
#[test]
fn the_x87_unit_stays_and_handlers_find_it_empty() {
    let _turn = turn();
    hit::initialise();
    let mut entry = entry(8, use_x87);
    let mut list = List {
        header: ListHeader::new(1, hit::Saved::All, false),
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
            let found = FOUND.lock().unwrap_or_else(PoisonError::into_inner).take().unwrap();
            let case = format!("in use: {in_use}, control word {control:#x}, the short way: {short}");
            assert_eq!(found, (0x37f, 8), "{case}");
            assert_eq!(after.words, expected.words, "{case}");
            assert_eq!(after.registers, expected.registers, "{case}");
        }
    }
}

/// fxsave's image.
#[repr(C, align(16))]
#[derive(Clone)]
struct Image([u8; 512]);

/// The offset of the registers in the image. Before them stand control, status, tags, and the last instruction's
/// pointers.
const REGISTERS_AT: usize = 32;

impl Image {
    /// The x87 unit as a program has it after a signal: in use, with initial values.
    fn initial() -> Image {
        let mut image = Image([0; 512]);
        image.0[..2].copy_from_slice(&0x37f_u16.to_le_bytes());
        image.0[24..28].copy_from_slice(&0x1f80_u32.to_le_bytes());
        image
    }

    /// The x87 part of the calling thread's image.
    fn now() -> Image {
        let mut image = Image([0; 512]);
        // SAFETY: 512 bytes, aligned.
        unsafe { asm!("fxsave64 [{0}]", in(reg) &raw mut image) };
        image.0[24..32].fill(0);
        image.0[160..].fill(0);
        image
    }
}

unsafe extern "C" fn leave_x87_alone(_: *mut Probe, _: *mut Registers) -> c_int {
    0
}

/// Whether the processor counts the x87 unit as in use.
fn x87_is_in_use() -> bool {
    // SAFETY: the caller has seen that xgetbv knows ecx = 1.
    unsafe { std::arch::x86_64::_xgetbv(1) & 1 != 0 }
}

/// Whether the x87 unit counts as not in use after it was made initial. Some processors do not show this, or always
/// count the unit as in use.
fn x87_use_is_known() -> bool {
    let mut initial = Box::new(Initial([0; 4096]));
    initial.0[24..28].copy_from_slice(&0x1f80_u32.to_le_bytes());
    let basic = std::arch::x86_64::__cpuid(1);
    if basic.ecx & 1 << 27 == 0 || std::arch::x86_64::__cpuid_count(13, 1).eax & 4 == 0 {
        return false;
    }
    // SAFETY: the system allows xrstor; of the area nothing but its header is read.
    unsafe { asm!("xrstor64 [{0}]", in(reg) &raw const *initial, in("eax") 1, in("edx") 0) };
    !x87_is_in_use()
}

/// Whether the processor saves the last instruction's opcode and addresses that were loaded. AMD's processors save them
/// only for a pending exception. A unit in which only they are set counts as initial.
fn x87_pointers_are_kept() -> bool {
    let mut image = Image::initial();
    image.0[8] = 1;
    // SAFETY: an image without exceptions.
    unsafe { asm!("fxrstor64 [{0}]", in(reg) &raw const image) };
    Image::now().0[8] == 1
}

/// An x87 unit that is in use with initial values, as after any signal, has initial values after a handler, too. After
/// the handler the unit is not in use any more, so the next hit does not save it.
#[test]
fn an_initial_x87_unit_stays_initial() {
    let _turn = turn();
    hit::initialise();
    let known = x87_use_is_known();
    let pointers_are_kept = x87_pointers_are_kept();
    for (index, handler) in [(9, use_x87 as nanoprobe::c::PreHandler), (10, leave_x87_alone)] {
        let mut entry = entry(index, handler);
        let mut list = List {
            header: ListHeader::new(1, hit::Saved::All, false),
            entries: [&mut *entry, null_mut()],
        };
        let mut site = site(&mut list);
        let code = Code::new(&site, 0, Position::Entry);
        site.address = code.text;
        // An address, the first and last bytes of registers that are empty.
        for (short, spoiled) in [
            (true, None),
            (false, None),
            (true, Some(8)),
            (true, Some(32)),
            (true, Some(153)),
        ] {
            // SAFETY: the list above, which nobody reads at the moment.
            unsafe { set_way(&site, &entry, short) };
            let mut image = Image::initial();
            if let Some(byte) = spoiled {
                image.0[byte] = 1;
            }
            // SAFETY: an image without exceptions.
            unsafe { asm!("fxrstor64 [{0}]", in(reg) &raw const image) };
            let expected = Image::now();
            run(&state(5), code.text, false);
            if known {
                let in_use = spoiled.is_some_and(|byte| byte >= REGISTERS_AT || pointers_are_kept);
                assert_eq!(x87_is_in_use(), in_use, "handler {index}, spoiled: {spoiled:?}");
            }
            assert!(Image::now().0 == expected.0, "handler {index}, spoiled: {spoiled:?}");
        }
    }
}
