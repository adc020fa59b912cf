//! Execution: from random states, functions are run natively, single-stepped (to know which instructions were
//! executed), and patched. Registers, flags, data and counts are compared.
//!
//! There is only one test, since the process has only one set of signal handlers and of the trampoline's statics.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod functions;
mod machine;
mod stubs;

use std::sync::atomic::Ordering;

use iced_x86::BlockEncoderOptions;
use iced_x86::code_asm::CodeAssembler;
use machine::{COUNTERS, DATA_BYTES, FLAGS, Machine, Registers, SEEN, TRAPS};
use nanoprobe_patch::*;
use nanoprobe_tests::left_out::left_out;

const ROUNDS: usize = 40;

/// xorshift: the states must be the same in every run of the test.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn state(&mut self, machine: &Machine) -> (Registers, [u8; DATA_BYTES]) {
        let mut values: Vec<u64> = (0..17).map(|_| self.next()).collect();
        // Some values are extreme, so that flags vary.
        for value in &mut values {
            if self.next().is_multiple_of(4) {
                *value = [0, 1, u64::MAX, 1 << 63, (1 << 63) - 1][(self.next() % 5) as usize];
            }
        }
        let registers = Registers {
            rax: values[0],
            rbx: values[1],
            rcx: values[2],
            rdx: values[3],
            rsi: machine.data + 256,
            rdi: machine.data + 128,
            rbp: values[6],
            r8: values[7],
            r9: values[8],
            r10: machine.data + DATA_BYTES as u64,
            r11: values[10],
            r12: values[11],
            r13: values[12],
            r14: values[13],
            r15: values[14],
            flags: values[15] & FLAGS | 2,
            rsp: 0,
        };
        let mut data = [0; DATA_BYTES];
        data.iter_mut().for_each(|byte| *byte = self.next() as u8);
        (registers, data)
    }
}

fn assemble(machine: &Machine, emit: functions::Emit) -> (Vec<u8>, u64) {
    let mut assembler = CodeAssembler::new(64).unwrap();
    let mut end = assembler.create_label();
    emit(&mut assembler, &mut end).unwrap();
    let options = BlockEncoderOptions::RETURN_NEW_INSTRUCTION_OFFSETS;
    let result = assembler.assemble_options(machine.text, options).unwrap();
    let size = result.label_ip(&end).unwrap() - machine.text;
    let mut bytes = result.inner.code_buffer;
    let marker = functions::ADDRESS_BEHIND_END.to_le_bytes();
    if let Some(at) = bytes.windows(8).position(|window| window == marker) {
        bytes[at..at + 8].copy_from_slice(&(machine.text + size + 1).to_le_bytes());
    }
    (bytes, size)
}

/// Every point counts in a word of its own.
fn counting(sites: impl IntoIterator<Item = (TargetAddress, FireCondition)>) -> Vec<Point> {
    let point = |(index, (site, condition))| Point {
        site,
        condition,
        position: Position::Inside,
        full_frame: false,
        fires: vec![Fire::Count {
            context_offset: COUNTERS + 8 * index as u32,
        }],
    };
    sites.into_iter().enumerate().map(point).collect()
}

struct Tested<'a> {
    name: &'a str,
    machine: &'a mut Machine,
    map: FunctionMap,
    states: Vec<(Registers, [u8; DATA_BYTES])>,
}

impl Tested<'_> {
    /// Runs all states natively and patched from `target` on. `expected` computes from the steps of a run how often
    /// each point fires.
    fn compare(
        &mut self,
        what: &str,
        target: TargetAddress,
        points: &[Point],
        options: &PlanOptions,
        known: bool,
        expected: impl Fn(&[u32]) -> Vec<u64>,
    ) {
        let (name, machine) = (self.name, &mut *self.machine);
        let native: Vec<_> = self
            .states
            .iter()
            .map(|(registers, data)| {
                let result = machine.run(registers, data, target.0);
                (result, expected(&machine.steps(registers, data, target.0)))
            })
            .collect();
        let plan = plan(&self.map, points, options);
        assert!(plan.refusals.is_empty(), "{name}: {what}: {:?}", plan.refusals);
        machine.patch(&plan, options);
        machine.know_thread(known);
        for ((registers, data), (result, counts)) in self.states.iter().zip(native) {
            machine.clear_context();
            let context = if known { 0 } else { machine.context };
            machine.set_context_word(SEEN as u32 - 8, context);
            let patched = machine.run(registers, data, target.0);
            assert_eq!(patched.0, result.0, "{name}: {what}: registers, from {registers:x?}");
            assert_eq!(patched.1, result.1, "{name}: {what}: data");
            let found: Vec<u64> = (0..points.len())
                .map(|index| machine.context_word(COUNTERS + 8 * index as u32))
                .collect();
            assert_eq!(found, counts, "{name}: {what}: counts");
            let asked = machine.context_word(SEEN as u32 - 16);
            assert_eq!(
                asked,
                if known { 0 } else { counts.iter().sum() },
                "{name}: {what}: calls of np_enter"
            );
        }
        machine.unpatch();
    }
}

