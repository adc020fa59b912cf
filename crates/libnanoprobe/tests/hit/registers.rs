//! General registers, flags, what handlers change of them, and hits inside of handlers.

use std::arch::asm;
use std::ffi::c_int;

use nanoprobe::c::{Probe, Registers};

use super::*;

/// The registers that the last handler saw.
static SEEN: Mutex<Option<Registers>> = Mutex::new(None);

unsafe extern "C" fn look(_: *mut Probe, registers: *mut Registers) -> c_int {
    // SAFETY: the hit path hands out its own registers.
    *SEEN.lock().unwrap_or_else(PoisonError::into_inner) = Some(unsafe { *registers });
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
    let _turn = turn();
    hit::initialise();
    let mut entry = entry(1, look);
    let mut list = List {
        header: ListHeader::new(1, hit::Saved::All, false),
        entries: [&mut *entry, null_mut()],
    };
    let mut site = site(&mut list);
    let places = [(0, Position::Entry), (0, Position::Inside), (SECOND, Position::Inside)];
    // Each case takes the short way of np_hit, and the full way.
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
            let seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner).take().unwrap();
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
            // The return address belongs to np_test_run, whose own stack lies above.
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
    let _turn = turn();
    hit::initialise();
    let (mut first, mut second) = (entry(2, change), entry(3, look));
    let mut list = List {
        header: ListHeader::new(2, hit::Saved::All, false),
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
    // Handlers run in the order of registration: the second handler sees the changes of the first.
    assert_eq!(
        SEEN.lock().unwrap_or_else(PoisonError::into_inner).take().unwrap().rdi,
        1000
    );
}

#[test]
fn a_function_is_skipped() {
    let _turn = turn();
    hit::initialise();
    let (mut first, mut second) = (entry(4, skip), entry(5, look));
    let mut list = List {
        header: ListHeader::new(2, hit::Saved::Nothing, false),
        entries: [&mut *first, &mut *second],
    };
    let site = site(&mut list);
    for position in [Position::Entry, Position::Inside] {
        let code = Code::new(&site, 0, position);
        SEEN.lock().unwrap_or_else(PoisonError::into_inner).take();
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
        assert!(
            SEEN.lock().unwrap_or_else(PoisonError::into_inner).is_none(),
            "who comes later is left out"
        );
    }
}

#[test]
fn a_hit_inside_of_a_handler_is_missed() {
    let _turn = turn();
    hit::initialise();
    let mut entry = entry(6, reenter);
    let mut list = List {
        header: ListHeader::new(1, hit::Saved::All, false),
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
    // The entry is disabled, so no handler runs.
    entry.enabled.store(0, Ordering::Relaxed);
    run(&state, code.text, false);
    assert_eq!(hit::counts(6), now);
}
