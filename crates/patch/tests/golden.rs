//! Golden files: one text file a case, input above the line of dashes, the driver's output below.
//!
//! Input: `code` lines (hex bytes, `;` starts a comment), and
//!
//! ```text
//!   start ADDRESS          of the first byte; default 0x555555555000
//!   size N                 bytes of the function, the rest is padding; default: all
//!   fragment FROM TO       a further range of the function
//!   target +N              a branch target known from elsewhere
//!   point +N [inside|entry] [always|taken|leaves] [full] FIRE...     FIRE: count OFFSET | call HANDLER ENABLING;
//!                          without any the detour is just the relocated code
//!   follow                 control flow: what is reached, padding and the rest are printed
//!   constant ADDRESS HEX...  bytes of the image
//!   entered +N             by a landing pad, say
//!   pointer +N             from a table of labels
//!   every                  a point at every instruction, at which nothing fires
//!   restartable +N +N +N   a restartable sequence: from, to, where it goes on when it was aborted; after `follow`
//!   exits [silent]         a point at every exit, that counts unless `silent`
//!   successor              the jump of the function in front ends with this one's first bytes
//!   shadow_stack           the threads have shadow stacks
//!   force TACTIC
//!   key fsbase
//! ```
//!
//! `BLESS=1 cargo test -p nanoprobe-patch --test golden` rewrites the outputs.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::fmt::Write;
use std::path::Path;

use iced_x86::{Decoder, DecoderOptions, Formatter, IntelFormatter};
use nanoprobe_patch::*;

struct Case {
    start: TargetAddress,
    bytes: Vec<u8>,
    size: Option<u64>,
    fragments: Vec<std::ops::Range<TargetAddress>>,
    targets: Vec<TargetAddress>,
    points: Vec<Point>,
    followed: Option<Image>,
    exits: Option<Vec<Fire>>,
    successor: bool,
    every: bool,
    shadow_stack: bool,
    options: PlanOptions,
    thread_key: ThreadKey,
}

/// The image around the function, as the case describes it.
#[derive(Default)]
struct Image {
    constants: Vec<(u64, Vec<u8>)>,
    entered: Vec<TargetAddress>,
    pointers: Vec<TargetAddress>,
    restartable: Vec<Restartable>,
}

impl Surroundings for Image {
    fn constant(&self, address: TargetAddress, bytes: usize) -> Option<&[u8]> {
        self.constants.iter().find_map(|(start, all)| {
            let skip = usize::try_from(address.0.checked_sub(*start)?).ok()?;
            all.get(skip..skip.checked_add(bytes)?)
        })
    }

    fn entries(&self, range: std::ops::Range<TargetAddress>) -> Vec<TargetAddress> {
        let inside = self.entered.iter().filter(|address| range.contains(address));
        inside.copied().collect()
    }

    fn is_fragment(&self, _: TargetAddress) -> bool {
        false
    }

    fn pointers(&self, range: std::ops::Range<TargetAddress>) -> Vec<TargetAddress> {
        let inside = self.pointers.iter().filter(|address| range.contains(address));
        inside.copied().collect()
    }

    fn restartable(&self, _: std::ops::Range<TargetAddress>) -> Vec<Restartable> {
        self.restartable.clone()
    }
}

fn number(text: &str) -> u64 {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    }
    .unwrap_or_else(|_| panic!("not a number: {text}"))
}

