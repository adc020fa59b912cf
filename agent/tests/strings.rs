//! strlen, strcmp and assignment, compared with Rust, at every alignment and at a page's end.

#![allow(clippy::unwrap_used, reason = "test code")]

mod common;

use std::cmp::Ordering;

use common::{Options, ROOM, Target};
use nanoprobe_agent::Function;
use nanoprobe_arena::Memory;

/// Not a multiple of eight: the last word of a long string counts in part.
const STRSIZE: usize = 22;

fn texts() -> Vec<Vec<u8>> {
    let mut texts: Vec<Vec<u8>> = (0..STRSIZE + 9).map(|length| vec![b'a'; length]).collect();
    texts.push(b"aaaaaaaab".to_vec());
    texts.push(b"aaaaaaaaaaaaaaaaaaaaaaab".to_vec());
    texts.push(b"aaa\xff".to_vec());
    texts.push(b"aaa\x01\x01\x01\x01\x01\x01".to_vec());
    texts.push(vec![0x80; 9]);
    texts
}

/// Where strings begin: all alignments, and just before the end of a page of the arena.
const PLACES: [u64; 5] = [0, 1, 7, 4096 - 3, 4096 - 8];

#[test]
fn lengths_and_comparisons() {
    let target = Target::new(&Options {
        strsize: STRSIZE as u32,
        ..Options::default()
    });
    let context = target.enter();
    for left in texts() {
        for place in PLACES {
            let at = target.string(place, &left);
            assert_eq!(
                target.run(context, Function::StringLength, &[at]).0,
                left.len().min(STRSIZE - 1) as u64
            );
        }
        for right in texts() {
            for place in PLACES {
                let left_at = target.string(place, &left);
                let right_at = target.string(2000 + 1, &right);
                let (result, _) = target.run(context, Function::StringCompare, &[left_at, right_at]);
                let cut = |text: &[u8]| text[..text.len().min(STRSIZE - 1)].to_vec();
                let expected = cut(&left).cmp(&cut(&right));
                assert_eq!((result as i64).cmp(&0), expected, "{left:?} {right:?}");
            }
        }
    }
    assert_eq!(Ordering::Less, b"a".cmp(b"b"));
}

#[test]
fn assignment_cuts_pads_and_stays_inside() {
    let target = Target::new(&Options {
        strsize: STRSIZE as u32,
        ..Options::default()
    });
    let context = target.enter();
    for text in texts() {
        for place in PLACES {
            for capacity in [1, 8, 9, 23, 24, 30] {
                let source = target.string(place, &text);
                target.memory.write(ROOM + 1024, &[0xee; 40]).unwrap();
                target.run(
                    context,
                    Function::StringCopy,
                    &[target.arena + ROOM + 1024, source, capacity],
                );
                let mut expected = text[..text.len().min(capacity as usize - 1)].to_vec();
                expected.resize(capacity as usize, 0);
                expected.resize(40, 0xee);
                assert_eq!(
                    target.memory.copy(ROOM + 1024, 40).unwrap(),
                    expected,
                    "{text:?} into {capacity}"
                );
            }
        }
    }
}
