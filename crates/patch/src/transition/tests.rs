use super::*;
use proptest::prelude::*;

const BASE: u64 = 0x40_1000;

/// push rbp; mov rbp,rsp; push r12; push rbx; sub rsp,8; xor eax,eax; nop; mov edi,1; ret; int3 x3
const CODE: [u8; 23] = [
    0x55, 0x48, 0x89, 0xe5, 0x41, 0x54, 0x53, 0x48, 0x83, 0xec, 8, 0x31, 0xc0, 0x90, 0xbf, 1, 0, 0, 0, 0xc3, 0xcc,
    0xcc, 0xcc,
];

fn range(offset: usize, patched: &[u8]) -> TextRange {
    TextRange {
        address: TargetAddress(BASE + offset as u64),
        original: CODE[offset..offset + patched.len()].to_vec(),
        patched: patched.to_vec(),
        is_head: true,
    }
}

fn starts() -> Vec<u64> {
    let starts = instruction_starts(TargetAddress(BASE), &CODE);
    starts.iter().map(|start| start.0 - BASE).collect()
}

fn text(ranges: &[TextRange]) -> Vec<u8> {
    let mut text = CODE.to_vec();
    for range in ranges {
        let from = (range.address.0 - BASE) as usize;
        text[from..from + range.patched.len()].copy_from_slice(&range.patched);
    }
    text
}

/// The bytes that a thread may find at a start: the first bytes of each patch.
fn allowed(patches: &[&[TextRange]], offset: usize) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    let starts = starts();
    let end = starts
        .iter()
        .find(|start| **start > offset as u64)
        .map_or(CODE.len(), |next| *next as usize);
    all.push(CODE[offset..end].to_vec());
    for range in patches.iter().copied().flatten().filter(|range| range.is_head) {
        let at = (range.address.0 - BASE) as usize;
        if at == offset
            && let Some(length) = jump_bytes(range.patched[0])
        {
            all.push(text(std::slice::from_ref(range))[at..at + length as usize].to_vec());
        }
    }
    all
}

/// Goes through a sequence of texts. Between two synchronisations, a fetch may see any mixture of old and new bytes.
/// At each instruction's start it must see a whole original instruction, a whole jump of ours, or a trap.
fn check(sequence: &[&[TextRange]]) {
    let mut views: Vec<Vec<u8>> = text(sequence[0]).iter().map(|byte| vec![*byte]).collect();
    for pair in sequence.windows(2) {
        let steps = transition(pair[0], pair[1]);
        for (number, step) in steps.iter().enumerate() {
            // There is no synchronisation between the last step of one transition and the first step of the next.
            if number > 0 {
                views.iter_mut().for_each(|view| *view = vec![*view.last().unwrap()]);
            }
            for (address, byte) in step {
                views[(address.0 - BASE) as usize].push(*byte);
            }
            let is_padding = |start: u64| {
                pair.iter()
                    .copied()
                    .flatten()
                    .any(|range| !range.is_head && (start + BASE).wrapping_sub(range.address.0) < 5)
            };
            for start in starts().into_iter().filter(|start| !is_padding(*start)) {
                check_start(&views, start as usize, &allowed(pair, start as usize), &steps);
            }
        }
        let now: Vec<u8> = views.iter().map(|view| *view.last().unwrap()).collect();
        assert_eq!(now, text(pair[1]), "{steps:x?}");
    }
}

fn check_start(views: &[Vec<u8>], start: usize, allowed: &[Vec<u8>], steps: &Steps) {
    for first in &views[start] {
        // Padding of int3 is an instruction that is never executed.
        if is_trapping_byte(*first) {
            continue;
        }
        let fits = |candidate: &Vec<u8>| {
            candidate[0] == *first
                && candidate
                    .iter()
                    .zip(&views[start..])
                    .skip(1)
                    .all(|(byte, view)| view.iter().all(|seen| seen == byte))
        };
        assert!(
            allowed.iter().any(fits),
            "at +{start}: {first:02x} {:x?} is none of {allowed:x?}; steps {steps:x?}",
            &views[start + 1..(start + 5).min(views.len())]
        );
    }
}

/// A run with three boundaries, an instruction after the jump with its own trap, and padding.
fn run() -> Vec<TextRange> {
    vec![range(0, &[0xe9, 0x37, 0xd1, 0xc6, 0x06, 0x54, 0xcc])]
}