fn test_function(machine: &mut Machine, random: &mut Random, name: &str, emit: functions::Emit) {
    let (bytes, size) = assemble(machine, emit);
    machine.load(&bytes);
    let start = TargetAddress(machine.text);
    let mut map = analyze(
        &CodeView { start, bytes: &bytes },
        &FunctionExtent {
            start,
            size,
            fragments: Vec::new(),
        },
    );
    map.show_padding(map.padding());
    assert_eq!(map.undecodable(), None, "{name}");
    let states = (0..ROUNDS).map(|_| random.state(machine)).collect();
    let mut tested = Tested {
        name,
        machine,
        map,
        states,
    };
    let is_int3 = |site: TargetAddress| bytes[(site.0 - start.0) as usize] == 0xcc;
    let sites: Vec<TargetAddress> = tested
        .map
        .instructions()
        .map(|(site, _)| site)
        .filter(|s| !is_int3(*s))
        .collect();
    let executed = |steps: &[u32], site: TargetAddress| u64::from(steps[(site.0 - start.0) as usize]);
    let automatic = PlanOptions::default();

    let every = counting(sites.iter().map(|site| (*site, FireCondition::Always)));
    let each = |steps: &[u32]| sites.iter().map(|site| executed(steps, *site)).collect();
    tested.compare("every instruction", start, &every, &automatic, true, each);
    tested.compare(
        "every instruction, unknown thread",
        start,
        &every,
        &automatic,
        false,
        each,
    );
    let trap = PlanOptions {
        force: Some(Tactic::Trap),
        ..PlanOptions::default()
    };
    tested.compare("every instruction by trap", start, &every, &trap, true, each);
    let nothing: Vec<Point> = every
        .iter()
        .map(|point| Point {
            fires: Vec::new(),
            ..point.clone()
        })
        .collect();
    tested.compare(
        "every instruction, nothing fires",
        start,
        &nothing,
        &automatic,
        true,
        |_| vec![0; nothing.len()],
    );

    for site in &sites {
        let one = counting([(*site, FireCondition::Always)]);
        tested.compare(&format!("{site} alone"), start, &one, &automatic, true, |steps| {
            vec![executed(steps, *site)]
        });
        for tactic in [Tactic::Pun, Tactic::Evict] {
            let options = PlanOptions {
                force: Some(tactic),
                ..PlanOptions::default()
            };
            let forced = plan(&tested.map, &one, &options);
            if forced.refusals.is_empty() && tested.machine.has_places(&forced) {
                tested.compare(&format!("{site} by {tactic}"), start, &one, &options, true, |steps| {
                    vec![executed(steps, *site)]
                });
            }
        }
    }

    let exits = tested.map.exits();
    let leaving = counting(exits.iter().map(|exit| (exit.site, exit.condition)));
    tested.states.truncate(ROUNDS / 2);
    // A function is left once. Its exit is known if all exits leave unconditionally.
    let total = |steps: &[u32]| -> Vec<u64> {
        let always = exits.iter().all(|exit| exit.condition == FireCondition::Always);
        if always {
            exits.iter().map(|exit| executed(steps, exit.site)).collect()
        } else {
            Vec::new()
        }
    };
    if exits.iter().all(|exit| exit.condition == FireCondition::Always) {
        tested.compare("exits", start, &leaving, &automatic, true, total);
    }
    let together: Vec<Point> = leaving
        .iter()
        .map(|point| Point {
            fires: vec![Fire::Count {
                context_offset: COUNTERS,
            }],
            ..point.clone()
        })
        .collect();
    let once = |_: &[u32]| {
        let mut counts = vec![0; together.len()];
        counts[0] = 1;
        counts
    };
    tested.compare("exits together", start, &together, &automatic, true, once);
    tested.compare("exits together, by trap", start, &together, &trap, true, once);
}

