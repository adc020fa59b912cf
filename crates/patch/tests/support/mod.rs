//! Functions of real ELF files, for tests over code that was not written for us.

#![allow(dead_code, reason = "each test uses its part")]

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use nanoprobe_patch::{
    Built, CodeView, FunctionExtent, FunctionMap, Padding, RunPlan, Tactic, TargetAddress, analyze, is_trapping_byte,
};
use nanoprobe_tests::left_out::left_out;
use object::{Object, ObjectSection, ObjectSymbol, SymbolKind};

/// The address at which the tests pretend that the file is loaded.
pub const LOAD_ADDRESS: u64 = 0x5555_5555_4000;

/// A function's name and place in the text.
pub struct Function {
    pub name: String,
    pub range: Range<u64>,
    /// The range up to the next function or the section's end.
    pub view: Range<u64>,
}

/// The text of a file and its functions, at [`LOAD_ADDRESS`].
pub struct Text {
    pub address: u64,
    pub bytes: Vec<u8>,
    pub functions: Vec<Function>,
}

/// This program, and some files of the system, if they exist.
pub fn real_files() -> Vec<PathBuf> {
    let mut files = vec![std::env::current_exe().unwrap()];
    for path in ["/bin/bash", "/lib/x86_64-linux-gnu/libc.so.6"] {
        if Path::new(path).exists() {
            files.push(path.into());
        } else {
            left_out("plans for real files", &format!("there is no {path}"));
        }
    }
    files
}

impl Text {
    /// `None` when there is no such file.
    pub fn read(path: &Path) -> Option<Text> {
        let data = std::fs::read(path).ok()?;
        let file = object::File::parse(&*data).unwrap();
        let section = file.section_by_name(".text").unwrap();
        let text = section.address()..section.address() + section.size();
        let mut ranges: Vec<(u64, u64, String)> = file
            .symbols()
            .chain(file.dynamic_symbols())
            .filter(|symbol| symbol.kind() == SymbolKind::Text && text.contains(&symbol.address()) && symbol.size() > 0)
            .map(|symbol| (symbol.address(), symbol.size(), symbol.name().unwrap_or("?").to_owned()))
            .collect();
        ranges.sort();
        ranges.dedup_by_key(|(address, _, _)| *address);
        let functions = ranges
            .iter()
            .enumerate()
            .map(|(index, (address, size, name))| {
                let next = ranges.get(index + 1).map_or(text.end, |(next, _, _)| *next);
                let range = address + LOAD_ADDRESS..(address + size).min(text.end) + LOAD_ADDRESS;
                let view = range.start..(next + LOAD_ADDRESS).max(range.end);
                Function {
                    name: name.clone(),
                    range,
                    view,
                }
            })
            .collect();
        Some(Text {
            address: text.start + LOAD_ADDRESS,
            bytes: section.data().unwrap().to_vec(),
            functions,
        })
    }

    pub fn bytes_at(&self, range: Range<u64>) -> &[u8] {
        &self.bytes[(range.start - self.address) as usize..(range.end - self.address) as usize]
    }

    pub fn analyze(&self, function: &Function) -> FunctionMap {
        let code = CodeView {
            start: TargetAddress(function.range.start),
            bytes: self.bytes_at(function.view.clone()),
        };
        let size = function.range.end - function.range.start;
        analyze(
            &code,
            &FunctionExtent {
                start: code.start,
                size,
                fragments: Vec::new(),
            },
        )
    }

    /// The pages of the text, as they would appear in the target's map.
    pub fn mapping(&self) -> Range<u64> {
        LOAD_ADDRESS..(self.address + self.bytes.len() as u64 + 0x20_0000) & !4095
    }

    /// The free memory around the text.
    pub fn holes(&self) -> Vec<Range<u64>> {
        vec![0x10_0000..self.mapping().start, self.mapping().end..0x7fff_0000_0000]
    }
}

/// Shows every function the padding of the functions around it, as the tracer does.
pub fn share_padding(maps: &mut [FunctionMap]) {
    let padding: Vec<Padding> = maps.iter().flat_map(FunctionMap::padding).collect();
    for map in maps {
        let (low, high) = (map.start().0 - 256, map.start().0 + map.size() + 256);
        let near = padding.iter().filter(|padding| (low..high).contains(&padding.start.0));
        map.show_padding(near.cloned().collect::<Vec<_>>());
    }
}

/// The text that a patch changes, in the order of writing.
pub fn written(built: &Built) -> Vec<(TargetAddress, &[u8], &[u8])> {
    let site = (built.address, &*built.original, &*built.patched);
    let springboard = built.springboard.iter();
    springboard
        .map(|part| (part.address, &*part.original, &*part.patched))
        .chain([site])
        .collect()
}

