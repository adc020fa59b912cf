//! The code of common clauses, disassembled. After a change of the generator or of Cranelift, read the
//! difference, and accept it with `INSTA_UPDATE=always cargo test -p nanoprobe-codegen --test golden`.
#![allow(clippy::unwrap_used)] // tests
mod support;

use iced_x86::{Decoder, DecoderOptions, Formatter, Instruction, InstructionInfoFactory, IntelFormatter, Register};
use nanoprobe_codegen::{Handler, ProbeKind, RelocationTarget};
use nanoprobe_lang::program::*;
use nanoprobe_lang::{MacroValues, Source};
use support::build::*;
use support::machine::{compile, compile_clause};

/// The handler as text: instructions, with the symbols of the eight-byte relocations.
fn disassemble(handler: &Handler) -> String {
    let mut text = String::new();
    let mut formatter = IntelFormatter::new();
    formatter.options_mut().set_branch_leading_zeros(false);
    formatter.options_mut().set_space_after_operand_separator(true);
    for instruction in instructions(handler) {
        let mut line = String::new();
        formatter.format(&instruction, &mut line);
        let (start, end) = (instruction.ip() as u32, instruction.next_ip() as u32);
        if let Some(relocation) = handler
            .relocations
            .iter()
            .find(|found| (start..end).contains(&found.offset))
        {
            assert_eq!(relocation.addend, 0);
            let symbol = match relocation.target {
                RelocationTarget::Agent(function) => function.symbol().to_owned(),
                RelocationTarget::Constant(offset) => {
                    let bytes = &handler.constants[offset as usize..];
                    format!("{:?}", std::ffi::CStr::from_bytes_until_nul(bytes).unwrap())
                }
            };
            line = line.trim_end_matches('0').to_owned() + &symbol;
        }
        text += &format!("{start:4x}  {line}\n");
    }
    let frame = if handler.full_frame { "full" } else { "light" };
    text + &format!(
        "{frame} frame, {} bytes of stack, {} bytes of slots\n",
        handler.stack_bytes, handler.slot_bytes
    )
}

fn instructions(handler: &Handler) -> Vec<Instruction> {
    Decoder::with_ip(64, &handler.code, 0, DecoderOptions::NONE)
        .into_iter()
        .collect()
}

/// Compiles clause number `clause` of a D text and compares it with the snapshot of this name.
fn check(name: &str, text: &str, clause: usize, kind: ProbeKind) {
    let program = nanoprobe_lang::compile(&[Source::new("golden", text)], &MacroValues::default()).unwrap();
    let handler = compile_clause(&program, clause, kind);
    only_integer_instructions(&handler);
    insta::with_settings!({ description => text, omit_expression => true, prepend_module_to_snapshot => false }, {
        insta::assert_snapshot!(name, disassemble(&handler));
    });
}

/// I2: the handler uses only general registers, and only reads r15. It has no string instructions, which
/// would need the direction flag to be clear.
fn only_integer_instructions(handler: &Handler) {
    let mut factory = InstructionInfoFactory::new();
    for instruction in instructions(handler) {
        assert!(!instruction.is_invalid(), "{instruction}");
        assert!(!instruction.is_string_instruction(), "{instruction}");
        for used in factory.info(&instruction).used_registers() {
            let register = used.register();
            let is_general = register.is_gpr() || register == Register::RIP || register.is_segment_register();
            assert!(is_general, "{instruction} uses {register:?}");
            let writes = !matches!(used.access(), iced_x86::OpAccess::Read | iced_x86::OpAccess::CondRead);
            assert!(
                register.full_register() != Register::R15 || !writes,
                "{instruction} writes r15"
            );
        }
    }
}

#[test]
fn common_clauses() {
    let entry = |name, text| check(name, text, 0, ProbeKind::Entry);
    entry("count", "pid1::f:entry { @ = count(); }");
    entry(
        "predicate_and_sum",
        "pid1::f:entry /arg0 > 4096/ { @[probefunc] = sum(arg0); }",
    );
    entry("keyed", "pid1::f:entry { @[(int)arg0, tid] = count(); }");
    entry("stacks", "pid1::f:entry { @[ustack()] = count(); }");
    entry("records", "pid1::f:entry { trace(arg0); trace(copyinstr(arg1)); }");
    entry("division", "int64_t x; pid1::f:entry { x = arg0 / arg1; }");
    check("minimum", "pid1::f:return { @ = min(arg1); }", 0, ProbeKind::Return);
    let latency = "pid1::f:entry { self->start = timestamp; }\n\
        pid1::f:return /self->start/ { @ = quantize(timestamp - self->start); self->start = 0; }";
    check("latency_entry", latency, 0, ProbeKind::Entry);
    check("latency_return", latency, 1, ProbeKind::Return);
}

#[test]
fn clauses_without_a_snapshot_are_integer_code_too() {
    let everything = vec![
        assign(scalar(Scope::Global, 0), uregs(arg(0))),
        assign(
            scalar(Scope::Global, 0),
            conditional(arg(0), uregs(int(19)), timestamp()),
        ),
        trace(copyin(arg(0), 200)),
        trace(cast(copyin(arg(0), 13), Type::String)),
        Statement::Expression(increment(element(Scope::Global, 1, vec![probefunc()]), INT, -1, true)),
        aggregate(0, vec![], Some(binary(BinaryOperator::Remainder, arg(8), arg(9)))),
    ];
    let program = program(None, everything)
        .global(ULONG)
        .global_array(INT, vec![Type::String])
        .aggregation(AggregatingFunction::Maximum);
    for kind in [ProbeKind::Entry, ProbeKind::Return] {
        only_integer_instructions(&compile(&program, kind));
    }
}
