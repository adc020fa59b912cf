//! The compiled clauses of a program, in a machine whose arena has all data that the agent needs.

use core::mem::offset_of;
use std::collections::HashMap;

use nanoprobe_agent::{ImageHeader, image_with};
use nanoprobe_arena::layout::{Context, Control, TABLE_BYTES};
use nanoprobe_codegen::{Compiler, Handler, ProbeKind};
use nanoprobe_lang::interpret::{ClauseFault, Fault, FaultKind};
use nanoprobe_lang::layout::Storage;
use nanoprobe_lang::options::Options;
use nanoprobe_lang::program::Program;

use super::world::names;
use crate::support::machine::{GLOBALS_OFFSET, Machine, arena_layout};

const ARENA_BYTES: usize = 1 << 20;
/// Offset of the speculations, after the globals.
const SPECULATIONS: usize = 248 << 10;
const DYNAMIC: usize = 256 << 10;
const AGGREGATES: usize = 384 << 10;
const RING: usize = 512 << 10;
const RING_BYTES: usize = 256 << 10;
const SCRATCH_BYTES: usize = 64 << 10;

pub struct Target<'a> {
    program: &'a Program,
    options: &'a Options,
    storage: Storage,
    handlers: HashMap<usize, Handler>,
    machine: Option<Machine>,
    arena: Vec<u64>,
    scratch: Vec<u64>,
    locals: Vec<u64>,
    clause_locals: Vec<u64>,
    key: Vec<u64>,
    /// The thread table, whose slots exit() clears.
    threads: Vec<u64>,
}

impl<'a> Target<'a> {
    pub fn new(program: &'a Program, options: &'a Options) -> Target<'a> {
        let storage = Storage::new(program, options.limits());
        assert!(GLOBALS_OFFSET as usize + (storage.globals_bytes as usize) < SPECULATIONS);
        Target {
            program,
            options,
            locals: vec![0; storage.thread_locals_bytes as usize / 8 + 1],
            clause_locals: vec![0; storage.clause_locals_bytes as usize / 8 + 1],
            storage,
            handlers: HashMap::new(),
            machine: None,
            arena: vec![0; ARENA_BYTES / 8],
            scratch: vec![0; SCRATCH_BYTES / 8 + 1],
            key: vec![0; 2048],
            threads: vec![0; TABLE_BYTES.div_ceil(8)],
        }
    }

    fn image(&self) -> Vec<u8> {
        image_with(ImageHeader {
            allow_syscalls: true,
            control: self.arena.as_ptr() as u64,
            table: self.threads.as_ptr() as u64,
            ..ImageHeader::default()
        })
    }

    fn prepare(&mut self, handler: &Handler) -> Machine {
        let mut machine = Machine::with_agent_image(handler, &self.image());
        let limits = self.options.limits();
        let arena = self.arena.as_ptr() as u64;
        let mut half = |offset: usize, value: u64| self.arena[offset / 8] |= value << (8 * (offset % 8));
        half(offset_of!(Control, arena_bytes), ARENA_BYTES as u64);
        half(offset_of!(Control, strsize), limits.string_limit().into());
        half(offset_of!(Control, ustackframes), limits.ustackframes.into());
        half(offset_of!(Control, target_pid), u64::from(std::process::id()));
        half(offset_of!(Control, dynamic_offset), DYNAMIC as u64);
        half(offset_of!(Control, clock_mult), 1 << 32);
        half(offset_of!(Control, speculations_offset), SPECULATIONS as u64);
        half(
            offset_of!(Control, speculation_count),
            self.options.recording.speculations,
        );
        half(
            offset_of!(Control, speculation_bytes),
            self.options.recording.speculation_bytes,
        );
        self.arena[DYNAMIC / 8..][..3].copy_from_slice(&[64 << 10, 32 + 64 * 8, 63]);
        self.arena[AGGREGATES / 8..][..3].copy_from_slice(&[64 << 10, 32 + 64 * 4, 63]);
        let mut context = |offset: usize, value| machine.context[offset / 8] = value;
        context(offset_of!(Context, control), arena);
        context(offset_of!(Context, ring), arena + RING as u64);
        context(offset_of!(Context, ring_bytes), RING_BYTES as u64);
        context(offset_of!(Context, ring_policy), 1);
        context(offset_of!(Context, aggregates), arena + AGGREGATES as u64);
        context(offset_of!(Context, aggregates_wanted), arena + AGGREGATES as u64);
        context(offset_of!(Context, scratch), self.scratch.as_ptr() as u64);
        context(offset_of!(Context, scratch_bytes), SCRATCH_BYTES as u64);
        context(offset_of!(Context, locals), self.locals.as_ptr() as u64);
        context(offset_of!(Context, clause_locals), self.clause_locals.as_ptr() as u64);
        context(offset_of!(Context, key), self.key.as_ptr() as u64);
        context(offset_of!(Context, key_capacity), 16 << 10);
        machine
    }

    /// Runs a clause. Yields the payload of its record; `None`: it wrote no record.
    pub fn fire(
        &mut self,
        clause: usize,
        event: &str,
        arguments: [u64; 6],
        kind: ProbeKind,
    ) -> Result<Option<Vec<u8>>, ClauseFault> {
        let handler = match self.handlers.remove(&clause) {
            Some(handler) => handler,
            None => Compiler::new()
                .unwrap()
                .compile(
                    self.program,
                    clause,
                    kind,
                    &self.storage,
                    self.options.limits(),
                    &arena_layout(),
                )
                .unwrap(),
        };
        let mut machine = match self.machine.take() {
            Some(mut machine) => {
                machine.load(&handler, &self.image());
                machine
            }
            None => self.prepare(&handler),
        };
        if event == "END" {
            // This ends the speculation as the tracer would, whatever ran before.
            let (at, shift) = (
                offset_of!(Control, exit_requested) / 8,
                offset_of!(Control, exit_requested) % 8 * 8,
            );
            self.arena[at] &= !(u64::from(u32::MAX) << shift);
        }
        machine.enabling[0] = (clause as u64 + 1) | 1 << 32;
        machine.set_names(names(event));
        let head = |machine: &Machine| machine.context[offset_of!(Context, ring_head) / 8] as usize;
        let before = head(&machine);
        machine.run(arguments);
        let after = head(&machine);
        self.handlers.insert(clause, handler);
        self.machine = Some(machine);
        if after == before {
            return Ok(None);
        }
        let record = self.record(before % RING_BYTES);
        let word = |at: usize| u32::from_le_bytes(record[at..at + 4].try_into().unwrap());
        if word(0) & 1 << 31 == 0 {
            return Ok(Some(record[24..].to_vec()));
        }
        Err(ClauseFault {
            fault: Fault {
                kind: FaultKind::from_code(word(24)),
                value: u64::from(word(32)) | u64::from(word(36)) << 32,
            },
            action: word(28),
        })
    }

    /// Frees a speculation after its commit or discard.
    pub fn free_speculation(&mut self, id: i64) {
        self.arena[SPECULATIONS / 8 + id as usize - 1] = 0;
    }

    fn record(&self, at: usize) -> Vec<u8> {
        let words = self.arena[(RING + at) / 8..].iter();
        let bytes: Vec<u8> = words.take(8192).flat_map(|word| word.to_le_bytes()).collect();
        let length = u32::from_le_bytes(bytes[4..8].try_into().unwrap()) as usize;
        bytes[..length].to_vec()
    }
}
