//! Walking a sampled thread's stack, by the same rows as `agent/unwind.c`, which walks one in the thread itself and
//! explains the theory. Pure.
//!
//! A sample holds a part of the stack, and the walk ends where that part ends. A thread may be anywhere, even in
//! the middle of a prologue, and its program counter is exact. Where no row covers the program counter, the chain
//! of rbp is followed.

use nanoprobe_arena::layout::{CFA_PLT, CFA_RBP, CFA_RBP_DEREF, CFA_RSP, CFA_SIGNAL, CFA_UNKNOWN, UnwindRow};
use nanoprobe_runtimes::Cursor;
use nanoprobe_symbols::{RBP_AT_CFA, RBP_AT_RBP, RBP_UNDEFINED};
use nanoprobe_target::UserState;

/// As many frames as a `ustack()` may have.
const FRAMES_MAX: usize = 2048;
/// The addresses that user memory may have.
const ADDRESSES: std::ops::RangeInclusive<u64> = 4096..=(1 << 56) - 1;
/// Where rt_sigreturn finds rbp, from the stack pointer after the handler has returned.
const UCONTEXT_RBP: u64 = 120;
const UCONTEXT_RSP: u64 = 160;
const UCONTEXT_RIP: u64 = 168;

/// The tracer's knowledge of the code at an address.
pub enum FrameRule {
    /// No module covers the address.
    Nothing,
    /// A module covers the address, and this row applies there.
    Row(UnwindRow),
}

/// The runtime that made the code of a frame.
pub enum Made {
    /// No runtime that has its own kind of frames.
    ByNone,
    /// Such a runtime, which knows the caller, or does not.
    By(Option<Cursor>),
}

/// A frame of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NativeFrame {
    /// The program counter: the frame's return address, or the innermost frame's instruction.
    pub pc: u64,
    /// An address of the instruction that was executed.
    pub at: u64,
    /// The stack pointer in the frame.
    pub low: u64,
    /// The stack pointer after its return; `None`: the walk ended here.
    pub high: Option<u64>,
    /// The frame pointer in it.
    pub rbp: u64,
    /// The description of its code.
    pub code: Described,
}

/// The description of a frame's code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Described {
    /// Its module describes it.
    Fully,
    /// No description, though a module has the code: the frame is linked by rbp.
    NotAtAll,
    /// No description, and the code is in no module: the frame is linked by rbp.
    InNoModule,
    /// The runtime that has made it describes it.
    ByRuntime,
}

impl NativeFrame {
    /// The frame as the walk came to it.
    pub fn cursor(&self) -> Cursor {
        Cursor {
            pc: self.pc,
            rsp: self.low,
            rbp: self.rbp,
            exact: self.pc == self.at,
        }
    }
}

/// The frames of a thread, innermost first. `made` yields the caller of a frame that belongs to a runtime which has its
/// own kind of frames.
pub fn walk(
    user: &UserState,
    mut known: impl FnMut(u64) -> FrameRule,
    mut made: impl FnMut(&Cursor) -> Made,
) -> Vec<NativeFrame> {
    let mut cursor = Cursor {
        pc: user.register("ip"),
        rsp: user.register("sp"),
        rbp: user.register("bp"),
        exact: true,
    };
    let mut frames = Vec::new();
    while frames.len() < FRAMES_MAX && ADDRESSES.contains(&cursor.pc) {
        let at = cursor.at();
        let (next, code) = match made(&cursor) {
            Made::By(caller) => (caller, Described::ByRuntime),
            Made::ByNone => {
                let rule = known(at);
                let code = match &rule {
                    FrameRule::Nothing => Described::InNoModule,
                    FrameRule::Row(row) if row.cfa == CFA_UNKNOWN => Described::NotAtAll,
                    FrameRule::Row(_) => Described::Fully,
                };
                (step(user, &cursor, &rule), code)
            }
        };
        frames.push(NativeFrame {
            pc: cursor.pc,
            at,
            low: cursor.rsp,
            high: next.as_ref().map(|next| next.rsp),
            rbp: cursor.rbp,
            code,
        });
        match next {
            Some(next) => cursor = next,
            None => break,
        }
    }
    frames
}

