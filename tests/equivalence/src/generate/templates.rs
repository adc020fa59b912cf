//! Instructions that have the same effect each time only together with other instructions.

use super::Parts;
use crate::random::Random;
use crate::sequence::Item;

/// `mov eax, 0` and so on, which leave flags alone.
const FORGET: [&[u8]; 3] = [
    &[0xb8, 0, 0, 0, 0], // eax
    &[0xb9, 0, 0, 0, 0], // ecx
    &[0xba, 0, 0, 0, 0], // edx
];

/// Instructions whose results differ each time, followed by the overwriting of these results.
const UNPREDICTABLE: [&[u8]; 6] = [
    &[0x0f, 0x31],             // rdtsc
    &[0x0f, 0x01, 0xf9],       // rdtscp
    &[0xf3, 0x0f, 0xc7, 0xf8], // rdpid rax
    &[0x0f, 0xc7, 0xf0],       // rdrand eax
    &[0x48, 0x0f, 0xc7, 0xfa], // rdseed rdx
    &[0x0f, 0x01, 0xd0],       // xgetbv
];

/// System calls that change nothing: getpid, gettid, sched_yield, one that does not exist.
const CALLS: [u32; 4] = [39, 186, 24, 0x0fff_fff0];

pub(super) fn any(parts: &mut Parts, random: &mut Random) {
    let mut code = Vec::new();
    match random.below(7) {
        0 => {
            // Otherwise a change by a handler could not be distinguished from a new random number.
            code.extend(random.pick(&UNPREDICTABLE));
            FORGET.iter().for_each(|forget| code.extend_from_slice(forget));
            code.extend([0x31, 0xd2]); // xor edx, edx: the flags
        }
        1 => {
            code.extend([0xb8]);
            code.extend(random.pick(&CALLS).to_le_bytes());
            code.extend([0x0f, 0x05]); // syscall
        }
        2 => {
            // getpid by the 32-bit number; where there are no 32-bit system calls: a fault.
            code.extend([0xb8, 20, 0, 0, 0, 0xcd, 0x80]);
        }
        3 => {
            // push imm32; popfq: all flags but TF, and AC, under which detours fault on unaligned
            // stacks. A run that begins between the two only pops.
            parts.pops += 1;
            parts.pushes += 1;
            let flags = random.next() as u32 & 0x0020_0cd5;
            code.push(0x68);
            code.extend(flags.to_le_bytes());
            code.push(0x9d);
        }
        4 => {
            // xbegin before xend; the status of an abort is overwritten.
            code.extend([0xc7, 0xf8, 3, 0, 0, 0, 0x0f, 0x01, 0xd5]);
            code.extend_from_slice(FORGET[0]);
            parts.loose_counts = true;
        }
        5 if parts.pushes < 3 => {
            parts.pushes += 2;
            code.extend_from_slice(random.pick(&[
                &[0x48, 0x83, 0xec, 0x10][..],               // sub rsp, 16
                &[0x48, 0x8d, 0x64, 0x24, 0xf0][..],         // lea rsp, [rsp - 16]
                &[0xc8, 0x08, 0x00, 0x00][..],               // enter 8, 0
                &[0x48, 0x81, 0xc4, 0xf0, 0xff, 0xff, 0xff], // add rsp, -16
            ]));
        }
        6 if parts.pops < 3 => {
            parts.pops += 2;
            code.extend_from_slice(random.pick(&[
                &[0x48, 0x83, 0xc4, 0x10][..],       // add rsp, 16
                &[0x48, 0x8d, 0x64, 0x24, 0x10][..], // lea rsp, [rsp + 16]
            ]));
        }
        _ => code.push(0x90),
    }
    parts.items.push(Item::Code(code));
}