/// A branch from a run to a later instruction of the same run stays in the detour, so nothing traps.
fn test_branches_within_a_run(machine: &mut Machine, random: &mut Random) {
    let (_, emit) = functions::FUNCTIONS
        .into_iter()
        .find(|(name, _)| *name == "short exits")
        .unwrap();
    let (bytes, size) = assemble(machine, emit);
    machine.load(&bytes);
    let start = TargetAddress(machine.text);
    let extent = FunctionExtent {
        start,
        size,
        fragments: Vec::new(),
    };
    let map = analyze(&CodeView { start, bytes: &bytes }, &extent);
    let exit = map.exits()[0].site;
    let points = counting([start, exit].map(|site| (site, FireCondition::Always)));
    let states = (0..ROUNDS).map(|_| random.state(machine)).collect();
    TRAPS.store(0, Ordering::Relaxed);
    let name = "branches within a run";
    let mut tested = Tested {
        name,
        machine,
        map,
        states,
    };
    tested.compare("entry and exit", start, &points, &PlanOptions::default(), true, |_| {
        vec![1, 1]
    });
    assert_eq!(TRAPS.load(Ordering::Relaxed), 0);
}

/// A thread that arrives at a boundary by an unknown branch executes the instruction that used to be there.
fn test_arrivals(machine: &mut Machine, random: &mut Random) {
    let emit: functions::Emit = |a, end| {
        use iced_x86::code_asm::*;
        a.adc(al, cl)?;
        a.cmc()?;
        a.sbb(rdx, rax)?;
        a.inc(r8)?;
        a.lea(r9, qword_ptr(r9 + r8))?;
        a.stc()?;
        a.cdq()?;
        a.rcl(rbx, 1)?;
        a.ret()?;
        a.nop()?;
        a.set_label(end)?;
        a.int3()?;
        a.int3()?;
        a.int3()
    };
    let (bytes, size) = assemble(machine, emit);
    machine.load(&bytes);
    let start = TargetAddress(machine.text);
    let map = analyze(
        &CodeView { start, bytes: &bytes },
        &FunctionExtent {
            start,
            size,
            fragments: Vec::new(),
        },
    );
    let sites: Vec<TargetAddress> = map.instructions().map(|(site, _)| site).take(9).collect();
    let states = (0..ROUNDS).map(|_| random.state(machine)).collect();
    let mut tested = Tested {
        name: "arrivals",
        machine,
        map,
        states,
    };
    let executed = |steps: &[u32], site: TargetAddress| u64::from(steps[(site.0 - start.0) as usize]);
    TRAPS.store(0, Ordering::Relaxed);
    for target in &sites {
        let every = counting(sites.iter().map(|site| (*site, FireCondition::Always)));
        let each = |steps: &[u32]| sites.iter().map(|site| executed(steps, *site)).collect();
        tested.compare(
            &format!("at {target}, every"),
            *target,
            &every,
            &PlanOptions::default(),
            true,
            each,
        );
        for site in &sites {
            let one = counting([(*site, FireCondition::Always)]);
            let count = |steps: &[u32]| vec![executed(steps, *site)];
            let what = format!("at {target}, probe at {site}");
            tested.compare(&what, *target, &one, &PlanOptions::default(), true, count);
        }
    }
    assert!(
        TRAPS.load(Ordering::Relaxed) as usize > ROUNDS * sites.len(),
        "boundaries were never hit"
    );
}

