//! The image obeys the agent's rules, as far as the bytes of the image can show this.

#![allow(clippy::unwrap_used, reason = "test code")]

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};
use nanoprobe_agent::{EVENT_HOOK_OFFSET, FAULT_HOOK_OFFSET, Function, IMAGE, ImageHeader, READERS_OFFSET, image_with};
use nanoprobe_arena::Structure;
use nanoprobe_arena::layout::{GUESTS, Image, MAGIC};

/// Where an instruction goes. A system call, which is a call for the decoder, goes to no code of the image.
fn flow_of(instruction: &Instruction) -> FlowControl {
    match instruction.mnemonic() {
        Mnemonic::Syscall => FlowControl::Next,
        _ => instruction.flow_control(),
    }
}

/// Every instruction that can be reached from the functions of the contract.
fn instructions() -> Vec<Instruction> {
    reached_from(Function::ALL)
}

fn reached_from(functions: &[Function]) -> Vec<Instruction> {
    let mut seen = std::collections::BTreeMap::new();
    let mut work: Vec<u64> = functions.iter().map(|function| u64::from(function.offset())).collect();
    while let Some(start) = work.pop() {
        let mut decoder = Decoder::with_ip(64, IMAGE, 0, DecoderOptions::NONE);
        decoder.set_position(start as usize).unwrap();
        decoder.set_ip(start);
        while decoder.can_decode() {
            let instruction = decoder.decode();
            assert!(!instruction.is_invalid(), "no instruction at {:#x}", instruction.ip());
            if seen.insert(instruction.ip(), instruction).is_some() {
                break;
            }
            match flow_of(&instruction) {
                FlowControl::ConditionalBranch | FlowControl::Call => work.push(instruction.near_branch_target()),
                FlowControl::UnconditionalBranch => {
                    work.push(instruction.near_branch_target());
                    break;
                }
                FlowControl::Return | FlowControl::Exception => break,
                _ => {}
            }
        }
    }
    seen.into_values().collect()
}

#[test]
fn general_registers_and_no_string_instructions() {
    let all = instructions();
    assert!(all.len() > 1500, "{}", all.len());
    let mut factory = iced_x86::InstructionInfoFactory::new();
    for instruction in all {
        assert!(!instruction.is_string_instruction(), "{instruction:?}");
        assert!(!instruction.is_stack_instruction() || instruction.mnemonic() != Mnemonic::Enter);
        for used in factory.info(&instruction).used_registers() {
            let register = used.register();
            assert!(
                register.is_gpr() || register.is_segment_register() || register == Register::RIP,
                "{instruction:?} uses {register:?}"
            );
        }
    }
}

#[test]
fn nothing_outside_of_the_image_is_called_or_read_by_name() {
    let end = IMAGE.len() as u64;
    for instruction in instructions() {
        for operand in 0..instruction.op_count() {
            match instruction.op_kind(operand) {
                OpKind::NearBranch64 => assert!(instruction.near_branch_target() < end),
                OpKind::Memory if instruction.is_ip_rel_memory_operand() => {
                    // The address of the image's end is used, but never read from.
                    let is_address = u64::from(instruction.mnemonic() == Mnemonic::Lea);
                    assert!(
                        instruction.ip_rel_memory_address() < end + is_address,
                        "{instruction:?}"
                    );
                }
                // An absolute address would be a relocation that was missed; %fs:0 is the thread control block.
                OpKind::Memory if instruction.memory_base() == Register::None => {
                    let tls = instruction.segment_prefix() == Register::FS && instruction.memory_displacement64() == 0;
                    assert!(tls || instruction.memory_index() != Register::None, "{instruction:?}");
                }
                _ => {}
            }
        }
    }
}

/// An exchange with memory locks without a prefix.
fn is_locked(instruction: &Instruction) -> bool {
    let exchanges = instruction.mnemonic() == Mnemonic::Xchg && instruction.memory_size().size() > 0;
    instruction.has_lock_prefix() || exchanges
}

/// Code that records and aggregates writes only its own thread's memory, so no instruction there is locked.
#[test]
fn i6_recording_and_aggregating_take_no_lock() {
    let unlocked = [
        Function::Reserve,
        Function::Commit,
        Function::Aggregate,
        Function::KeyInteger,
        Function::KeyString,
        Function::Quantize,
        Function::LinearQuantize,
        Function::LogLinearQuantize,
        Function::StandardDeviation,
        Function::Timestamp,
    ];
    for function in unlocked {
        let locked = reached_from(&[function]).into_iter().find(is_locked);
        assert!(locked.is_none(), "{function:?}: {locked:?}");
    }
    // This proves that the search works: in code for associative arrays, which are shared, it finds locked
    // instructions.
    assert!(reached_from(&[Function::DynamicGet]).iter().any(is_locked));
}

