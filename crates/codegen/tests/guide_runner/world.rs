//! The world of a guide program: variables in maps, and a piece of memory that stands for the target's.

use std::collections::HashMap;
use std::sync::LazyLock;

use nanoprobe_export::Snapshot;
use nanoprobe_lang::interpret::{Fault, FaultKind, Value, World};
use nanoprobe_lang::program::{AggregationId, Builtin, Program, Scope, Side, VariableId};

use crate::support::machine::TID;

/// The target's memory, by offset:
///
/// ```text
///   0  "hello, world"        40  127.0.0.1                  64  int 0, 1, ... 9
///  16  int -5, int 7         48  fe80::214:4fff:fe0b:76c8  104  "/usr/local/bin"
///  24  long 1 << 40          32  its own address           128  bytes 0, 1, ... 63
/// ```
pub static MEMORY: LazyLock<Box<[u8; 256]>> = LazyLock::new(|| {
    let mut memory = Box::new([0; 256]);
    let address = memory.as_ptr() as u64;
    let mut put = |at: usize, bytes: &[u8]| memory[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, b"hello, world");
    put(16, &(-5i32).to_le_bytes());
    put(20, &7i32.to_le_bytes());
    put(24, &(1i64 << 40).to_le_bytes());
    put(32, &address.to_le_bytes());
    put(40, &[127, 0, 0, 1]);
    put(
        48,
        &"fe80::214:4fff:fe0b:76c8"
            .parse::<std::net::Ipv6Addr>()
            .unwrap()
            .octets(),
    );
    for index in 0..10 {
        put(64 + 4 * index, &(index as i32).to_le_bytes());
    }
    put(104, b"/usr/local/bin");
    let bytes: Vec<u8> = (0..64).collect();
    put(128, &bytes);
    memory
});

pub fn arguments() -> [u64; 6] {
    [MEMORY.as_ptr() as u64, 1, 2, 3, 4, 5]
}

/// For an address in [`MEMORY`], its offset there; any other address unchanged.
pub fn relative(address: u64) -> u64 {
    match address.checked_sub(MEMORY.as_ptr() as u64) {
        Some(offset) if offset <= 4096 => offset,
        _ => address,
    }
}

/// The provider, module, function and name of the probe of an event.
pub fn names(event: &str) -> [&str; 4] {
    match event {
        "entry" => ["pid1234", "a.out", "work", "entry"],
        other => ["dtrace", "", "", other],
    }
}

type PlaceKey = (Scope, VariableId, Option<Vec<u8>>);

/// The state of a speculation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speculation {
    Free,
    Taken { bytes: u64 },
    Ended,
}

pub struct GuideWorld<'a> {
    program: &'a Program,
    variables: HashMap<PlaceKey, Value>,
    pub aggregates: Snapshot,
    pub epid: u32,
    /// The speculations that are taken, and the bytes of their records.
    pub speculations: Vec<Speculation>,
    speculation_bytes: u64,
    event: String,
    arguments: [u64; 6],
}

impl<'a> GuideWorld<'a> {
    pub fn new(program: &'a Program, speculations: usize, speculation_bytes: u64) -> GuideWorld<'a> {
        GuideWorld {
            program,
            variables: HashMap::new(),
            aggregates: Snapshot::new(),
            epid: 0,
            speculations: vec![Speculation::Free; speculations],
            speculation_bytes,
            event: String::new(),
            arguments: [0; 6],
        }
    }

    pub fn enter(&mut self, event: &str, arguments: [u64; 6]) {
        self.event = event.to_owned();
        self.arguments = arguments;
    }
}

impl World for GuideWorld<'_> {
    fn builtin(&mut self, builtin: Builtin) -> Result<Value, Fault> {
        let names = names(&self.event);
        let text = |text: &str| Ok(Value::String(text.as_bytes().to_vec()));
        let number = |value: i64| Ok(Value::Integer(value));
        match builtin {
            Builtin::Argument(index) => match self.arguments.get(usize::from(index)) {
                Some(value) => number(*value as i64),
                None => Err(Fault::new(FaultKind::Illegal)),
            },
            Builtin::Pid | Builtin::TargetPid => number(100),
            Builtin::Ppid => number(99),
            Builtin::Tid => number(i64::from(TID)),
            Builtin::Uid => number(1000),
            Builtin::Gid => number(1001),
            Builtin::EffectiveUid => number(1002),
            Builtin::EffectiveGid => number(1003),
            Builtin::SystemCall => number(-1),
            Builtin::Other(part) if part.is_text() => text(""),
            Builtin::Other(_) => number(0),
            Builtin::ProcessGroup => number(98),
            Builtin::ProcessSession => number(97),
            Builtin::ExecName => text("looper"),
            Builtin::ProcessArguments => text("./looper 7"),
            Builtin::StartArgumentCount => number(2),
            Builtin::StartArguments => number(0x1008),
            Builtin::StartEnvironment => number(0x1020),
            Builtin::ProbeProvider => text(names[0]),
            Builtin::ProbeModule => text(names[1]),
            Builtin::ProbeFunction => text(names[2]),
            Builtin::ProbeName => text(names[3]),
            Builtin::Timestamp => number(1_000_000),
            Builtin::VirtualTimestamp => number(1000),
            Builtin::WallTimestamp => number(1_000_000_000_000_000_000),
            // The code of the machine has no C library.
            Builtin::Cpu | Builtin::UserCaller | Builtin::Errno | Builtin::Goroutine => number(0),
            // The stack of the machine has no unwinding table.
            Builtin::UserStackDepth => number(1),
            Builtin::Stack(_) => number(0),
            Builtin::EnabledProbeId => number(i64::from(self.epid)),
            Builtin::ProbeId => number(1),
        }
    }

