//! One sequence. The sequence is run natively from some states, then patched in every way and run from the same states.
//! The results are compared.

mod excuse;

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use nanoprobe_patch::{CodeView, FireCondition, FunctionExtent, FunctionMap, Point, TargetAddress, ThreadKey, analyze};

use crate::difference::{FLAGS_DIFFER, Found, first_difference};
use crate::executor::{End, Executor, Start};
use crate::memory::{Arena, BASES, CODE_BYTES, DATA_BYTES, STACK_BYTES, STACK_TOP, THREAD_POINTER, read, write};
use crate::random::Random;
use crate::report::{Failure, Totals};
use crate::sequence::{Laid, Sequence};
use crate::state::Registers;
use crate::stubs::{Does, Stubs};
use crate::tactics::{Patching, ROWS};

/// Everything on which cases run. There is one in a process.
pub struct Bench {
    pub executor: Executor,
    arenas: [Arena; 2],
    stubs: Stubs,
}

/// Whether an instruction always continues at the instruction after it.
fn goes_straight_on(bytes: &[u8]) -> bool {
    use iced_x86::{Decoder, DecoderOptions, FlowControl, Mnemonic};
    let instruction = Decoder::new(64, bytes, DecoderOptions::NONE).decode();
    instruction.flow_control() == FlowControl::Next && instruction.mnemonic() != Mnemonic::Hlt
}

const STATES: usize = 3;
/// Flags that a state may begin with: CF PF AF ZF SF DF OF.
const FLAGS: u64 = 0xcd5;
const TRAP_FLAG: u64 = 0x100;
const ALIGNMENT_CHECK: u64 = 0x40000;
/// The red zone (System V ABI 3.2.2).
const RED_ZONE: u64 = 128;

/// A state to start from, with memory.
pub struct State {
    pub registers: Registers,
    image: Vec<u8>,
    data: Vec<u8>,
    stack: Vec<u8>,
}

/// A native run.
#[derive(Clone)]
struct Native {
    result: Found,
    /// How often the instruction at each byte of the code began, if known.
    counts: Option<Vec<u32>>,
    /// How often each point fired when the sequence was first patched. All tactics must agree with this.
    fired: HashMap<(u64, bool), u64>,
}

/// Below this many bytes of stack a run is not compared: handlers need some stack.
const STACK_LEFT_MIN: u64 = 0x400;

/// The byte that fills the places of former detours.
const INT3: u8 = 0xcc;

impl Bench {
    pub fn new() -> Bench {
        let exit = Executor::exit();
        Bench {
            executor: Executor::install(),
            arenas: BASES.map(|base| Arena::new(base, exit)),
            stubs: Stubs::map().unwrap_or_else(|error| panic!("the stubs do not assemble: {error}")),
        }
    }

    /// Runs natively once, from a random state; returns how the run ended.
    pub fn try_natively(&mut self, sequence: &Sequence, random: &mut Random) -> End {
        let mut state = self.state(1, random);
        sequence
            .lay_out(&self.arenas[1], &mut state.data)
            .write(&self.arenas[1]);
        let target = self.arenas[1].code();
        self.run(1, &state, target, 1, &[]).outcome.end
    }