/// The compiler bounds each frame; this test bounds the deepest chain of calls, saved registers included.
#[test]
fn i10_the_stack_is_bounded() {
    let all: std::collections::BTreeMap<u64, Instruction> = instructions()
        .into_iter()
        .map(|instruction| (instruction.ip(), instruction))
        .collect();
    /// Bytes of stack from the entry of the function at `start`, its return address included.
    fn depth(start: u64, all: &std::collections::BTreeMap<u64, Instruction>, callers: &[u64]) -> i64 {
        assert!(!callers.contains(&start), "a chain of calls without end");
        let chain = [callers, &[start]].concat();
        let mut deepest = 8;
        let mut work = vec![(start, 8_i64)];
        let mut seen = std::collections::BTreeSet::new();
        while let Some((at, used)) = work.pop() {
            if !seen.insert(at) {
                continue;
            }
            let Some(instruction) = all.get(&at) else { continue };
            let mut used = used - i64::from(instruction.stack_pointer_increment());
            if instruction.op0_register() == Register::RSP && instruction.mnemonic() == Mnemonic::Sub {
                used += instruction.immediate(1) as i64;
            }
            if instruction.op0_register() == Register::RSP && instruction.mnemonic() == Mnemonic::Add {
                used -= instruction.immediate(1) as i64;
            }
            match flow_of(instruction) {
                FlowControl::Call => {
                    used -= 8; // the call's own push is part of the callee's account
                    deepest = deepest.max(used + depth(instruction.near_branch_target(), all, &chain));
                    work.push((instruction.next_ip(), used));
                }
                FlowControl::ConditionalBranch => {
                    work.push((instruction.near_branch_target(), used));
                    work.push((instruction.next_ip(), used));
                }
                FlowControl::UnconditionalBranch => work.push((instruction.near_branch_target(), used)),
                FlowControl::Return | FlowControl::Exception => {}
                _ => work.push((instruction.next_ip(), used)),
            }
            deepest = deepest.max(used);
        }
        deepest
    }
    for function in Function::ALL {
        let bytes = depth(u64::from(function.offset()), &all, &[]);
        assert!((8..=1024).contains(&bytes), "{function:?} takes {bytes} bytes of stack");
    }
    // A host's handlers call a guest, through an address that this search does not follow.
    let deep = |function: Function| depth(u64::from(function.offset()), &all, &[]);
    for handler in [Function::OnTrap, Function::OnFault] {
        let bytes = deep(handler) + deep(Function::OnSignalOfHost);
        assert!(bytes <= 1024, "{handler:?} and a guest take {bytes} bytes of stack");
    }
    // The measurement works: an aggregation saves fifteen registers.
    assert!(depth(u64::from(Function::Aggregate.offset()), &all, &[]) >= 16 * 8);
}

#[test]
fn the_header_is_where_the_contract_says() {
    let header = ImageHeader {
        control: 1,
        table: 2,
        tables: 3,
        rows: 4,
        thread_key_mode: 5,
        code_start: 6,
        code_end: 7,
        allow_syscalls: true,
        returns: 0x9000,
        thunks: 0xa000,
        stacks: 0xb000,
        host_table: 0xc000,
        made_calls: true,
        follows: 2,
    };
    let image = image_with(header);
    let expected = Image {
        magic: MAGIC,
        control: 1,
        table: 2,
        tables: 3,
        rows: 4,
        thread_key_mode: 5,
        code_start: 6,
        code_end: 7,
        allow_syscalls: 1,
        use_rdpid: Image::from_bytes(&image).unwrap().use_rdpid,
        returns: header.returns,
        thunks: header.thunks,
        fault_hook: 0,
        event_hook: 0,
        readers: 0,
        stacks: header.stacks,
        made_calls: 1,
        host_table: header.host_table,
        follows: 2,
        guests: [0; GUESTS],
    };
    assert_eq!(Image::from_bytes(&image), Some(expected));
    // Whether the machine has the feature, according to the kernel.
    let flags = std::fs::read_to_string("/proc/cpuinfo").unwrap();
    assert_eq!(
        expected.use_rdpid == 1,
        flags.split_whitespace().any(|flag| flag == "rdpid")
    );
    let guests = core::mem::offset_of!(Image, guests);
    assert!(image[guests..] == IMAGE[guests..], "the rest is as it was built");
    let hooks = [
        (core::mem::offset_of!(Image, fault_hook), FAULT_HOOK_OFFSET),
        (core::mem::offset_of!(Image, event_hook), EVENT_HOOK_OFFSET),
        (core::mem::offset_of!(Image, readers), READERS_OFFSET),
    ];
    for (offset, told) in hooks {
        assert_eq!(offset, told as usize);
    }
}

/// glibc's and libgcc's unwinders recognise a signal frame by these bytes.
#[test]
fn the_restorer_is_recognised() {
    let at = Function::Restorer.offset() as usize;
    assert_eq!(IMAGE[at..at + 9], [0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05]);
}
