//! The effects of the preprocessor's lines: which text comes from headers, and the `#pragma pack` of
//! headers.
//!
//! `# 12 "file.h" 1` enters a file, `# 34 "script.d" 2` returns from one. The parser may read a text
//! twice ([`Lexer::rewind`]). So the effect of each line is stored with its place, and applied once.

use super::{Lexer, is_blank};
use crate::source::Span;

/// The state that holds from a place of the text on.
#[derive(Clone, Copy, Debug, Default)]
struct State {
    from: usize,
    /// How many files include the current file, directly or indirectly.
    depth: u32,
    /// `#pragma pack(n)`.
    pack: Option<u32>,
}

/// The states of a text, by their places. See the module's description.
#[derive(Debug, Default)]
pub(super) struct Included {
    states: Vec<State>,
    /// The stack of `#pragma pack(push)`.
    packs: Vec<Option<u32>>,
}

/// The maximal number of entries of the stack of `#pragma pack(push)`.
const PACKS_MAX: usize = 1000;

impl Included {
    fn at(&self, place: usize) -> State {
        let later = self.states.partition_point(|state| state.from <= place);
        let found = later.checked_sub(1).and_then(|last| self.states.get(last));
        found.copied().unwrap_or_default()
    }

    /// Begins another state at this line, unless the line was already applied.
    fn change(&mut self, from: usize, change: impl FnOnce(&mut State, &mut Vec<Option<u32>>)) {
        let last = self.states.last().copied().unwrap_or_default();
        if last.from < from || self.states.is_empty() {
            let mut state = State { from, ..last };
            change(&mut state, &mut self.packs);
            self.states.push(state);
        }
    }
}

impl Lexer<'_> {
    /// Whether a place is in an included file.
    pub fn is_included(&self, place: Span) -> bool {
        self.included.at(place.start as usize).depth > 0
    }

    /// The greatest alignment of the members of a structure that ends here: `#pragma pack`.
    pub fn pack(&self, place: Span) -> Option<u32> {
        self.included.at(place.start as usize).pack
    }

    /// The words after the number of a preprocessor's line: `"file.h" 1 3 4`.
    pub(super) fn line_marker(&mut self, body: &str) {
        let flags = body.rsplit('"').next().unwrap_or("");
        let mut flags = flags.split(is_blank).filter(|word| !word.is_empty());
        let Some(flag @ ("1" | "2")) = flags.next() else {
            return;
        };
        self.included.change(self.position, |state, _| {
            state.depth = match flag {
                "1" => state.depth.saturating_add(1),
                _ => state.depth.saturating_sub(1),
            };
        });
    }

    /// `#pragma pack(...)`; yields whether its form is known.
    pub(super) fn pragma_pack(&mut self, text: &str) -> bool {
        let Some(inside) = text
            .trim()
            .strip_prefix("pack")
            .and_then(|rest| rest.trim().strip_prefix('(')?.strip_suffix(')'))
        else {
            return false;
        };
        let (mut push, mut pop, mut pack) = (false, false, None);
        let words = inside.split(',').map(str::trim).filter(|word| !word.is_empty());
        let mut any = false;
        for word in words {
            any = true;
            match word.parse::<u32>() {
                Ok(bytes @ (0 | 1 | 2 | 4 | 8 | 16)) => pack = Some(Some(bytes).filter(|bytes| *bytes > 0)),
                Ok(_) => return false,
                Err(_) if word == "push" => push = true,
                Err(_) if word == "pop" => pop = true,
                // `pack(push, name)` gives the pushed value a name.
                Err(_) if push => {}
                Err(_) => return false,
            }
        }
        self.included.change(self.position, |state, packs| {
            if push && packs.len() < PACKS_MAX {
                packs.push(state.pack);
            }
            if pop {
                state.pack = packs.pop().flatten();
            }
            match pack {
                Some(pack) => state.pack = pack,
                None if !any => state.pack = None,
                None => {}
            }
        });
        true
    }

    /// Skips from the opening bracket at this place to the closing one; yields whether there is one.
    pub fn pass_over(&mut self, open: Span) -> bool {
        self.position = open.start as usize;
        let mut depth = 0_u32;
        loop {
            let rest = self.rest();
            match rest.bytes().next() {
                None => return false,
                Some(b'(' | b'[' | b'{') => depth += 1,
                Some(b')' | b']' | b'}') => {
                    depth = depth.saturating_sub(1);
                    if depth == 0 {
                        self.position += 1;
                        return true;
                    }
                }
                _ => {}
            }
            self.pass_over_one();
        }
    }

    /// Skips the initial value of a declaration in a header: up to a `,` or `;` outside of brackets.
    pub fn pass_over_value(&mut self) {
        let mut depth = 0_u32;
        loop {
            match self.rest().bytes().next() {
                None => return,
                Some(b',' | b';') if depth == 0 => return,
                Some(b'(' | b'[' | b'{') => depth += 1,
                Some(b')' | b']' | b'}') => depth = depth.saturating_sub(1),
                _ => {}
            }
            self.pass_over_one();
        }
    }

    /// Skips a character, a constant in quotes, a comment or a `#` line.
    fn pass_over_one(&mut self) {
        let rest = self.rest();
        let length = match rest.bytes().next() {
            Some(quote @ (b'"' | b'\'')) => {
                let mut escaped = true;
                let end = rest.bytes().position(|byte| {
                    let ends = byte == quote && !escaped;
                    escaped = byte == b'\\' && !escaped;
                    ends
                });
                end.map_or(rest.len(), |end| end + 1)
            }
            Some(b'/') if rest.starts_with("/*") => rest.find("*/").map_or(rest.len(), |end| end + 2),
            Some(b'/') if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            Some(b'#') if self.at_start_of_line() => {
                // The `#` line takes effect although it is skipped; errors in it are ignored.
                let _passed_over = self.directive();
                return;
            }
            _ => rest.chars().next().map_or(0, char::len_utf8),
        };
        self.position += length;
    }
}
