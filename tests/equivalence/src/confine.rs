//! System calls of the tested code. A sequence may be entered anywhere, so rax may hold any number at a `syscall`.
//!
//! A seccomp filter decides by the place of the call. Code of the arenas and of the detours around
//! them may ask for its ids, and yield the processor. Every other call fails, natively and patched.
//! The executor itself may neither make processes nor send signals.

use crate::memory::BASES;

/// getpid, gettid, sched_yield: the calls that the generator makes.
const HARMLESS: [u32; 3] = [39, 186, 24];
/// getpid, by its 32-bit number.
const HARMLESS_32: u32 = 20;

const ARCHITECTURE: u32 = 0xc000_003e;
const ARCHITECTURE_32: u32 = 0x4000_0003;
/// Offsets in `struct seccomp_data`.
const NUMBER: u32 = 0;
const ARCH: u32 = 4;
const ADDRESS_HIGH: u32 = 12;

const ALLOW: u32 = 0x7fff_0000;
const REFUSE: u32 = 0x0005_0000 | libc::ENOSYS as u32;

fn instruction(code: u16, jt: u8, jf: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter { code, jt, jf, k }
}

fn load(offset: u32) -> libc::sock_filter {
    instruction(0x20, 0, 0, offset)
}

fn answer(answer: u32) -> libc::sock_filter {
    instruction(0x06, 0, 0, answer)
}

/// Answers if the loaded word has this value.
fn answer_if(value: u32, what: u32) -> [libc::sock_filter; 2] {
    [instruction(0x15, 0, 1, value), answer(what)]
}

/// Confines this process, permanently.
pub fn confine() -> std::io::Result<()> {
    // Detours lie within 2 GiB of the arenas, so their addresses have only these upper halves.
    let highs: Vec<u32> = BASES
        .iter()
        .flat_map(|base| [base.saturating_sub(1 << 31), *base, base + (1 << 31)])
        .map(|address| (address >> 32) as u32)
        .collect();
    let mut program = vec![load(ARCH)];
    // 32-bit calls come from sequences only.
    program.extend([instruction(0x15, 0, 3, ARCHITECTURE_32), load(NUMBER)]);
    program.extend([instruction(0x15, 0, 1, HARMLESS_32), answer(ALLOW)]);
    program.extend([
        load(ARCH),
        instruction(0x15, 1, 0, ARCHITECTURE),
        answer(REFUSE),
        load(ADDRESS_HIGH),
    ]);
    let count = highs.len() as u8;
    for (index, high) in highs.iter().enumerate() {
        // Continue at the part for the sequences, which follows the executor's.
        let behind = count - 1 - index as u8;
        program.push(instruction(0x15, behind + 1 + EXECUTOR, 0, *high));
    }
    // The executor.
    program.push(load(NUMBER));
    for number in FORBIDDEN {
        program.extend(answer_if(number as u32, REFUSE));
    }
    program.push(answer(ALLOW));
    // The sequences.
    program.push(load(NUMBER));
    for number in HARMLESS {
        program.extend(answer_if(number, ALLOW));
    }
    program.push(answer(REFUSE));
    let filter = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_mut_ptr(),
    };
    // SAFETY: both only change what this process may do; the program outlives the call.
    let failed = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0
            || libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &filter) != 0
    };
    if failed {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: it fails.
    assert_eq!(unsafe { libc::fork() }, -1, "the filter does not filter");
    Ok(())
}

/// The calls that even the executor may not make: they make processes, execute another program, or send signals.
const FORBIDDEN: [i64; 9] = [
    libc::SYS_fork,
    libc::SYS_vfork,
    libc::SYS_clone,
    libc::SYS_clone3,
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_kill,
    libc::SYS_tkill,
    libc::SYS_tgkill,
];
/// The instructions of the executor's part, except its last.
const EXECUTOR: u8 = 1 + 2 * FORBIDDEN.len() as u8;
