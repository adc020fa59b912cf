//! How much of a program can be probed, and how: plans every function of a module as `pid$target:module::` would,
//! without a process. Pure.
//!
//! The address space is a model of the one that the kernel makes: a program with room for the heap above it, or a
//! shared object between others, and the stack at the top; [`nanoprobe_target::HoleRules`] apply as in a session.
//!
//! ```text
//!   ET_EXEC   |program|~~~1 GiB for the heap~~~|............hole............|libraries|~~~128 MiB~~~|stack|
//!   PIE       |......hole......|program|~~~1 GiB~~~|......hole......|libraries|~~~|stack|
//!   library   |program|~~~|..................hole..................|others|library|others|~~~|stack|
//! ```
//!
//! A program with very many points is planned in pieces of [`PIECE_POINTS`], each in an address space of its own,
//! as by several sessions. Millions of patches at once would run out of near memory.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nanoprobe_patch::{
    Fire, FireCondition, NearSpace, Obstacle, PlanOptions, Point, Position, Refusal, RunPlan, Runtime, Tactic,
    TargetAddress, ThreadKey, build, plan, plan_again, reconcile, why_trap,
};
use nanoprobe_symbols::{AddressRange, Bias, FunctionKind, Module, ModuleKind};
use nanoprobe_target::{HoleRules, Map};
use nanoprobe_text::code::Neighbours;

use crate::layout::PAGE_BYTES;
use crate::placement::{RefusedBecause, spread};
use crate::probes::Spot;

/// Which instructions of each function are to be probed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Wanted {
    /// The first instruction.
    Entries,
    /// Every exit.
    Exits,
    /// All instructions.
    Instructions,
}

/// The result of planning all functions of a module.
#[derive(Clone, Debug, Default)]
pub struct Coverage {
    /// The number of functions that were planned.
    pub functions: usize,
    /// The number of functions without any exit: they never return.
    pub without_exit: usize,
    /// Functions some of whose exits may be missing, since a computed branch has unknown targets. For these, the
    /// return address can be replaced.
    pub incomplete: Class,
    /// The number of functions that only the unwinding tables know. They are planned like the others.
    pub unnamed: usize,
    /// The number of IFUNCs. Only in a process is it known which code they stand for; there, this code is planned like
    /// any function.
    pub indirect: usize,
    /// The number of wanted points (instructions to be probed).
    pub points: usize,
    /// How many of the points can be probed, by tactic.
    pub tactics: BTreeMap<Tactic, usize>,
    /// Points that trap, by reason.
    pub traps: BTreeMap<Obstacle, Class>,
    /// Points that are refused, by reason.
    pub refusals: BTreeMap<&'static str, Class>,
    /// Sites that hold an `int3` of the program's own, as labels and unreachable code do. They are not code, and do not
    /// count as points.
    pub breakpoints: Class,
    /// Bytes of functions that no known control flow reaches: data, or code that is not probed.
    pub unreached: Class,
    /// Time for finding, decoding, planning, placing and building.
    pub elapsed: Duration,
}

/// Points for which planning has the same result.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Class {
    /// How many points there are.
    pub points: usize,
    /// The first few of them: `function+0x12`.
    pub examples: Vec<String>,
}

/// The number of points that are planned together.
const PIECE_POINTS: usize = 256 << 10;

/// How many examples of a class are kept.
const EXAMPLES_MAX: usize = 6;
/// Where the models put things: the kernel's choices without randomisation.
const PROGRAM: u64 = 0x5555_5555_4000;
const LIBRARY: u64 = 0x7fff_e000_0000;
const OTHER_LIBRARIES_BYTES: u64 = 32 << 20;
const STACK: Range<u64> = 0x7fff_fffd_e000..0x7fff_ffff_f000;
const HEAP_BYTES: u64 = 0x21000;

const RUNTIME: Runtime = Runtime {
    enter: TargetAddress(0x7f00_0000_1000),
    table: TargetAddress(0x7f00_1000_0000),
    thread_key: ThreadKey::TlsSelf,
    trap: None,
};

/// Plans all wanted points of all functions of a module. The module is moved to its place in the model, unless it
/// has an address of its own.
pub fn plan_all(module: Module, wanted: Wanted) -> Coverage {
    let begin = Instant::now();
    let (module, holes) = model(module);
    let mut coverage = Coverage::default();
    let mut piece = Piece::default();
    let mut end = 0;
    for (extent, name) in functions(&module, &mut coverage) {
        // A piece never ends between functions that overlap.
        if piece.points >= PIECE_POINTS && extent.start.0 >= end {
            std::mem::take(&mut piece).settle(&module, &holes, &mut coverage);
        }
        end = end.max(extent.end.0);
        piece.add(&module, &holes, extent, name, wanted, &mut coverage);
    }
    piece.settle(&module, &holes, &mut coverage);
    coverage.elapsed = begin.elapsed();
    coverage
}