/// I1, at every moment of writing and of taking back: every start of an original instruction holds that instruction,
/// or is the patch's start, or traps and is redirected to the instruction's relocated copy. The rest of the text
/// stays unchanged.
pub fn check_invariant<'a>(text: &dyn Fn(Range<u64>) -> &'a [u8], map: &FunctionMap, run: &RunPlan, built: &Built) {
    let name = run.start;
    assert_eq!(built.address, run.start);
    assert!(built.detour.len() <= run.detour_length, "{name}");
    assert_eq!(built.moves.len(), run.instructions.len());
    let pieces = written(built);
    for (address, original, patched) in &pieces {
        assert_eq!(*original, text(address.0..address.0 + original.len() as u64), "{name}");
        assert_eq!(original.len(), patched.len(), "{name}");
        assert!(patched.len() <= 16, "{name}");
    }
    let displaced = &run.instructions[..run.instructions.len() - run.kept];
    let jump = match run.tactic {
        // All bytes of the instruction trap, each with the same redirect, except bytes to which a known branch leads.
        Tactic::Trap => {
            assert!(
                (1..=run.instructions[0].bytes.len()).contains(&built.patched.len()),
                "{name}"
            );
            assert_eq!(built.redirects.len(), built.patched.len(), "{name}");
            for (index, redirect) in built.redirects.iter().enumerate() {
                let from = TargetAddress(run.start.0 + index as u64);
                assert_eq!((redirect.from, redirect.to), (from, built.redirects[0].to));
                assert!(index == 0 || !map.is_branch_target(from), "{name}");
            }
            built.patched.len()
        }
        // The last bytes of its jump belong to the successor.
        Tactic::Evict if run.successor.is_some() => {
            assert!((1..5).contains(&run.length), "{name}");
            assert_eq!(built.patched.len(), run.length, "{name}");
            assert_eq!(run.successor, Some(run.end()), "{name}");
            run.length
        }
        Tactic::Evict => 2,
        Tactic::Pun => displaced.iter().map(|displaced| displaced.bytes.len()).sum(),
        _ => 5,
    };
    if run.tactic == Tactic::Pun {
        assert!((1..5).contains(&jump), "{name}");
        assert_eq!(built.patched[jump..], built.original[jump..], "{name}");
    } else {
        assert_eq!(run.kept, 0);
    }
    // The padding nops under a springboard are instructions, too.
    let near = |start: TargetAddress| {
        let touched = |(address, original, _): &(TargetAddress, &[u8], &[u8])| {
            (address.0.saturating_sub(15)..address.0 + original.len() as u64).contains(&start.0)
        };
        pieces.iter().any(touched)
    };
    let mut starts: Vec<(TargetAddress, usize)> = map.instructions().filter(|(start, _)| near(*start)).collect();
    if let Some(springboard) = run.springboard() {
        assert_eq!(run.tactic, Tactic::Evict);
        let ends = springboard.nops.iter().skip(1).chain([&springboard.behind]);
        starts.extend(
            springboard
                .nops
                .iter()
                .zip(ends)
                .map(|(nop, end)| (*nop, (end.0 - nop.0) as usize)),
        );
        check_springboard(run, built);
        if springboard.host.is_some() {
            // check_together checks this for the host.
            starts.retain(|(start, _)| *start >= run.start && *start < run.end());
        }
    }
    for (start, length) in starts {
        for state in 1..=pieces.len() {
            let all = state == pieces.len();
            let mut now = text(start.0..start.0 + length as u64).to_vec();
            let before = now.clone();
            for (address, _, patched) in &pieces[..state] {
                for (at, byte) in (address.0..).zip(*patched) {
                    if (start.0..start.0 + length as u64).contains(&at) {
                        now[(at - start.0) as usize] = *byte;
                    }
                }
            }
            if now == before || all && start == run.start && run.tactic != Tactic::Trap || before == [0xcc] {
                continue;
            }
            assert!(is_trapping_byte(now[0]), "{name}: {start} in {built:x?}");
            let redirect = built.redirects.iter().find(|redirect| redirect.from == start);
            let redirect = redirect.unwrap_or_else(|| panic!("{name}: {start} is not redirected: {built:x?}"));
            match built.moves.iter().position(|entry| entry.original == start) {
                Some(index) => {
                    let earliest = index
                        .checked_sub(1)
                        .map_or(0, |before| built.moves[before].relocated.0 + 1);
                    assert!(
                        (earliest..=built.moves[index].relocated.0).contains(&redirect.to.0),
                        "{name}: {start}"
                    );
                }
                None => assert!(redirect.to >= TargetAddress(start.0 + length as u64), "{name}: {start}"),
            }
        }
    }
    // A patch changes only these bytes: the jump, a byte at each site after it, and at the end a springboard for
    // another run.
    let sites_behind = displaced
        .iter()
        .skip(1)
        .filter(|displaced| displaced.address.0 >= run.start.0 + jump as u64 && !displaced.points.is_empty());
    let own = built
        .carries
        .map_or(built.patched.len(), |theirs| (theirs.0 - run.start.0) as usize);
    let behind = built.original.iter().zip(&built.patched).take(own).skip(jump);
    let changed = behind.filter(|(old, new)| old != new).count();
    assert_eq!(changed, sites_behind.count(), "{name}");
    // The byte of every redirect traps.
    for redirect in &built.redirects {
        let piece = pieces
            .iter()
            .find(|(address, _, patched)| (address.0..address.0 + patched.len() as u64).contains(&redirect.from.0));
        let (address, _, patched) = piece.unwrap_or_else(|| panic!("{name}: {redirect:x?}"));
        assert!(is_trapping_byte(patched[(redirect.from.0 - address.0) as usize]));
    }
}

