//! `uregs[]`: the registers at the site, by illumos's numbers for x86-64 (`<sys/regset.h>`).

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, Value, types};
use nanoprobe_lang::program::{Expression, ExpressionKind};

use super::Emitter;
use crate::contract::{context, enabling, fault, frame};
use crate::error::Error;

/// Where a register's value comes from.
#[derive(Clone, Copy)]
enum Source {
    Frame(i32),
    Context(i32),
    Site,
    Flags,
    Fixed(i64),
}

/// The source of a register, from `R_R15` = 0 to `R_GSBASE` = 27.
fn source(number: i64) -> Option<Source> {
    Some(match number {
        0 => Source::Frame(frame::R15),
        1 => Source::Frame(frame::R14),
        2 => Source::Frame(frame::R13),
        3 => Source::Frame(frame::R12),
        4 => Source::Frame(frame::R11),
        5 => Source::Frame(frame::R10),
        6 => Source::Frame(frame::R9),
        7 => Source::Frame(frame::R8),
        8 => Source::Frame(frame::RDI),
        9 => Source::Frame(frame::RSI),
        10 => Source::Frame(frame::RBP),
        11 => Source::Frame(frame::RBX),
        12 => Source::Frame(frame::RDX),
        13 => Source::Frame(frame::RCX),
        14 => Source::Frame(frame::RAX),
        // No trap has happened, so its number and error code are 0.
        15 | 16 => Source::Fixed(0),
        17 => Source::Site,
        // These are Linux's code and stack segments for user space. The data segments are null.
        18 => Source::Fixed(0x33),
        19 => Source::Flags,
        20 => Source::Context(context::TARGET_RSP),
        21 => Source::Fixed(0x2b),
        22..=25 => Source::Fixed(0),
        // FS holds the thread pointer. GS is not used in user space.
        26 => Source::Context(context::THREAD_KEY),
        27 => Source::Fixed(0),
        _ => return None,
    })
}

impl Emitter<'_, '_> {
    pub(super) fn register(&mut self, index: &Expression) -> Result<Value, Error> {
        if let ExpressionKind::Integer(number) = index.kind {
            return Ok(match source(number) {
                Some(source) => self.register_value(source),
                None => {
                    self.raise(fault::ILLEGAL);
                    let unreachable = self.builder.create_block();
                    self.enter(unreachable);
                    self.constant(0)
                }
            });
        }
        // A chain of comparisons is enough: a rare construct is not worth a jump table among the instructions.
        let number = self.value(index)?;
        let end = self.builder.create_block();
        let result = self.builder.append_block_param(end, types::I64);
        for (candidate, source) in (0..).map_while(|number| source(number).map(|source| (number, source))) {
            let (found, next) = (self.builder.create_block(), self.builder.create_block());
            let is_it = self.builder.ins().icmp_imm_s(IntCC::Equal, number, candidate);
            self.branch(is_it, found, next);
            self.enter(found);
            let value = self.register_value(source);
            self.builder.ins().jump(end, &[value.into()]);
            self.enter(next);
        }
        self.raise(fault::ILLEGAL);
        self.enter(end);
        Ok(result)
    }

    fn register_value(&mut self, source: Source) -> Value {
        match source {
            Source::Frame(offset) => {
                let address = self.context_load(context::FRAME);
                self.load(address, offset)
            }
            Source::Context(offset) => self.context_load(offset),
            Source::Fixed(value) => self.constant(value),
            Source::Site => {
                let address = self.context_load(context::ENABLING);
                self.load(address, enabling::SITE)
            }
            Source::Flags => self.flags(),
        }
    }

    /// The flags register. The frame has `lahf` in ah (SF ZF AF PF CF, and bit 1, which is always set) and
    /// `seto` in al. OF at bit 11, and IF, which is always set in user space, complete them.
    fn flags(&mut self) -> Value {
        let address = self.context_load(context::FRAME);
        let saved = self.load(address, frame::FLAGS);
        let low = self.builder.ins().ushr_imm_u(saved, 8);
        let low = self.builder.ins().band_imm_u(low, 0xff);
        let overflow = self.builder.ins().band_imm_u(saved, 1);
        let overflow = self.builder.ins().ishl_imm_u(overflow, 11);
        let flags = self.builder.ins().bor(low, overflow);
        self.builder.ins().bor_imm_u(flags, 0x200)
    }
}