/// All functions by address: those with names, and those that only the unwinding tables know.
fn functions(module: &Module, coverage: &mut Coverage) -> Vec<(AddressRange, String)> {
    let mut all = Vec::new();
    for function in module.functions() {
        match function.kind {
            FunctionKind::Ifunc { .. } => coverage.indirect += 1,
            FunctionKind::Code => {
                coverage.unnamed += usize::from(!function.is_named);
                all.push((function.extent(), function.name.to_string()));
            }
        }
    }
    all.sort();
    all
}

/// The module at its place in the model, and the holes around it.
fn model(module: Module) -> (Module, Arc<[Range<u64>]>) {
    let image = module.image_range();
    let is_fixed = image.start.0 >= PAGE_BYTES;
    let base = match module.kind() {
        _ if is_fixed => 0,
        ModuleKind::Executable => PROGRAM,
        ModuleKind::Library | ModuleKind::Linker | ModuleKind::Vdso => LIBRARY,
    };
    let start = (base + image.start.0) & !(PAGE_BYTES - 1);
    let end = (base + image.end.0).next_multiple_of(PAGE_BYTES);
    let mut lines = vec![(start, end, "r-xp", "/module")];
    if base == LIBRARY {
        lines.push((start - OTHER_LIBRARIES_BYTES, start, "r-xp", "/other"));
        lines.push((end, end + OTHER_LIBRARIES_BYTES, "r-xp", "/other"));
    } else {
        lines.push((end, end + HEAP_BYTES, "rw-p", "[heap]"));
        lines.push((LIBRARY, LIBRARY + OTHER_LIBRARIES_BYTES, "r-xp", "/other"));
    }
    lines.push((STACK.start, STACK.end, "rw-p", "[stack]"));
    lines.sort_unstable();
    let text: String = lines
        .into_iter()
        .map(|(start, end, access, name)| format!("{start:x}-{end:x} {access} 00000000 08:01 1 {name}\n"))
        .collect();
    let holes = Map::parse(text.as_bytes()).holes(&HoleRules::default());
    let holes = holes.into_iter().map(|hole| hole.start.0..hole.end.0).collect();
    (module.with_bias(Bias(base)), holes)
}

/// The functions that are planned together in one address space.
#[derive(Default)]
struct Piece {
    points: usize,
    runs: Vec<RunPlan>,
    names: BTreeMap<TargetAddress, String>,
    neighbours: Neighbours,
    /// The parts of the functions, by start: where each ends, and the extent of its function.
    parts: BTreeMap<TargetAddress, (TargetAddress, Range<u64>)>,
}

impl Piece {
    fn add(
        &mut self,
        module: &Module,
        holes: &Arc<[Range<u64>]>,
        extent: AddressRange,
        name: String,
        wanted: Wanted,
        coverage: &mut Coverage,
    ) {
        let bias = module.bias();
        let extent = bias.to_target(extent.start).0..bias.to_target(extent.end).0;
        let entry = TargetAddress(extent.start);
        coverage.functions += 1;
        self.names.insert(entry, name);
        let Some(mut parts) = self.neighbours.parts(module, &extent) else {
            coverage.points += 1;
            let class = coverage.refusals.entry("its code is not in the file").or_default();
            class.add(1, self.describe(entry));
            return;
        };
        self.neighbours.show(module, &mut parts);
        parts.iter_mut().for_each(|part| part.show_near_memory(holes.clone()));
        let mut points: Vec<Vec<Point>> = parts.iter().map(|_| Vec::new()).collect();
        let mut make = |site, _, condition, position| Ok(point(site, condition, position));
        let asked = match wanted {
            Wanted::Entries => spread(Spot::Entry, entry, &parts, &mut points, &mut make),
            Wanted::Exits => spread(Spot::Exits, entry, &parts, &mut points, &mut make),
            Wanted::Instructions => {
                for (part, points) in parts.iter().zip(&mut points) {
                    let sites = part.instructions().map(|(site, _)| site);
                    points.extend(sites.map(|site| {
                        let position = if site == entry {
                            Position::Entry
                        } else {
                            Position::Inside
                        };
                        point(site, FireCondition::Always, position)
                    }));
                }
                Ok(())
            }
        };
        match asked {
            Err(RefusedBecause::NoExit) => coverage.without_exit += 1,
            Err(RefusedBecause::ExitsUnknown) => coverage.incomplete.add(1, self.describe(entry)),
            _ => {}
        }
        for part in &parts {
            for range in part.unreached() {
                let bytes = range.end.0.saturating_sub(range.start.0) as usize;
                coverage.unreached.add(bytes, self.describe(range.start));
            }
        }
        for (part, points) in parts.iter().zip(&points) {
            coverage.points += points.len();
            self.points += points.len();
            let (start, end) = (part.start(), TargetAddress(part.start().0.saturating_add(part.size())));
            self.parts.insert(start, (end, extent.clone()));
            let planned = plan(part, points, &PlanOptions::default());
            self.neighbours.take(&planned.runs);
            for run in planned.runs {
                self.runs.push(run);
            }
            for (site, reason) in planned.refusals {
                self.refuse(site, &reason, coverage);
            }
        }
    }