/// All patches of a plan together: no two patches disagree about a byte, and every jump leads to its detour. Every
/// instruction of the function is whole, or is a patch's start, or traps and is redirected.
pub fn check_together<'a>(
    text: &dyn Fn(Range<u64>) -> &'a [u8],
    map: &FunctionMap,
    all: &[(RunPlan, TargetAddress, Built)],
) {
    let mut patched: BTreeMap<u64, u8> = BTreeMap::new();
    for (_, _, built) in all {
        for (address, _, bytes) in written(built) {
            for (at, byte) in (address.0..).zip(bytes) {
                assert_eq!(
                    *patched.entry(at).or_insert(*byte),
                    *byte,
                    "{}: two want {at:x}",
                    built.address
                );
            }
        }
    }
    let byte = |at: u64| patched.get(&at).copied().unwrap_or_else(|| text(at..at + 1)[0]);
    for (run, detour, built) in all.iter().filter(|(run, _, _)| run.tactic != Tactic::Trap) {
        let at = run.jump().0;
        let displacement = i32::from_le_bytes([1, 2, 3, 4].map(|offset| byte(at + offset)));
        let target = (at + 5).wrapping_add_signed(i64::from(displacement));
        assert_eq!((byte(at), target), (0xe9, detour.0), "{}", run.start);
        assert!(
            run.successor
                .is_none_or(|next| all.iter().any(|(other, _, _)| other.start == next))
        );
        assert_eq!(built.successor, run.successor);
        if let Some(host) = run.host() {
            check_host(all, run, host);
        }
    }
    for (start, length) in map
        .instructions()
        .filter(|(start, _)| patched.range(start.0..start.0 + 15).next().is_some())
    {
        let range = start.0..start.0 + length as u64;
        let is_whole = range.clone().map(byte).eq(text(range).iter().copied());
        let is_start = all
            .iter()
            .any(|(run, _, _)| run.start == start && run.tactic != Tactic::Trap);
        let redirects = || all.iter().flat_map(|(_, _, built)| &built.redirects);
        let is_trap = || is_trapping_byte(byte(start.0)) && redirects().any(|redirect| redirect.from == start);
        let is_dead = text(start.0..start.0 + 1) == [0xcc];
        assert!(is_whole || is_start || is_trap() || is_dead, "{start}");
    }
}

/// The short jump leads to the springboard's jump, and that jump to the detour. A thread on the springboard can be
/// moved back.
fn check_springboard(run: &RunPlan, built: &Built) {
    let springboard = run.springboard().unwrap();
    assert_eq!(built.patched[0], 0xeb);
    let landing = run
        .start
        .0
        .wrapping_add(2)
        .wrapping_add_signed(i64::from(built.patched[1] as i8));
    assert_eq!(landing, springboard.jump.0);
    assert_eq!(built.host, springboard.host);
    let back = built
        .departures
        .iter()
        .find(|departure| departure.relocated == springboard.jump);
    assert_eq!(back.unwrap().original, run.start);
    if springboard.host.is_some() {
        assert!(built.springboard.is_empty());
        return;
    }
    assert_eq!(built.springboard[0].address, springboard.start);
    let patched = built
        .springboard
        .iter()
        .map(|part| part.patched.clone())
        .collect::<Vec<_>>()
        .concat();
    let jump = &patched[(springboard.jump.0 - springboard.start.0) as usize..];
    assert_eq!((jump.len(), jump[0]), (5, 0xe9));
    assert!(!springboard.nops.contains(&springboard.jump));
    let first = built
        .departures
        .iter()
        .map(|departure| departure.relocated)
        .chain([built.moves[0].relocated]);
    let detour = first.filter(|relocated| *relocated != springboard.jump).min().unwrap();
    let displacement = i32::from_le_bytes(jump[1..].try_into().unwrap());
    let target = springboard
        .jump
        .0
        .wrapping_add(5)
        .wrapping_add_signed(i64::from(displacement));
    assert_eq!(target, detour.0);
}

/// The host exists, and the springboard lies in the rear of its last instruction, at the end of its patch.
fn check_host(all: &[(RunPlan, TargetAddress, Built)], guest: &RunPlan, host: TargetAddress) {
    let (host, _, built) = all.iter().find(|(other, _, _)| other.start == host).unwrap();
    let last = host.instructions.last().unwrap();
    let end = TargetAddress(guest.jump().0 + 5);
    assert!(
        last.address < guest.jump() && end <= host.end(),
        "{}: {}",
        guest.start,
        host.start
    );
    assert_eq!(built.carries, Some(guest.jump()));
    assert_eq!(built.address.0 + built.patched.len() as u64, end.0);
    assert!(built.patched.len() <= 16);
}