    fn register(&mut self, _: i64) -> Result<i64, Fault> {
        Err(Fault::new(FaultKind::Illegal))
    }

    fn get(&mut self, scope: Scope, variable: VariableId, key: Option<&[u8]>) -> Option<Value> {
        self.variables.get(&(scope, variable, key.map(<[u8]>::to_vec))).cloned()
    }

    fn set(&mut self, scope: Scope, variable: VariableId, key: Option<&[u8]>, value: Option<Value>) {
        let place = (scope, variable, key.map(<[u8]>::to_vec));
        match value {
            Some(value) => self.variables.insert(place, value),
            None => self.variables.remove(&place),
        };
    }

    fn read(&mut self, address: u64, bytes: &mut [u8]) -> Result<(), Fault> {
        let start = address.checked_sub(MEMORY.as_ptr() as u64);
        let start = start.and_then(|start| usize::try_from(start).ok());
        let found = start.and_then(|start| MEMORY.get(start..start.checked_add(bytes.len())?));
        bytes.copy_from_slice(found.ok_or(Fault::bad_address(address))?);
        Ok(())
    }

    fn read_string(&mut self, address: u64, limit: usize) -> Result<Vec<u8>, Fault> {
        let start = address.checked_sub(MEMORY.as_ptr() as u64);
        let start = start.and_then(|start| usize::try_from(start).ok());
        let found = start
            .and_then(|start| MEMORY.get(start..))
            .ok_or(Fault::bad_address(address))?;
        Ok(found
            .iter()
            .copied()
            .take_while(|byte| *byte != 0)
            .take(limit)
            .collect())
    }

    fn path(&mut self, descriptor: i64) -> Result<Vec<u8>, Fault> {
        let what = match descriptor {
            nanoprobe_lang::program::CURRENT_FOLDER => "cwd".to_owned(),
            nanoprobe_lang::program::ROOT_FOLDER => "root".to_owned(),
            _ => format!("fd/{descriptor}"),
        };
        let found = std::fs::read_link(format!("/proc/thread-self/{what}"));
        Ok(found.map_or_else(
            |_| b"<none>".to_vec(),
            |path| path.into_os_string().into_encoded_bytes(),
        ))
    }

    fn thread_name(&mut self) -> Result<Vec<u8>, Fault> {
        let name = std::fs::read_to_string("/proc/thread-self/comm").unwrap();
        Ok(name.trim_end_matches('\n').as_bytes().to_vec())
    }

    fn is_progeny_of(&mut self, pid: i64) -> bool {
        [100, 99, 1].contains(&pid)
    }

    fn speculation(&mut self) -> i64 {
        let mut numbered = self.speculations.iter_mut().zip(1..);
        match numbered.find(|(one, _)| **one == Speculation::Free) {
            Some((free, number)) => {
                *free = Speculation::Taken { bytes: 0 };
                number
            }
            None => 0,
        }
    }

    fn speculate(&mut self, id: i64, more: u64) -> bool {
        let index = usize::try_from(id - 1).ok();
        match index.and_then(|index| self.speculations.get_mut(index)) {
            Some(Speculation::Taken { bytes }) if *bytes + more <= self.speculation_bytes => {
                *bytes += more;
                true
            }
            _ => false,
        }
    }

    fn end_speculation(&mut self, id: i64) -> bool {
        let index = usize::try_from(id - 1).ok();
        match index.and_then(|index| self.speculations.get_mut(index)) {
            Some(taken @ Speculation::Taken { .. }) => {
                *taken = Speculation::Ended;
                true
            }
            _ => false,
        }
    }

    fn speculations(&self) -> u64 {
        self.speculations.len() as u64
    }

    fn stack(&mut self, _: Side, _: u32) -> Vec<u64> {
        Vec::new()
    }

    fn random(&mut self) -> i64 {
        4
    }

    fn aggregate(&mut self, aggregation: AggregationId, key: &[u8], value: i64, weight: i64) {
        assert!(self.aggregates.update(self.program, aggregation, key, value, weight));
    }
}
