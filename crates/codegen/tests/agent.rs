//! Handlers with the agent's own image: the tests of both sides of the contract together.
//!
//! The image has the addresses that it would have in a target, and its data lie in the machine's arena.
//! Every run checks that no register, general or SIMD, has changed.
#![allow(clippy::unwrap_used)] // tests
mod support;

use core::mem::offset_of;

use nanoprobe_agent::{ImageHeader, image_with};
use nanoprobe_arena::layout::{Context, Control, TABLE_BYTES};
use nanoprobe_codegen::ProbeKind;
use nanoprobe_lang::interpret::{Value, read_field};
use nanoprobe_lang::layout::record_layout;
use nanoprobe_lang::program::Program;
use nanoprobe_lang::{MacroValues, Source};
use support::machine::{LIMITS, Machine, TID, compile};

const DYNAMIC: usize = 4096;
const RING: usize = 16 << 10;
const RING_BYTES: usize = 16 << 10;
const AGGREGATES: usize = 32 << 10;

fn d(text: &str) -> Program {
    nanoprobe_lang::compile(&[Source::new("test", text)], &MacroValues::default()).unwrap()
}

/// A machine whose arena has the parts that the agent needs: a control block, dynamic variables, a ring, a hash
/// aggregation.
fn machine(program: &Program) -> Machine {
    let handler = compile(program, ProbeKind::Entry);
    let mut machine = Machine::with_agent_image(&handler, &[]);
    let arena = machine.arena.as_ptr() as u64;
    // It lives as long as the process, as a machine may run at any time.
    let table = Vec::leak(vec![0_u64; TABLE_BYTES.div_ceil(8)]);
    let image = image_with(ImageHeader {
        allow_syscalls: true,
        control: arena,
        table: table.as_ptr() as u64,
        ..ImageHeader::default()
    });
    machine.load(&handler, &image);
    let pid = u64::from(std::process::id());
    let half = |word: &mut u64, offset: usize, value: u64| *word |= value << (8 * (offset % 8));
    let mut control = |offset: usize, value| half(&mut machine.arena[offset / 8], offset, value);
    control(offset_of!(Control, arena_bytes), 64 << 10);
    control(offset_of!(Control, strsize), LIMITS.strsize.into());
    control(offset_of!(Control, ustackframes), LIMITS.ustackframes.into());
    control(offset_of!(Control, target_pid), pid);
    control(offset_of!(Control, dynamic_offset), DYNAMIC as u64);
    control(offset_of!(Control, clock_mult), 1 << 32);
    // bytes, used, bucket_mask: 16 buckets of 8 bytes in this table, 32 of 4 bytes in the other one.
    machine.arena[DYNAMIC / 8..][..3].copy_from_slice(&[4096, 32 + 16 * 8, 15]);
    machine.arena[AGGREGATES / 8..][..3].copy_from_slice(&[32 << 10, 32 + 32 * 4, 31]);
    let mut context = |offset: usize, value| machine.context[offset / 8] = value;
    context(offset_of!(Context, ring), arena + RING as u64);
    context(offset_of!(Context, ring_bytes), RING_BYTES as u64);
    context(offset_of!(Context, ring_policy), 1);
    context(offset_of!(Context, aggregates), arena + AGGREGATES as u64);
    context(offset_of!(Context, aggregates_wanted), arena + AGGREGATES as u64);
    machine
}

fn context(machine: &Machine, offset: usize) -> u64 {
    machine.context[offset / 8]
}

/// The first record in the ring, as bytes.
fn first_record(machine: &Machine) -> Vec<u8> {
    let bytes: Vec<u8> = machine.arena[RING / 8..]
        .iter()
        .flat_map(|word| word.to_le_bytes())
        .collect();
    let length = u32::from_le_bytes(bytes[4..8].try_into().unwrap()) as usize;
    bytes[..length].to_vec()
}