    /// Runs all cases of a sequence; returns the first difference.
    pub fn check(&mut self, sequence: &Sequence, seed: u64, totals: &mut Totals) -> Result<(), Box<Failure>> {
        let mut random = Random::new(seed, 1);
        let which = random.below(2);
        let mut states: Vec<State> = (0..STATES).map(|_| self.state(which, &mut random)).collect();
        let mut pointers = vec![0; DATA_BYTES];
        let laid = sequence.lay_out(&self.arenas[which], &mut pointers);
        for state in &mut states {
            sequence.lay_out(&self.arenas[which], &mut state.data);
        }
        laid.write(&self.arenas[which]);
        let map = self.analyze(sequence, &laid, which);
        let mut natives = HashMap::new();
        let mut with_padding = map.clone();
        with_padding.show_padding(map.padding());
        let mut without_padding = map.clone();
        without_padding.show_padding([]);
        for (number, row) in ROWS.iter().enumerate() {
            if !random.once_in(row.once_in) {
                continue;
            }
            for every in [true, false] {
                // Plans as a session does, and as the library does.
                let map = match every {
                    _ if row.without_padding => &without_padding,
                    true => &with_padding,
                    false => &map,
                };
                let key = if random.once_in(4) {
                    ThreadKey::FsBase
                } else {
                    ThreadKey::TlsSelf
                };
                let points = self.points(map, &laid, every, &mut random);
                let known = !random.once_in(8);
                let runtime = self.stubs.runtime(key, row.trap);
                let patching = row.patch(map, &points, self.arenas[which].holes(), &runtime);
                totals.note_refusals(&patching);
                totals.note_points(&patching);
                if patching.points.is_empty() {
                    continue;
                }
                let mut entries: Vec<(usize, u64)> = (0..states.len()).map(|state| (state, map.start().0)).collect();
                entries.extend(patching.boundaries.iter().map(|boundary| (0, *boundary)));
                for (state, entry) in entries {
                    let native = match natives.entry((state, entry)) {
                        Entry::Occupied(native) => native.into_mut(),
                        Entry::Vacant(vacant) => {
                            let mut native = self.natively(which, &laid, &states[state], entry);
                            if let Some(native) = &mut native {
                                let steps = state == 0 && entry == map.start().0 && seed.is_multiple_of(4);
                                native.counts =
                                    self.expected_counts(which, sequence, map, &states[state], entry, native, steps);
                            }
                            vacant.insert(native)
                        }
                    };
                    let Some(native) = native else {
                        totals.endless += 1;
                        if entry == map.start().0 {
                            return Ok(());
                        }
                        continue;
                    };
                    totals.begin_patched(number, entry);
                    let found = self.patched(which, &patching, &laid, &states[state], entry, known);
                    totals.end_patched();
                    totals.count(row.name, &native.result.outcome.end);
                    let lowest = self.lowest_live(which, sequence, native);
                    let difference = first_difference(&native.result, &found, &patching, lowest, &self.executor.layout)
                        .or_else(|| self.wrong_count(sequence, &patching, native, which));
                    let Some(difference) = difference else { continue };
                    if difference.starts_with(FLAGS_DIFFER) && self.only_undefined_flags(map, &laid, native, &found) {
                        totals.unstable += 1;
                        continue;
                    }
                    let native = native.clone();
                    if found.outcome.end == End::Endless && self.runs_long(which, &states[state], entry) {
                        totals.endless += 1;
                        continue;
                    }
                    if self.looks_at_code(which, &laid, &states[state], entry)
                        || self.is_native_unstable(which, &laid, &states[state], entry, &native, lowest)
                    {
                        totals.unstable += 1;
                        continue;
                    }
                    return Err(Box::new(Failure {
                        tactic: row.name,
                        start: map.start().0,
                        entry,
                        laid,
                        patching,
                        difference,
                        registers: states[state].registers,
                        native: native.result.outcome.end,
                        patched: found.outcome.end,
                    }));
                }
            }
        }
        totals.sequences += 1;
        Ok(())
    }

    fn analyze(&self, sequence: &Sequence, laid: &Laid, which: usize) -> FunctionMap {
        let start = TargetAddress(self.arenas[which].code());
        let terminated = laid.size + if laid.size == laid.end_of_items { 5 } else { 0 };
        let view = terminated as usize + sequence.padding.len();
        let extent = FunctionExtent {
            start,
            size: laid.size,
            fragments: Vec::new(),
        };
        analyze(
            &CodeView {
                start,
                bytes: &laid.bytes[..view],
            },
            &extent,
        )
    }