fn parse(input: &str) -> Case {
    let mut case = Case {
        start: TargetAddress(0x5555_5555_5000),
        bytes: Vec::new(),
        size: None,
        fragments: Vec::new(),
        targets: Vec::new(),
        points: Vec::new(),
        followed: None,
        exits: None,
        successor: false,
        every: false,
        shadow_stack: false,
        options: PlanOptions::default(),
        thread_key: ThreadKey::TlsSelf,
    };
    for line in input.lines() {
        let line = line.split([';', '#']).next().unwrap_or_default();
        let mut words = line.split_whitespace();
        let Some(keyword) = words.next() else { continue };
        let words: Vec<&str> = words.collect();
        let at = |text: &str| TargetAddress(case.start.0 + number(text.trim_start_matches('+')));
        match keyword {
            "start" => case.start = TargetAddress(number(words[0])),
            "code" => case
                .bytes
                .extend(words.iter().map(|byte| u8::from_str_radix(byte, 16).unwrap())),
            "size" => case.size = Some(number(words[0])),
            "fragment" => case
                .fragments
                .push(TargetAddress(number(words[0]))..TargetAddress(number(words[1]))),
            "target" => case.targets.push(at(words[0])),
            "follow" => case.followed = Some(Image::default()),
            "constant" => {
                let bytes = words[1..].iter().map(|byte| u8::from_str_radix(byte, 16).unwrap());
                let image = case.followed.as_mut().unwrap();
                image.constants.push((number(words[0]), bytes.collect()));
            }
            "entered" => {
                let entered = at(words[0]);
                case.followed.as_mut().unwrap().entered.push(entered);
            }
            "pointer" => {
                let pointer = at(words[0]);
                case.followed.as_mut().unwrap().pointers.push(pointer);
            }
            "restartable" => {
                let (sequence, abort) = (at(words[0])..at(words[1]), at(words[2]));
                let image = case.followed.as_mut().unwrap();
                image.restartable.push(Restartable { sequence, abort });
            }
            "every" => case.every = true,
            "exits" if words.first() == Some(&"silent") => case.exits = Some(Vec::new()),
            "exits" => case.exits = Some(vec![Fire::Count { context_offset: 0x1000 }]),
            "shadow_stack" => case.shadow_stack = true,
            "successor" => case.successor = true,
            "force" => case.options.force = Some(words[0].parse().unwrap()),
            "key" => case.thread_key = ThreadKey::FsBase,
            "point" => case.points.push(point(at(words[0]), &words[1..])),
            _ => panic!("unknown keyword: {keyword}"),
        }
    }
    case
}

fn point(site: TargetAddress, words: &[&str]) -> Point {
    let (condition, position) = (FireCondition::Always, Position::Inside);
    let mut point = Point {
        site,
        condition,
        position,
        full_frame: false,
        fires: Vec::new(),
    };
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut operand = || number(words.next().unwrap());
        match *word {
            "inside" => point.position = Position::Inside,
            "entry" => point.position = Position::Entry,
            "always" => point.condition = FireCondition::Always,
            "taken" => point.condition = FireCondition::IfTaken,
            "leaves" => point.condition = FireCondition::IfLeaves,
            "behind" => point.condition = FireCondition::Behind,
            "full" => point.full_frame = true,
            "count" => point.fires.push(Fire::Count {
                context_offset: operand() as u32,
            }),
            "call" => {
                let (handler, enabling) = (TargetAddress(operand()), TargetAddress(operand()));
                point.fires.push(Fire::Call { handler, enabling });
            }
            "function" => point.fires.push(Fire::Function {
                dispatch: TargetAddress(operand()),
                resume: TargetAddress(operand()),
                cookie: operand(),
                quick: None,
            }),
            "quick" | "called" => {
                let asked = TargetAddress(operand());
                if let Some(Fire::Function { quick, .. }) = point.fires.last_mut() {
                    *quick = Some(if *word == "quick" {
                        Quick::Inline(asked)
                    } else {
                        Quick::Called(asked)
                    });
                }
            }
            _ => panic!("unknown word: {word}"),
        }
    }
    point
}

fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect::<Vec<_>>()
        .join(" ")
}

fn disassemble(output: &mut String, bytes: &[u8], address: TargetAddress, end: usize) {
    let mut decoder = Decoder::with_ip(64, &bytes[..end], address.0, DecoderOptions::NONE);
    let mut formatter = IntelFormatter::new();
    formatter.options_mut().set_hex_prefix("0x");
    formatter.options_mut().set_hex_suffix("");
    formatter.options_mut().set_uppercase_hex(false);
    formatter.options_mut().set_space_after_operand_separator(true);
    formatter.options_mut().set_small_hex_numbers_in_decimal(false);
    formatter.options_mut().set_branch_leading_zeros(false);
    formatter.options_mut().set_rip_relative_addresses(false);
    for instruction in &mut decoder {
        let from = (instruction.ip() - address.0) as usize;
        let mut text = String::new();
        formatter.format(&instruction, &mut text);
        let hex = hex(&bytes[from..from + instruction.len()]);
        writeln!(output, "    {:#x}  {hex:<31} {text}", instruction.ip()).unwrap();
    }
}

fn follow_one(map: FunctionMap, image: &Image) -> FunctionMap {
    let mut parts = [map];
    follow(&mut parts, image);
    let [map] = parts;
    map
}

