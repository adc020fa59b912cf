//! Records: their fields, the order of steps, the lack of room; and which frame a clause needs.

use crate::ARGUMENTS;
use crate::support::agent::STATE;
use crate::support::build::*;
use crate::support::machine::{self, Machine, agent, calls, compile};
use nanoprobe_codegen::ProbeKind;
use nanoprobe_lang::format::Format;
use nanoprobe_lang::program::*;
use nanoprobe_lang::source::Span;

#[test]
fn records_carry_their_fields_in_place() {
    let target = [1u8, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13];
    let long_target = [0x41u8; 83];
    let statements = vec![
        trace(cast(arg(2), integer_type(1, true))),
        trace(probefunc()),
        record(RecordKind::Stack(Stack::of_program(4))),
        trace(copyin(arg(0), 13)),
        trace(copyin(arg(1), 83)),
        record(RecordKind::Exit(int(3))),
    ];
    let program = program(None, statements);
    let handler = compile(&program, ProbeKind::Entry);
    assert!(handler.full_frame);
    let mut machine = Machine::new(&handler);
    machine.run([target.as_ptr() as u64, long_target.as_ptr() as u64, 0xff, 0, 0, 0]);
    assert_eq!(
        calls(),
        ["reserve", "strcpy", "ustack 4", "copyin", "copyin", "commit", "exit"],
        "the record is complete before the session ends"
    );
    agent(|state| {
        assert_eq!(state.exits, [3]);
        let record = &state.committed[0];
        let layout = nanoprobe_lang::layout::record_layout(&program.clauses[0], machine::LIMITS);
        assert_eq!(record.len(), layout.bytes as usize);
        assert_eq!(
            record[..8],
            [7, 0, 0, 0, layout.bytes as u8, (layout.bytes >> 8) as u8, 0, 0]
        );
        let field = |index: usize| {
            let field = &layout.fields[index];
            &record[field.offset as usize..][..field.bytes as usize]
        };
        assert_eq!(field(0), (-1i64).to_le_bytes());
        assert_eq!(&field(1)[..5], b"func\0");
        assert_eq!(
            field(2)[..24],
            [2u64.to_le_bytes(), 0xaaau64.to_le_bytes(), 0xbbbu64.to_le_bytes()].concat()
        );
        assert_eq!(field(3), target);
        assert_eq!(field(4), long_target);
        assert_eq!(field(5), 3i64.to_le_bytes());
    });
}

#[test]
fn a_stack_among_the_arguments_of_printf_has_a_field_of_its_own() {
    let stack = Expression {
        kind: ExpressionKind::Builtin(Builtin::Stack(Stack::of_program(4))),
        value_type: Type::Void,
        span: Span::default(),
    };
    let format = Format::parse("%d %k%d").unwrap();
    let program = program(
        None,
        vec![record(RecordKind::Printf {
            format,
            arguments: vec![arg(2), stack, int(7)],
        })],
    );
    assert!(program.clauses[0].walks_stack());
    let handler = compile(&program, ProbeKind::Entry);
    assert!(handler.full_frame);
    let mut machine = Machine::new(&handler);
    machine.run([0, 0, 5, 0, 0, 0]);
    assert_eq!(calls(), ["reserve", "ustack 4", "commit"]);
    agent(|state| {
        let record = &state.committed[0];
        let layout = nanoprobe_lang::layout::record_layout(&program.clauses[0], machine::LIMITS);
        let field = |index: usize| {
            let field = &layout.fields[index];
            &record[field.offset as usize..][..field.bytes as usize]
        };
        assert_eq!(field(0), 5i64.to_le_bytes());
        let frames = [2u64, 0xaaa, 0xbbb].map(u64::to_le_bytes).concat();
        assert_eq!((field(1).len(), &field(1)[..24]), (40, &frames[..]));
        assert_eq!(field(2), 7i64.to_le_bytes());
    });
}

#[test]
fn a_clause_without_room_for_its_record_does_nothing() {
    let statements = vec![
        assign(scalar(Scope::Global, 0), long(1)),
        trace(arg(0)),
        record(RecordKind::Exit(int(0))),
    ];
    let program = program(None, statements).global(LONG);
    let mut machine = Machine::new(&compile(&program, ProbeKind::Entry));
    STATE.with_borrow_mut(|state| state.full = true);
    machine.run(ARGUMENTS);
    assert_eq!(calls(), ["reserve"]);
    assert_eq!(machine.global(0), 0);
}

#[test]
fn an_empty_clause_records_its_header_only() {
    let mut machine = Machine::new(&compile(&program(None, vec![]), ProbeKind::Entry));
    machine.run(ARGUMENTS);
    assert_eq!(
        agent(|state| state.committed.clone()),
        [[[7, 0, 0, 0, 24, 0, 0, 0], [0xee; 8], [0xee; 8]].concat()]
    );
}

#[test]
fn light_frames_suffice_for_most_clauses() {
    let light = program(None, vec![trace(arg(0)), trace(arg(7)), trace(timestamp())]);
    assert!(!compile(&light, ProbeKind::Entry).full_frame);
    let caller = program(None, vec![trace(builtin(Builtin::UserCaller, ULONG))]);
    assert!(compile(&caller, ProbeKind::Entry).full_frame);
    // The frame's rax is in the light part.
    assert!(!compile(&light, ProbeKind::Return).full_frame);
}