    /// Makes points at every instruction or at some of them: before the instruction, after it, or both.
    fn points(&self, map: &FunctionMap, laid: &Laid, every: bool, random: &mut Random) -> Vec<Point> {
        let share = 1 + random.below(4);
        // Trap sites with functions, or with points after the instruction, are boosted, so these are rare.
        let (functions, behind) = (random.once_in(4), random.once_in(4));
        let mut points = Vec::new();
        for (site, _) in map.instructions() {
            if !every && !random.once_in(share) {
                continue;
            }
            let does = if functions && random.once_in(2) {
                Does::Function
            } else if random.once_in(3) {
                Does::Call {
                    full_frame: random.once_in(4),
                }
            } else {
                Does::Count
            };
            let is_behind = behind
                && random.once_in(2)
                && (laid.bytes.get((site.0 - map.start().0) as usize..)).is_some_and(goes_straight_on);
            if !is_behind || random.once_in(2) {
                points.push(self.stubs.point(site, points.len(), does, FireCondition::Always));
            }
            if is_behind {
                points.push(self.stubs.point(site, points.len(), does, FireCondition::Behind));
            }
        }
        points
    }

    fn state(&self, which: usize, random: &mut Random) -> State {
        let arena = &self.arenas[which];
        let mut registers = Registers {
            general: std::array::from_fn(|_| random.value()),
            flags: random.next() & FLAGS | 0x202,
            rsp: arena.stack_top(),
            fs_base: arena.data() + THREAD_POINTER,
            gs_base: arena.data() + THREAD_POINTER,
        };
        let alignment = random.pick(&[1, 16, 64]);
        let mut pointer = || arena.data() + ((0x400 + random.below(0x600) as u64) & !(alignment - 1));
        // rbx, rsi, rdi, r12, r13, r14 point into the data, rbp into the stack; rcx and r9 are small.
        for register in [1, 4, 5, 11, 12, 13] {
            registers.general[register] = pointer();
        }
        registers.general[6] = arena.stack_top() + 0x100;
        for register in [2, 8] {
            registers.general[register] = random.below(12) as u64;
        }
        let (mut data, mut stack) = (vec![0; DATA_BYTES], vec![0; STACK_BYTES]);
        random.fill(&mut data);
        random.fill(&mut stack);
        let at = THREAD_POINTER as usize;
        data[at..at + 8].copy_from_slice(&registers.fs_base.to_le_bytes());
        let at = STACK_TOP as usize;
        stack[at..at + 8].copy_from_slice(&arena.exit_pad().to_le_bytes());
        State {
            registers,
            image: self.executor.layout.random(random),
            data,
            stack,
        }
    }

    fn run(&mut self, which: usize, state: &State, target: u64, ticks: u32, redirects: &[[u64; 2]]) -> Found {
        let arena = &self.arenas[which];
        write(arena.data(), &state.data);
        write(arena.stack(), &state.stack);
        let start = Start {
            registers: state.registers,
            image: &state.image,
            target,
            ticks,
        };
        let outcome = self.executor.run(&start, redirects);
        Found {
            outcome,
            data: read(arena.data(), DATA_BYTES).to_vec(),
            stack: read(arena.stack(), STACK_BYTES).to_vec(),
        }
    }

    /// `None` if the run does not end, changes its own code, uses up its stack, overwrites its return address, or sets
    /// unusual flags.
    fn natively(&mut self, which: usize, laid: &Laid, state: &State, entry: u64) -> Option<Native> {
        let result = self.run(which, state, entry, 1, &[]);
        let arena = &self.arenas[which];
        let changed = read(arena.code(), laid.bytes.len()) != laid.bytes;
        if changed {
            laid.write(arena);
        }
        let rsp = result.outcome.registers.rsp;
        let deep = (arena.stack() - CODE_BYTES..arena.stack() + STACK_LEFT_MIN).contains(&rsp);
        // A `ret` into the middle of the sequence has no defined result.
        let slot = STACK_TOP as usize;
        let lost = laid.returns && result.stack[slot..slot + 8] != arena.exit_pad().to_le_bytes();
        // At a popf the sequence may begin to single-step itself, or turn on alignment checks.
        let odd = result.outcome.registers.flags & (TRAP_FLAG | ALIGNMENT_CHECK) != 0;
        (!changed && !deep && !lost && !odd && result.outcome.end != End::Endless).then_some(Native {
            result,
            counts: None,
            fired: HashMap::new(),
        })
    }