fn step(user: &UserState, cursor: &Cursor, known: &FrameRule) -> Option<Cursor> {
    let row = match known {
        FrameRule::Row(row) if row.cfa != CFA_UNKNOWN => row,
        _ if cursor.rbp < cursor.rsp => return None,
        _ => {
            let rbp = user.stack_word(cursor.rbp)?;
            return caller(user, cursor, cursor.rbp.checked_add(16)?, rbp);
        }
    };
    let offset = i64::from(row.cfa_offset) as u64;
    let cfa = match row.cfa {
        CFA_RSP => cursor.rsp.wrapping_add(offset),
        CFA_RBP => cursor.rbp.wrapping_add(offset),
        CFA_PLT => cursor.rsp.wrapping_add(if cursor.pc & 15 >= 11 { 16 } else { 8 }),
        CFA_RBP_DEREF => user.stack_word(cursor.rbp.wrapping_add(offset))?,
        CFA_SIGNAL => {
            let word = |offset: u64| user.stack_word(cursor.rsp.checked_add(offset)?);
            return Some(Cursor {
                pc: word(UCONTEXT_RIP)?,
                rsp: word(UCONTEXT_RSP)?,
                rbp: word(UCONTEXT_RBP)?,
                exact: true,
            });
        }
        _ => return None,
    };
    let rbp_offset = i64::from(row.rbp_offset) as u64;
    let rbp = match row.rbp {
        RBP_AT_CFA => user.stack_word(cfa.wrapping_add(rbp_offset))?,
        RBP_AT_RBP if cursor.rbp != 0 => user.stack_word(cursor.rbp.wrapping_add(rbp_offset))?,
        RBP_AT_RBP => return None,
        RBP_UNDEFINED => 0,
        _ => cursor.rbp,
    };
    caller(user, cursor, cfa, rbp)
}

fn caller(user: &UserState, cursor: &Cursor, cfa: u64, rbp: u64) -> Option<Cursor> {
    if cfa <= cursor.rsp || !cfa.is_multiple_of(8) {
        return None;
    }
    Some(Cursor {
        pc: user.stack_word(cfa - 8)?,
        rsp: cfa,
        rbp,
        exact: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SP: u64 = 0x7000;

    fn walk(user: &UserState, known: impl FnMut(u64) -> FrameRule) -> Vec<u64> {
        let frames = super::walk(user, known, |_| Made::ByNone);
        frames.iter().map(|frame| frame.pc).collect()
    }

    fn thread(ip: u64, bp: u64, words: &[u64]) -> UserState {
        let mut user = UserState::default();
        for (name, value) in [("ip", ip), ("bp", bp), ("sp", SP)] {
            let index = UserState::NAMES
                .iter()
                .position(|known| *known == name)
                .expect("a register");
            user.registers[index] = value;
        }
        user.stack = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        user
    }

    fn row(cfa: u8, cfa_offset: i32, rbp: u8, rbp_offset: i16) -> FrameRule {
        FrameRule::Row(UnwindRow {
            pc: 0,
            cfa_offset,
            rbp_offset,
            cfa,
            rbp,
        })
    }

    #[test]
    fn rows_lead_from_frame_to_frame() {
        // 0x1000: 16 bytes of locals, rbp saved below the return
        // address; 0x2001: called, a plain frame; 0x3001: unknown.
        let user = thread(0x1000, 5, &[1, 2, SP + 0x30, 0x2001, 3, 0x3001, SP + 0x40, 0x4001]);
        let mut asked = Vec::new();
        let frames = walk(&user, |pc| {
            asked.push(pc);
            match pc {
                0x1000 => row(CFA_RSP, 32, RBP_AT_CFA, -16),
                0x2000 => row(CFA_RSP, 16, 0, 0),
                _ => FrameRule::Nothing,
            }
        });
        assert_eq!(frames, [0x1000, 0x2001, 0x3001, 0x4001]);
        assert_eq!(
            asked.get(..3),
            Some(&[0x1000, 0x2000, 0x3000][..]),
            "the row of a call is the call's own"
        );
    }

    #[test]
    fn nonsense_ends_the_walk() {
        let user = thread(0x1000, 0, &[0x2001, 0x3001]);
        assert_eq!(walk(&user, |_| FrameRule::Nothing), [0x1000], "no chain");
        assert_eq!(
            walk(&user, |_| row(CFA_RSP, 0, 0, 0)),
            [0x1000],
            "a frame that does not rise"
        );
        assert_eq!(
            walk(&user, |_| row(CFA_RSP, 12, 0, 0)),
            [0x1000],
            "one that is not aligned"
        );
        assert_eq!(
            walk(&user, |_| row(CFA_RSP, 8, 0, 0)),
            [0x1000, 0x2001, 0x3001],
            "the sample's end"
        );
        assert_eq!(walk(&user, |_| row(CFA_RSP, i32::MIN, 0, 0)), [0x1000]);
        assert!(walk(&thread(0, 0, &[]), |_| FrameRule::Nothing).is_empty());
    }

    #[test]
    fn a_signal_frame_leads_to_what_was_interrupted() {
        let mut words = [0_u64; 40];
        words[15] = 0;
        words[20] = SP + 0x100;
        words[21] = 0x5000;
        words[32] = 0x6001;
        let user = thread(0x1000, 0, &words);
        let mut asked = Vec::new();
        let frames = walk(&user, |pc| {
            asked.push(pc);
            match pc {
                0x1000 => row(CFA_SIGNAL, 0, 0, 0),
                _ => row(CFA_RSP, 8, 0, 0),
            }
        });
        assert_eq!(frames.get(..3), Some(&[0x1000, 0x5000, 0x6001][..]));
        assert_eq!(asked.get(1), Some(&0x5000), "the interrupted instruction's own address");
    }
}