/// Handlers see the program's registers and stack pointer. A hit while handlers run counts as missed.
fn test_handlers(machine: &mut Machine, random: &mut Random) {
    let emit = functions::FUNCTIONS[0].1;
    let (bytes, size) = assemble(machine, emit);
    machine.load(&bytes);
    let start = TargetAddress(machine.text);
    let map = analyze(
        &CodeView { start, bytes: &bytes },
        &FunctionExtent {
            start,
            size,
            fragments: Vec::new(),
        },
    );
    let enabling = TargetAddress(0x1234_5678_9abc_def0);
    let call = Fire::Call {
        handler: machine.handler,
        enabling,
    };
    let count = Fire::Count {
        context_offset: COUNTERS,
    };
    let seen = |machine: &Machine, word: u32| machine.context_word(SEEN as u32 + 8 * word);
    for (position, full_frame) in [Position::Entry, Position::Inside]
        .into_iter()
        .flat_map(|p| [(p, false), (p, true)])
    {
        let condition = FireCondition::Always;
        let fires = vec![count, call, count, call, call];
        let plan = plan(
            &map,
            &[Point {
                site: start,
                condition,
                position,
                full_frame,
                fires,
            }],
            &PlanOptions::default(),
        );
        for _ in 0..ROUNDS {
            let (registers, data) = random.state(machine);
            let native = machine.run(&registers, &data, start.0);
            machine.patch(&plan, &PlanOptions::default());
            machine.know_thread(true);

            machine.clear_context();
            assert_eq!(machine.run(&registers, &data, start.0), native);
            assert_eq!(seen(machine, 0), 3, "calls");
            assert_eq!(
                seen(machine, 1),
                machine.context_word(8),
                "busy while the handler runs: the frame"
            );
            assert_eq!(seen(machine, 2), native.0.rsp - 8, "target_rsp");
            assert_eq!(seen(machine, 3), enabling.0);
            assert_eq!(seen(machine, 4), registers.rdi, "arg0 in place");
            let frame: Vec<u64> = (0..16).map(|word| seen(machine, 5 + word)).collect();
            assert_eq!(frame[13] >> 8 & 0xff, registers.flags & 0xd5 | 2, "lahf");
            assert_eq!(frame[13] & 0xff, registers.flags >> 11 & 1, "seto");
            assert_eq!(frame[14..], [registers.r15, registers.rax]);
            if full_frame {
                let Registers {
                    rbx,
                    rcx,
                    rdx,
                    rsi,
                    rdi,
                    rbp,
                    r8,
                    r9,
                    r10,
                    r11,
                    r12,
                    r13,
                    r14,
                    ..
                } = registers;
                assert_eq!(
                    frame[..13],
                    [r14, r13, r12, r11, r10, r9, r8, rbp, rdi, rsi, rdx, rcx, rbx]
                );
            }
            assert_eq!(machine.context_word(0), 0, "busy afterwards");
            assert_eq!(machine.context_word(COUNTERS), 2);
            assert_eq!(machine.context_word(32), 0, "missed");

            machine.clear_context();
            machine.set_context_word(0, 1);
            assert_eq!(machine.run(&registers, &data, start.0), native);
            assert_eq!(machine.context_word(0), 1, "busy stays what it was");
            assert_eq!(seen(machine, 0), 0, "calls of a busy thread");
            assert_eq!(machine.context_word(32), 1, "missed once a hit");
            assert_eq!(machine.context_word(COUNTERS), 2, "counts are not guarded");
            assert_eq!(
                machine.context_word(SEEN as u32 - 16),
                1,
                "np_enter looks whether it is over"
            );

            // A thread without a context: the agent is asked for one, and the thread continues without it.
            machine.clear_context();
            machine.know_thread(false);
            assert_eq!(machine.run(&registers, &data, start.0), native);
            assert_eq!(machine.context_word(SEEN as u32 - 16), 1, "calls of np_enter");
            assert_eq!(seen(machine, 0) + machine.context_word(COUNTERS), 0);
            machine.unpatch();
        }
    }
}

#[test]
fn i2_i3_patched_functions_do_what_they_did() {
    let mut random = Random(0x1234_5678_9abc_def1);
    let mut machine = Machine::new(ThreadKey::TlsSelf);
    for (name, emit) in functions::FUNCTIONS {
        test_function(&mut machine, &mut random, name, emit);
    }
    assert!(machine.puns > 50, "{} puns", machine.puns);
    assert!(machine.evicts > 5, "{} short jumps", machine.evicts);
    test_branches_within_a_run(&mut machine, &mut random);
    test_arrivals(&mut machine, &mut random);
    test_handlers(&mut machine, &mut random);
    // rdfsbase needs a processor and a kernel that allow it, which a bit of the auxiliary vector says.
    const HWCAP2_FSGSBASE: u64 = 2;
    // SAFETY: getauxval has no preconditions.
    if unsafe { libc::getauxval(libc::AT_HWCAP2) } & HWCAP2_FSGSBASE != 0 {
        machine.runtime.thread_key = ThreadKey::FsBase;
        test_handlers(&mut machine, &mut random);
    } else {
        left_out("handlers that read FS's base by rdfsbase", "FSGSBASE is not enabled");
    }
}