fn run(input: &str) -> String {
    let mut case = parse(input);
    let code = CodeView {
        start: case.start,
        bytes: &case.bytes,
    };
    let size = case.size.unwrap_or(case.bytes.len() as u64);
    let mut map = analyze(
        &code,
        &FunctionExtent {
            start: case.start,
            size,
            fragments: case.fragments.clone(),
        },
    );
    map.add_branch_targets(case.targets.iter().copied());
    let mut output = String::new();
    if let Some(at) = map.undecodable() {
        writeln!(output, "undecodable: {at}").unwrap();
    }
    if let Some(image) = &case.followed {
        map = follow_one(map, image);
        for (address, length) in map.instructions() {
            let end = address.0 + length as u64;
            let code = &case.bytes[(address.0 - case.start.0) as usize..(end - case.start.0) as usize];
            disassemble(&mut output, code, address, length);
        }
        for range in map.unreached() {
            writeln!(output, "unreached: {}..{}", range.start, range.end).unwrap();
        }
    }
    if case.every {
        let sites = map.instructions().map(|(site, _)| point(site, &[]));
        case.points.extend(sites);
    }
    if let Some(fires) = &case.exits {
        for Exit {
            site,
            offset,
            condition,
        } in map.exits()
        {
            writeln!(output, "exit: {site} +{offset} {condition:?}").unwrap();
            let (position, fires) = (Position::Inside, fires.clone());
            case.points.push(Point {
                site,
                condition,
                position,
                full_frame: false,
                fires,
            });
        }
    }
    map.show_padding(map.padding());
    if case.successor {
        map.show_that_it_is_successor();
    }
    if case.shadow_stack {
        map.show_shadow_stack();
    }
    let plan = plan(&map, &case.points, &case.options);
    let holes = vec![
        0x1_0000..case.start.0 & !0xffff,
        (case.start.0 | 0xf_ffff) + 1..0x7fff_0000_0000,
    ];
    let mut space = NearSpace::new(holes, 4096);
    let runtime = Runtime {
        enter: TargetAddress(0x7000_0000_1000),
        table: TargetAddress(0x7000_1000_0000),
        thread_key: case.thread_key,
        trap: None,
    };
    let placed = space.place_with_fallbacks(plan.runs, &case.options);
    for (plan, place) in &placed.runs {
        let place = *place;
        let built = build(plan, place, &runtime).unwrap();
        writeln!(
            output,
            "run {} length {} tactic {}",
            plan.start, plan.length, plan.tactic
        )
        .unwrap();
        for instruction in &plan.instructions {
            disassemble(
                &mut output,
                &instruction.bytes,
                instruction.address,
                instruction.bytes.len(),
            );
        }
        for entered in &plan.entered {
            writeln!(output, "  a branch leads to {entered}").unwrap();
        }
        writeln!(output, "  original {}", hex(&built.original)).unwrap();
        writeln!(output, "  patched  {}", hex(&built.patched)).unwrap();
        if let Some(springboard) = built.carries {
            writeln!(output, "  carries the springboard {springboard}").unwrap();
        }
        writeln!(output, "  detour {place} length {}", built.detour.len()).unwrap();
        let code_end = built.detour.len() - 8 * built.literals;
        disassemble(&mut output, &built.detour, place, code_end);
        for (index, literal) in built.detour[code_end..].chunks(8).enumerate() {
            let value = u64::from_le_bytes(literal.try_into().unwrap());
            let address = place.0 + (code_end + 8 * index) as u64;
            writeln!(output, "    {address:#x}  literal {value:#x}").unwrap();
        }
        for redirect in &built.redirects {
            writeln!(output, "  redirect {} -> {}", redirect.from, redirect.to).unwrap();
        }
        for Move { original, relocated } in &built.moves {
            writeln!(output, "  move {original} <-> {relocated}").unwrap();
        }
        for Move { original, relocated } in &built.departures {
            writeln!(output, "  departure {original} <- {relocated}").unwrap();
        }
    }
    for (site, refusal) in plan.refusals.iter().chain(&placed.refusals) {
        writeln!(output, "refused {site}: {refusal}").unwrap();
    }
    output
}

#[test]
fn golden_files() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let bless = std::env::var_os("BLESS").is_some();
    let mut failures = Vec::new();
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let (input, expected) = text.split_once("----\n").unwrap_or((&text, ""));
        let output = run(input);
        count += 1;
        if bless {
            std::fs::write(&path, format!("{input}----\n{output}")).unwrap();
        } else if output != expected {
            failures.push(format!(
                "{}:\n--- expected\n{expected}--- found\n{output}",
                path.display()
            ));
        }
    }
    assert!(count > 10);
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
