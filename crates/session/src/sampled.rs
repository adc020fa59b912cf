//! The data about a thread of the target in `profile-...` clauses: the content of one sample. Pure.

use std::mem::offset_of;

use nanoprobe_arena::layout::Context;
use nanoprobe_arena::{ControlBlock, Mapping, Memory as _};
use nanoprobe_codegen::SessionConstants;
use nanoprobe_lang::interpret::Value;
use nanoprobe_lang::program::OtherPart;
use nanoprobe_target::Sample;

use crate::drain::context_offset;
use crate::layout::ArenaLayout;

/// The thread and its sample, for which a clause is fired.
#[derive(Clone, Copy, Debug)]
pub struct SampledThread<'a> {
    /// The sample.
    pub sample: &'a Sample,
    /// The value of `tid`: the program's own number of the thread.
    pub tid: u32,
    /// The stack, innermost frame first; empty where no clause asks for it.
    pub frames: &'a [u64],
    /// The system call in which the thread sleeps.
    pub call: Option<u64>,
    /// The thread that is woken, or that runs next.
    pub other: Option<Other<'a>>,
    /// The values that stay the same for the whole session.
    pub constants: &'a SessionConstants,
}

/// The name of another process that is not known.
const UNKNOWN: &[u8] = b"<unknown>";

/// A thread beside the one for which a clause fires: its number, and its process.
pub type Other<'a> = (u32, Option<&'a SessionConstants>);

/// What a clause of `sched` knows of another thread; -1 and `<unknown>` where it is not known.
pub fn of_other(other: Option<Other<'_>>, part: OtherPart) -> Value {
    let (tid, process) = match other {
        Some((tid, process)) => (i64::from(tid), process),
        None => (-1, None),
    };
    let Some(process) = process else {
        return match part {
            OtherPart::Thread => Value::Integer(tid),
            _ if part.is_text() => Value::String(UNKNOWN.to_vec()),
            _ => Value::Integer(-1),
        };
    };
    match part {
        OtherPart::Thread => Value::Integer(tid),
        OtherPart::Process => Value::Integer(i64::from(process.pid)),
        OtherPart::Parent => Value::Integer(i64::from(process.ppid)),
        OtherPart::User => Value::Integer(i64::from(process.uid)),
        OtherPart::Group => Value::Integer(i64::from(process.gid)),
        OtherPart::Name => Value::String(process.execname.clone().into_bytes()),
        OtherPart::Arguments => Value::String(process.arguments.clone().into_bytes()),
    }
}

impl SampledThread<'_> {
    /// The register with a number of `uregs[]`, as illumos numbers them (`<sys/regset.h>`). `None`: a sample does not
    /// have this register.
    pub fn register(&self, number: i64) -> Option<i64> {
        const NAMES: [&str; 22] = [
            "r15", "r14", "r13", "r12", "r11", "r10", "r9", "r8", "di", "si", "bp", "bx", "dx", "cx", "ax", "", "",
            "ip", "cs", "flags", "sp", "ss",
        ];
        let user = self.sample.user.as_ref()?;
        match number {
            // The data segments are null, and GS is not used.
            22..=25 | 27 => Some(0),
            _ => {
                let name = NAMES.get(usize::try_from(number).ok()?)?;
                Some(user.register(name) as i64)
            }
        }
    }
}

/// `arg0` and `arg1` of a profile probe: the program counter in the kernel and in the program. The counter of the side
/// on which the thread did not run is 0.
pub fn arguments(sample: &Sample) -> [i64; 10] {
    const KERNEL: u64 = 1 << 63;
    let mut arguments = [0; 10];
    let index = usize::from(sample.executed & KERNEL == 0);
    if let Some(argument) = arguments.get_mut(index) {
        *argument = sample.executed as i64;
    }
    arguments
}

/// The offset of a thread's context in the arena. `None`: the thread has hit no probe yet.
pub fn context_of(memory: &Mapping, layout: &ArenaLayout, tid: u32) -> Option<u64> {
    let contexts = ControlBlock::open(memory).ok()?.contexts_in_use().ok()?;
    let mut offsets = (0..u64::from(contexts)).map(|index| context_offset(layout, index));
    offsets.find(|offset| memory.load_u32(offset + offset_of!(Context, tid) as u64) == Ok(tid))
}

#[cfg(test)]
mod tests {
    use nanoprobe_target::UserState;

    use super::*;

    fn sample(executed: u64) -> Sample {
        let mut user = UserState::default();
        for (register, value) in user.registers.iter_mut().zip(100..) {
            *register = value;
        }
        Sample {
            process: 1,
            thread: 2,
            processor: 3,
            time_ns: 4,
            executed,
            kernel: Vec::new(),
            user: Some(user),
        }
    }

    #[test]
    fn registers_have_illumos_numbers() {
        let sample = sample(0);
        let thread = SampledThread {
            sample: &sample,
            tid: 2,
            frames: &[7, 8, 9],
            call: None,
            other: None,
            constants: &SessionConstants::default(),
        };
        let numbers = [
            (0, 119),
            (7, 112),
            (8, 105),
            (14, 100),
            (17, 108),
            (19, 109),
            (20, 107),
            (15, 0),
            (27, 0),
        ];
        for (number, value) in numbers {
            assert_eq!(thread.register(number), Some(value), "R_ number {number}");
        }
        assert_eq!(thread.register(26), None, "the thread pointer is in no sample");
        assert_eq!((thread.register(-1), thread.register(28)), (None, None));
    }

    #[test]
    fn another_thread_may_be_unknown() {
        let process = SessionConstants {
            pid: 7,
            execname: "looper".to_owned(),
            ..SessionConstants::default()
        };
        let parts = [OtherPart::Thread, OtherPart::Process, OtherPart::Name];
        let of = |other: Option<Other<'_>>| parts.map(|part| of_other(other, part));
        let (number, text) = (Value::Integer, |text: &str| Value::String(text.as_bytes().to_vec()));
        assert_eq!(of(Some((8, Some(&process)))), [number(8), number(7), text("looper")]);
        assert_eq!(of(Some((8, None))), [number(8), number(-1), text("<unknown>")]);
        assert_eq!(of(None), [number(-1), number(-1), text("<unknown>")]);
    }

    #[test]
    fn what_was_executed_is_the_kernels_or_the_programs() {
        assert_eq!(arguments(&sample(0x40_1000)).get(..2), Some(&[0, 0x40_1000][..]));
        let kernel = 0xffff_ffff_8100_0000;
        assert_eq!(arguments(&sample(kernel)).get(..2), Some(&[kernel as i64, 0][..]));
    }
}
