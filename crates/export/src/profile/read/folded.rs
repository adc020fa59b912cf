//! Reads folded stacks: lines of `outermost;...;innermost VALUE`.

use super::{ReadError, Said};
use crate::profile::tree::{Side, Tree};

pub(super) fn read(bytes: &[u8], tree: &mut Tree, side: Side) -> Result<Said, ReadError> {
    for (number, line) in (1_u64..).zip(bytes.split(|byte| *byte == b'\n')) {
        let line = String::from_utf8_lossy(line.trim_ascii());
        if line.is_empty() {
            continue;
        }
        let stack = line.rsplit_once(' ').and_then(|(stack, value)| {
            let value = value.parse::<u64>().ok()?;
            (!stack.trim().is_empty()).then_some((stack, value))
        });
        let Some((stack, value)) = stack else {
            return Err(ReadError::damaged(format!(
                "line {number} is no folded stack (frame;frame;... VALUE)"
            )));
        };
        let mut names = std::mem::take(&mut tree.names);
        tree.add(side, stack.split(';').map(|frame| names.number(frame)), value);
        tree.names = names;
    }
    Ok(Said::default())
}
