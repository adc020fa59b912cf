//! Sequences with control flow: branches of all forms within the sequence, loops, calls, jump tables.

use iced_x86::FlowControl;

use super::{Generator, Parts};
use crate::memory::POINTERS;
use crate::random::Random;
use crate::sequence::{CALLEES, Item, Sequence, Target};

pub(super) fn sequence(generator: &mut Generator, random: &mut Random) -> Sequence {
    let mut parts = Parts::new();
    let count = 3 + random.below(9);
    for index in 0..count {
        if random.once_in(2) {
            branch(&mut parts, index, count, random);
            continue;
        }
        if random.once_in(3) {
            parts.items.push(Item::Code(simple(random)));
            continue;
        }
        let generated = generator.opcodes.any(random);
        if generated.instruction.flow_control() == FlowControl::Next {
            parts.push(generated.item, &generated.instruction);
        }
    }
    close(parts, random)
}

/// Makes all branches lead anywhere but to themselves, and ends the sequence.
pub(super) fn close(mut parts: Parts, random: &mut Random) -> Sequence {
    if parts.items.is_empty() {
        parts.items.push(Item::Code(vec![0x90]));
    }
    let length = parts.items.len();
    for (index, item) in parts.items.iter_mut().enumerate() {
        if let Some(Target::Item(target)) = item.target_mut() {
            *target = (*target).min(length);
            // A branch to itself cannot be counted by single-steps.
            if *target == index {
                *target += 1;
            }
        }
    }
    // The distance by which rsp rises in loops is not known.
    parts.pops = 16;
    parts.pushes = 16;
    parts.finish(true, random)
}

/// Instructions that never fault and change the conditions of branches.
fn simple(random: &mut Random) -> Vec<u8> {
    let register = random.pick(&[0_u8, 2]);
    match random.below(8) {
        0 => vec![0x48, 0xff, 0xc0 | register],
        1 => vec![0xff, 0xc9],                                  // dec ecx
        2 => vec![0x83, 0xe8 | register, random.byte()],        // sub
        3 => vec![0x48, 0x85, 0xc0 | register << 3 | register], // test
        4 => vec![0x48, 0xd1, 0xd0 | register],                 // rcl
        5 => vec![0xf5],                                        // cmc
        6 => vec![0x48, 0x11, 0xc2],                            // adc rdx, rax
        _ => vec![0x38, 0xc2],                                  // cmp dl, al
    }
}

fn branch(parts: &mut Parts, index: usize, count: usize, random: &mut Random) {
    // Most branches lead forward. Backward branches end by their counter; otherwise the sequence is discarded.
    let kind = random.below(12);
    let counted = matches!(kind, 6 | 7);
    let backward = counted && random.once_in(2);
    let target = if backward {
        random.below(index + 1)
    } else {
        index + 1 + random.below(count - index)
    };
    let target = Target::Item(target);
    let callee = Target::Callee(random.below(CALLEES.len()));
    let condition = random.byte() & 15;
    let mut prefixes = Vec::new();
    if random.once_in(6) {
        prefixes.push(random.pick(&[0x2e, 0x3e, 0xf2, 0x40, 0x48, 0x4f]));
    }
    let with = |prefixes: &[u8], bytes: &[u8]| [prefixes, bytes].concat();
    match kind {
        0 | 1 => parts
            .items
            .push(Item::Short(with(&prefixes, &[0x70 | condition]), target)),
        2 | 3 => parts
            .items
            .push(Item::Near(with(&prefixes, &[0x0f, 0x80 | condition]), target)),
        4 => parts.items.push(Item::Short(with(&prefixes, &[0xeb]), target)),
        5 => parts.items.push(Item::Near(with(&prefixes, &[0xe9]), target)),
        6 | 7 => {
            let counted = 0xe0 + (random.byte() & 3);
            if random.once_in(3) {
                prefixes.insert(0, 0x67);
            }
            parts.items.push(Item::Short(with(&prefixes, &[counted]), target));
        }
        8 => parts.items.push(Item::Near(with(&prefixes, &[0xe8]), callee)),
        9 => parts.items.push(Item::Together(vec![
            Item::Near(vec![0x4c, 0x8d, 0x1d], callee), // lea r11, [callee]
            Item::Code(random.pick(&CALLS_BY_R11).to_vec()),
        ])),
        10 => parts.items.push(Item::Together(vec![
            Item::Near(vec![0x4c, 0x8d, 0x1d], target), // lea r11, [target]
            Item::Code(random.pick(&JUMPS_BY_R11).to_vec()),
        ])),
        _ => {
            // A jump table of four: the pointers to the first items of the sequence, in the data.
            let data_offset = POINTERS + 8 * random.below(8) as u64;
            parts.items.push(Item::Together(vec![
                Item::Code(vec![0x83, 0xe1, 0x03]), // and ecx, 3
                Item::Relative {
                    bytes: vec![0x4c, 0x8d, 0x1d, 0, 0, 0, 0], // lea r11, [table]
                    field: 3,
                    data_offset,
                },
                Item::Code(vec![0x41, 0xff, 0x24, 0xcb]), // jmp [r11 + rcx * 8]
            ]));
        }
    }
}

const CALLS_BY_R11: [&[u8]; 9] = [
    &[0x41, 0xff, 0xd3],                                                       // call r11
    &[0x4c, 0x89, 0x1b, 0xff, 0x13],                                           // mov [rbx], r11; call [rbx]
    &[0x41, 0x53, 0xff, 0x14, 0x24, 0x41, 0x5b],                               // push r11; call [rsp]; pop r11
    &[0x41, 0x53, 0x41, 0x53, 0xff, 0x54, 0x24, 0x08, 0x41, 0x5b, 0x41, 0x5b], // ... call [rsp + 8]
    &[0x4c, 0x89, 0x5c, 0x24, 0xf8, 0xff, 0x54, 0x24, 0xf8],                   // mov [rsp - 8], r11; call [rsp - 8]
    &[0x4c, 0x89, 0x5c, 0x24, 0xf0, 0xff, 0x54, 0x24, 0xf0],                   // the same with [rsp - 16]
    &[0x4c, 0x89, 0x9c, 0x24, 0x80, 0, 0, 0, 0xff, 0x94, 0x24, 0x80, 0, 0, 0], // mov [rsp + 128], r11; call [rsp + 128]
    &[0x41, 0xff, 0x94, 0x24, 0x80, 0, 0, 0],                                  // call [r12 + 128], which leads nowhere
    &[0xff, 0xd4], // call rsp, where nothing can be executed
];

const JUMPS_BY_R11: [&[u8]; 4] = [
    &[0x41, 0xff, 0xe3],                                     // jmp r11
    &[0x4c, 0x89, 0x1b, 0xff, 0x23],                         // mov [rbx], r11; jmp [rbx]
    &[0x41, 0x53, 0xc3],                                     // push r11; ret
    &[0x4c, 0x89, 0x5c, 0x24, 0xf8, 0xff, 0x64, 0x24, 0xf8], // jmp [rsp - 8]
];