    /// Makes the runs disjoint, gives each detour its place, builds all, and counts.
    fn settle(mut self, module: &Module, holes: &Arc<[Range<u64>]>, coverage: &mut Coverage) {
        let options = PlanOptions::default();
        let reconciled = reconcile(std::mem::take(&mut self.runs), &[], &options);
        let ends = self.parts.iter().map(|(start, (end, _))| *start..*end);
        let ends: Vec<Range<TargetAddress>> = ends.collect();
        let mut neighbours = std::mem::take(&mut self.neighbours);
        let mut map_of = |start: TargetAddress| {
            let (_, extent) = self.parts.get(&start)?;
            let mut map = neighbours.part_again(module, extent, start)?;
            map.show_near_memory(holes.clone());
            Some(map)
        };
        let settled = plan_again(reconciled, &[], &ends, &options, &mut |part| map_of(part.start));
        let mut near = NearSpace::new(holes.to_vec(), PAGE_BYTES);
        let placed = near.place_with_fallbacks(settled.runs, &options);
        for (run, detour) in &placed.runs {
            let points: usize = run.instructions.iter().map(|displaced| displaced.points.len()).sum();
            if let Err(reason) = build(run, *detour, &RUNTIME) {
                self.refuse(run.start, &reason, coverage);
                continue;
            }
            *coverage.tactics.entry(run.tactic).or_default() += points;
            if run.tactic == Tactic::Trap {
                let part = || self.parts.range(..=run.start).next_back().map(|(start, _)| *start);
                let planned = || Some(why_trap(&map_of(part()?)?, run.start));
                let obstacle = run.obstacle.or_else(planned).unwrap_or(Obstacle::Unmovable);
                let example = self.describe(run.start);
                coverage.traps.entry(obstacle).or_default().add(points, example);
            }
        }
        for (site, reason) in settled.refusals.iter().chain(&placed.refusals) {
            self.refuse(*site, reason, coverage);
        }
    }

    fn refuse(&self, site: TargetAddress, reason: &Refusal, coverage: &mut Coverage) {
        if matches!(reason, Refusal::Breakpoint { .. }) {
            coverage.points -= 1;
            coverage.breakpoints.add(1, self.describe(site));
            return;
        }
        let class = coverage.refusals.entry(why_refused(reason)).or_default();
        class.add(1, self.describe(site));
    }

    fn describe(&self, site: TargetAddress) -> String {
        match self.names.range(..=site).next_back() {
            Some((start, name)) => format!("{name}+{:#x}", site.0 - start.0),
            None => site.to_string(),
        }
    }
}

impl Class {
    fn add(&mut self, points: usize, example: String) {
        self.points += points;
        if self.examples.len() < EXAMPLES_MAX {
            self.examples.push(example);
        }
    }
}

fn point(site: TargetAddress, condition: FireCondition, position: Position) -> Point {
    Point {
        site,
        condition,
        position,
        full_frame: false,
        fires: vec![Fire::Count { context_offset: 4096 }],
    }
}

fn why_refused(reason: &Refusal) -> &'static str {
    match reason {
        Refusal::OutsideFunction { .. } => "outside of the function",
        Refusal::NotAnInstruction { .. } => "not the start of an instruction",
        Refusal::Undecodable { .. } => "after bytes that are no instruction",
        Refusal::Padding { .. } => "padding",
        Refusal::Unreached { .. } => "nothing is known to lead there",
        Refusal::Unmovable { reason, .. } => reason,
        Refusal::NoSuchEdge { .. } => "no such edge",
        Refusal::TacticUnavailable { .. } => "no address for its detour",
        Refusal::OutOfReach { .. } => "what it refers to is out of reach",
        Refusal::BoundaryUnprotected { .. } => "a boundary is not protected",
        Refusal::TooLarge { .. } => "too large",
        _ => "another reason",
    }
}