#[test]
fn records_arrays_and_strings_work_with_the_agents_own_image() {
    let program = d("pid1::f:entry /arg0 > 1/ {\
        counts[arg0, \"key\"] = arg1; names[arg0] = copyinstr(arg2);\
        trace(counts[arg0, \"key\"] + 1); trace(names[arg0]); trace(stringof(copyin(arg2, 4)));\
        trace(stringof(copyin(arg2, arg3))); trace(strlen(probefunc)); trace(names[7] == \"\"); trace(tid);\
    }");
    let mut machine = machine(&program);
    let text = std::ffi::CString::new("out of the target").unwrap();
    machine.run([1, 41, text.as_ptr() as u64, 6, 0, 0]);
    assert_eq!(
        context(&machine, offset_of!(Context, ring_head)),
        0,
        "the predicate was false"
    );
    machine.run([2, 41, text.as_ptr() as u64, 6, 0, 0]);
    assert_eq!(context(&machine, offset_of!(Context, errors)), 0);
    let layout = record_layout(&program.clauses[0], LIMITS);
    let record = first_record(&machine);
    assert_eq!(record.len(), layout.bytes as usize);
    assert_eq!(record[..4], 7u32.to_le_bytes(), "epid");
    assert_eq!(record[20..24], TID.to_le_bytes());
    let string = |text: &str| Value::String(text.as_bytes().to_vec());
    let fields: Vec<Value> = layout
        .fields
        .iter()
        .map(|field| read_field(&record, field).unwrap())
        .collect();
    assert_eq!(
        fields,
        [
            Value::Integer(42),
            string("out of the target"),
            string("out "),
            string("out of"),
            Value::Integer(4),
            Value::Integer(1),
            Value::Integer(TID.into()),
        ]
    );
}

#[test]
fn aggregations_work_with_the_agents_own_image() {
    let program = d("pid1::f:entry {\
        @sums[copyinstr(arg2), (int)arg0] = sum(arg1); @q = quantize(arg1); @l = lquantize(arg1, 0, 100, 10);\
    }");
    let mut machine = machine(&program);
    let text = std::ffi::CString::new("name").unwrap();
    for value in [40, 2] {
        machine.run([-3i64 as u64, value, text.as_ptr() as u64, 0, 0, 0]);
    }
    assert_eq!(context(&machine, offset_of!(Context, errors)), 0);
    // After the buckets there is one entry: hash, aggregation; key bytes, value words; key; words.
    let entry = &machine.arena[(AGGREGATES + 32 + 32 * 4) / 8..];
    assert_eq!(entry[0] >> 32, 0, "the aggregation");
    assert_eq!(entry[1], 16 | 2 << 32);
    assert_eq!(entry[2..6], [u64::from_le_bytes(*b"name\0\0\0\0"), -3i64 as u64, 42, 2]);
    // quantize counts 2 in bucket 65, and 40 in bucket 69. lquantize counts 2 in its second word, and 40 in its sixth.
    assert_eq!([machine.slot(8 * 65), machine.slot(8 * 69)], [1, 1]);
    assert_eq!([machine.slot(8 * (128 + 1)), machine.slot(8 * (128 + 5))], [1, 1]);
}

#[test]
fn a_bad_address_becomes_an_error_record() {
    let program = d("pid1::f:entry { trace(arg0); trace(copyinstr(arg1)); }");
    let mut machine = machine(&program);
    machine.run([1, 0x10, 0, 0, 0, 0]);
    let record = first_record(&machine);
    assert_eq!(record.len(), 40);
    assert_eq!(record[..4], (7u32 | 1 << 31).to_le_bytes());
    assert_eq!(
        record[24..],
        [1u32.to_le_bytes(), 2u32.to_le_bytes(), 0x10u32.to_le_bytes(), [0; 4]].concat()
    );
    assert_eq!(context(&machine, offset_of!(Context, errors)), 1);
    assert_eq!(
        context(&machine, offset_of!(Context, ring_head)),
        40,
        "the clause's own record was not committed"
    );
}

#[test]
fn a_context_notices_that_it_serves_another_thread() {
    let program = d("pid1::f:entry { self->x = arg0; trace(tid); }");
    let mut machine = machine(&program);
    *machine.tid = 5000;
    machine.run([9, 0, 0, 0, 0, 0]);
    assert_eq!(first_record(&machine)[20..24], 5000u32.to_le_bytes());
    assert_eq!(first_record(&machine)[24..32], 5000u64.to_le_bytes());
    assert_eq!(machine.locals[0], 9);
}
