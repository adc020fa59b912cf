//! What was recorded of a call may be anything: a line is printed, in one piece, with no sign that a terminal obeys.

use nanoprobe_syscalls::prototypes::calls;
use nanoprobe_syscalls::{End, Made, Outcome, Part, line};

/// Numbers that follow from a seed (xorshift).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A word as a program might pass it, or any.
    fn word(&mut self) -> u64 {
        let number = self.next();
        match number % 6 {
            0 => 0,
            1 => u64::MAX - (number >> 8) % 4,
            2 => 1 << ((number >> 8) % 64),
            3 => i64::MAX as u64 + (number >> 8) % 3,
            4 => (number >> 8) % 64,
            _ => number,
        }
    }

    fn memory(&mut self) -> Vec<u8> {
        let words = self.next() % 40;
        let mut memory: Vec<u8> = (0..words).flat_map(|_| self.word().to_le_bytes()).collect();
        memory.truncate(memory.len().saturating_sub(self.next() as usize % 9));
        memory
    }
}

#[test]
fn any_memory_gives_a_line() {
    let mut numbers = Numbers(0x2545_f491_4f6c_dd1d);
    let mut lines = 0;
    for call in calls() {
        for round in 0..400_u64 {
            let mut made = Made::new(call.name, std::array::from_fn(|_| numbers.word()));
            for argument in 0..6 {
                for end in [End::Entry, End::Return] {
                    for index in 0..numbers.next() as usize % 4 * (numbers.next() as usize % 9) {
                        let part = Part { end, argument, index };
                        let memory = numbers.memory();
                        made.add(part, &memory, numbers.next().is_multiple_of(2));
                    }
                }
            }
            made.outcome = match round % 4 {
                0 => Outcome::Unfinished,
                1 => Outcome::Left,
                _ => Outcome::Returned {
                    value: numbers.word() as i64,
                    error: numbers.word() as i32 * (round % 2) as i32,
                },
            };
            let text = line(&made, 0);
            let is_plain = text.chars().all(|sign| !sign.is_control() && sign.is_ascii());
            assert!(is_plain, "{text:?}");
            assert!(text.starts_with(call.name), "{text}");
            lines += 1;
        }
    }
    assert!(lines > 300 * 400, "{lines}");
}