    /// How often each instruction begins. Without branches, each instruction begins once, up to the first one that
    /// faults. With branches, the instructions are counted by single steps, if counts are wanted.
    #[allow(clippy::too_many_arguments, reason = "all that a native run needs, once more")]
    fn expected_counts(
        &mut self,
        which: usize,
        sequence: &Sequence,
        map: &FunctionMap,
        state: &State,
        entry: u64,
        native: &Native,
        by_steps: bool,
    ) -> Option<Vec<u32>> {
        let code = self.arenas[which].code();
        if sequence.branchy {
            write(self.arenas[which].data(), &state.data);
            write(self.arenas[which].stack(), &state.stack);
            let start = Start {
                registers: state.registers,
                image: &state.image,
                target: entry,
                ticks: 1000,
            };
            return by_steps.then(|| self.executor.count_steps(&start, code))?;
        }
        let mut counts = vec![0; CODE_BYTES as usize];
        let last = match native.result.outcome.end {
            End::Fault(fault) if map.is_inside(TargetAddress(fault.rip)) => fault.rip,
            _ => u64::MAX,
        };
        for (site, _) in map.instructions().filter(|(site, _)| (entry..=last).contains(&site.0)) {
            counts[(site.0 - code) as usize] = 1;
        }
        Some(counts)
    }

    fn patched(
        &mut self,
        which: usize,
        patching: &Patching,
        laid: &Laid,
        state: &State,
        entry: u64,
        known: bool,
    ) -> Found {
        for detour in &patching.detours {
            self.arenas[which].need(detour.clone());
        }
        for (address, bytes) in &patching.writes {
            write(*address, bytes);
        }
        self.stubs.know_thread(state.registers.fs_base, known);
        self.stubs.clear(&patching.points);
        let result = self.run(which, state, entry, 1000, &patching.redirects);
        laid.write(&self.arenas[which]);
        // A later sequence may return to any address. So an address without an instruction of the sequence must not
        // hold a jump back into the middle of its instructions, which no program has.
        for detour in &patching.detours {
            write(detour.start.0, &vec![INT3; (detour.end.0 - detour.start.0) as usize]);
        }
        result
    }

    /// The lowest address of the stack on which the program may rely: 128 bytes below the highest rsp.
    fn lowest_live(&self, which: usize, sequence: &Sequence, native: &Native) -> u64 {
        let lowest = self.arenas[which].stack_top() + 8 * sequence.words_popped - RED_ZONE;
        // Loops may pop any number of words.
        if sequence.branchy {
            lowest.max(native.result.outcome.registers.rsp)
        } else {
            lowest
        }
    }

    fn wrong_count(
        &self,
        sequence: &Sequence,
        patching: &Patching,
        native: &mut Native,
        which: usize,
    ) -> Option<String> {
        if self.stubs.is_busy() {
            return Some("the context is busy".to_owned());
        }
        if sequence.loose_counts {
            return None;
        }
        let code = self.arenas[which].code();
        let faulted = match native.result.outcome.end {
            End::Fault(fault) => fault.rip,
            _ => 0,
        };
        patching.points.iter().find_map(|point| {
            let found = self.stubs.count(point);
            let behind = point.condition == FireCondition::Behind;
            let expected = match &native.counts {
                // An instruction that faults has begun, but does not finish.
                Some(counts) => {
                    u64::from(counts[(point.site.0 - code) as usize]) - u64::from(behind && faulted == point.site.0)
                }
                None => *native.fired.entry((point.site.0, behind)).or_insert(found),
            };
            let place = if behind { "behind" } else { "at" };
            (expected != found).then(|| {
                format!(
                    "the point {place} {} fired {found} times, expected {expected}",
                    point.site
                )
            })
        })
    }
}