#[test]
fn a_run_comes_and_goes_in_three_steps() {
    let to = transition(&[], &run());
    let offsets =
        |step: &Step| -> Vec<(u64, u8)> { step.iter().map(|(address, byte)| (address.0 - BASE, *byte)).collect() };
    let to: Vec<_> = to.iter().map(offsets).collect();
    assert_eq!(
        to,
        [
            vec![(0, 0xcc), (1, 0xcc), (4, 0xcc), (6, 0xcc)],
            vec![(1, 0x37), (2, 0xd1), (3, 0xc6), (4, 0x06)],
            vec![(0, 0xe9)]
        ]
    );
    let back = transition(&run(), &[]);
    let back: Vec<_> = back.iter().map(offsets).collect();
    assert_eq!(
        back,
        [
            vec![(0, 0xcc)],
            vec![(2, 0x89), (3, 0xe5)],
            vec![(0, 0x55), (1, 0x48), (4, 0x41), (6, 0x53)]
        ]
    );
    check(&[&[], &run(), &[], &run(), &[]]);
}

#[test]
fn a_trap_is_one_step() {
    let trap = [range(7, &[0xcc])];
    assert_eq!(transition(&[], &trap).len(), 1);
    assert_eq!(transition(&trap, &[]).len(), 1);
    check(&[&[], &trap, &[], &trap]);
    // The whole instruction is filled with traps.
    let filled = [range(7, &[0xcc; 4])];
    assert_eq!(transition(&[], &filled).len(), 3);
    check(&[&[], &filled, &[], &trap, &filled]);
}

/// The jump at +11 puns on the opcode of the jump at +14: it is removed first, and written last.
#[test]
fn a_jump_that_covers_another_comes_last() {
    let covered = range(14, &[0xe9, 0x12, 0x34, 0x56, 0x07]);
    let covering = range(11, &[0xe9, 0x3c, 0x3f, 0xe9, 0x12]);
    let both = [covering, covered.clone()];
    let steps = transition(&[], &both);
    assert_eq!(steps.len(), 4, "{steps:x?}");
    assert_eq!(steps[2].keys().next().unwrap().0, BASE + 14);
    assert_eq!(steps[3].keys().next().unwrap().0, BASE + 11);
    assert_eq!(transition(&both, &[])[0].len(), 1);
    check(&[&[], &both, &[], &[covered], &both, &[]]);
}

/// A pun uses the first byte of the next instruction, which stays unchanged.
#[test]
fn the_instructions_under_a_pun_stay_unchanged() {
    let pun = [range(11, &[0xe9, 0x27, 0x17, 0xbf, 0x01])];
    for step in transition(&[], &pun) {
        assert!(step.keys().all(|address| address.0 < BASE + 14), "{step:x?}");
    }
    check(&[&[], &pun, &[]]);
}

#[test]
fn nothing_to_do_is_no_step() {
    assert!(transition(&[], &[]).is_empty());
    assert!(transition(&run(), &run()).is_empty());
}

/// A springboard in padding is written before anything leads to it, and is removed after nothing leads to it any
/// more.
#[test]
fn padding_is_written_before_the_head() {
    let mut spring = range(20, &[0xe9, 0x01, 0x02]);
    spring.is_head = false;
    let patch = [range(11, &[0xeb, 0x07]), spring];
    let steps = transition(&[], &patch);
    let step_of = |offset: u64| {
        steps
            .iter()
            .position(|step| step.contains_key(&TargetAddress(BASE + offset)))
    };
    assert!(
        step_of(20)
            < steps
                .iter()
                .position(|step| step.get(&TargetAddress(BASE + 11)) == Some(&0xeb))
    );
    check(&[&[], &patch, &[]]);
}

/// A disjoint set of patches over the code: at each start nothing, a trap, a filled trap, or a jump whose bytes at
/// boundaries trap.
fn patches() -> impl Strategy<Value = Vec<TextRange>> {
    proptest::collection::vec((0..4_u8, any::<[u8; 5]>(), 0..19_usize), starts().len()).prop_map(|choices| {
        let starts = starts();
        let mut patches = Vec::new();
        let mut free = 0;
        for (start, (kind, random, trapping)) in starts.iter().zip(choices) {
            let start = *start as usize;
            let next = starts
                .iter()
                .find(|next| **next > start as u64)
                .map_or(CODE.len(), |next| *next as usize);
            if start < free {
                continue;
            }
            let mut bytes = match kind {
                0 => continue,
                1 => vec![BREAKPOINT],
                2 => vec![BREAKPOINT; next - start],
                _ if start + 5 > CODE.len() => continue,
                _ => [&[0xe9][..], &random[1..]].concat(),
            };
            let end = (start + bytes.len()) as u64;
            for boundary in starts.iter().filter(|at| **at > start as u64 && **at < end) {
                let trap = crate::TRAPPING_BYTES[(trapping + *boundary as usize) % crate::TRAPPING_BYTES.len()];
                bytes[*boundary as usize - start] = trap;
            }
            free = start + bytes.len();
            patches.push(range(start, &bytes));
        }
        patches
    })
}

proptest! {
    /// I1 holds at every moment, from any patches to any others, and then to others again.
    #[test]
    fn no_start_is_ever_torn(first in patches(), second in patches(), third in patches()) {
        check(&[&[], &first, &second, &third, &[]]);
    }
}
