//! The processes that samples of the whole system show. None of them has a session: nothing is written into them, and
//! they are opened only to name their code.
//!
//! The kernel's records say which name a process had when it was sampled, because the process may have ended, or may
//! execute another program, when the tracer sees the sample. Everything else is read from /proc at the first sample.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

use nanoprobe_codegen::SessionConstants;
use nanoprobe_lang::program::SymbolKind;
use nanoprobe_patch::TargetAddress;
use nanoprobe_target::proc_file;
use nanoprobe_target::{Event, Memory, Process, Sample, ThreadId, UserState};

use super::compiled::Compiled;
use super::known::Known;
use super::rows::{OfFiles, Rows, frames_of};
use crate::acquire::Role;
use crate::foreign::Foreign;
use crate::identity;
use crate::kernel_names;
use crate::tracer_state::Elsewhere;

/// As many processes are known at a time. The one that was sampled longest ago goes first.
const PROCESSES_MAX: usize = 1024;
/// How often to look for new modules of a process.
const CODE_PERIOD: Duration = Duration::from_millis(100);
/// The only frame of a process that cannot be opened: it has ended, belongs to a debugger, or is the tracer itself.
const UNOPENED: &str = "[a process that cannot be looked at]";
/// The name of a process that the kernel has not told us, and that is gone.
const NAMELESS: &str = "<unknown>";

/// See the module's description.
#[derive(Default)]
pub(super) struct Processes {
    list: HashMap<i32, Seen>,
    /// What the kernel's records, and /proc at the beginning, have said of living processes.
    heard: HashMap<i32, Heard>,
    files: OfFiles,
    samples: u64,
}

/// The name and the parent of a process.
#[derive(Clone, Debug, Default)]
struct Heard {
    name: String,
    parent: Option<u32>,
    /// The process was forked by a thread whose name may differ from that of its process.
    is_guess: bool,
}

/// A process that was sampled.
#[derive(Default)]
struct Seen {
    constants: SessionConstants,
    /// The names of its code, once a clause asks for them; `None`: it cannot be opened.
    code: OnceCell<Option<Code>>,
    last: u64,
}

/// The code of a process.
struct Code {
    process: Process,
    known: RefCell<Known>,
    rows: RefCell<Rows>,
    /// The numbers of addresses, and of return addresses.
    numbers: RefCell<HashMap<(u64, bool), u64>>,
    looked: Cell<Instant>,
}

/// A thread of a process that has no session, at a sample. Its stack is walked when a clause asks for it.
pub(in crate::session) struct Sighted<'a> {
    pub(super) constants: &'a SessionConstants,
    sample: &'a Sample,
    code: &'a OnceCell<Option<Code>>,
    stack: OnceCell<Stack>,
    compiled: &'a Rc<Compiled>,
    files: &'a OfFiles,
    foreign: &'a RefCell<Foreign>,
}

/// The frames of a thread, innermost first.
#[derive(Default)]
struct Stack {
    addresses: Vec<u64>,
    numbers: Vec<u64>,
}

impl Sighted<'_> {
    fn code(&self) -> Option<&Code> {
        // A thread of the kernel has no code of its own.
        let is_program = self.sample.user.is_some() && self.sample.process > 0;
        let open = || Code::of(self.sample.process, self.compiled, self.files);
        is_program.then(|| self.code.get_or_init(open).as_ref())?
    }

    fn stack(&self) -> &Stack {
        self.stack.get_or_init(|| {
            let Some(user) = &self.sample.user else {
                return Stack::default();
            };
            let Some(code) = self.code() else {
                return Stack {
                    addresses: vec![user.register("ip")],
                    numbers: vec![self.foreign.borrow_mut().number(UNOPENED.to_owned(), None)],
                };
            };
            let addresses = code.frames(user, self.sample.thread);
            let number = |(index, frame): (usize, &u64)| code.number(*frame, index > 0, self.foreign);
            Stack {
                numbers: addresses.iter().enumerate().map(number).collect(),
                addresses,
            }
        })
    }
}

/// What a number stands for: of a module only the text before the mark is shown.
fn shown_of(text: String, kind: SymbolKind) -> String {
    match (kind, text.split_once('`')) {
        (SymbolKind::Module, Some((module, _))) => format!("{module}`"),
        _ => text,
    }
}

impl Elsewhere for Sighted<'_> {
    fn addresses(&self) -> &[u64] {
        &self.stack().addresses
    }

    fn frames(&self) -> &[u64] {
        &self.stack().numbers
    }

    fn memory(&self) -> Option<&Memory> {
        Some(self.code()?.process.memory())
    }

    fn symbol(&self, address: u64, kind: SymbolKind) -> u64 {
        let mut foreign = self.foreign.borrow_mut();
        if kernel_names::is_kernels(address) {
            let name = kernel_names::name_of(kernel_names::start_of(address, kind));
            return foreign.number(shown_of(name, kind), None);
        }
        let Some(code) = self.code().filter(|_| address != 0) else {
            return foreign.number(format!("{address:#x}"), None);
        };
        let known = code.known.borrow();
        let start = known.start_of(address, kind);
        let text = known.symbolize(start);
        foreign.number(shown_of(text, kind), known.interpreted_function(start))
    }
}

impl Processes {
    /// Reads the names of all processes.
    pub(super) fn begin(&mut self) {
        for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
                continue;
            };
            if let Some(name) = name_now(pid) {
                self.heard.entry(pid).or_insert(Heard {
                    name,
                    ..Heard::default()
                });
            }
        }
    }

    /// Notes what became of a process.
    pub(super) fn note(&mut self, event: &Event) {
        match event {
            Event::Created {
                process,
                thread,
                creator_process,
                creator,
            } if process == thread => {
                self.list.remove(process);
                let name = self.heard.get(creator_process).map(|heard| heard.name.clone());
                let heard = Heard {
                    name: name.unwrap_or_else(|| NAMELESS.to_owned()),
                    parent: u32::try_from(*creator_process).ok(),
                    is_guess: creator != creator_process,
                };
                self.heard.insert(*process, heard);
            }
            Event::Named {
                process,
                thread,
                name,
                is_program,
            } if process == thread => {
                let heard = self.heard.entry(*process).or_default();
                heard.name.clone_from(name);
                heard.is_guess = false;
                if *is_program {
                    self.list.remove(process);
                } else if let Some(seen) = self.list.get_mut(process) {
                    seen.constants.execname.clone_from(name);
                }
            }
            // The process may have other threads, and is then looked at anew.
            Event::Ended { process, thread } if process == thread => {
                self.list.remove(process);
                self.heard.remove(process);
            }
            _ => {}
        }
    }

    /// The thread of a sample.
    pub(super) fn sighted<'a>(
        &'a mut self,
        sample: &'a Sample,
        compiled: &'a Rc<Compiled>,
        foreign: &'a RefCell<Foreign>,
    ) -> Sighted<'a> {
        // Each processor has an idle task of its own, which all have the number 0.
        let key = match sample.process {
            0 => -2 - sample.processor.cast_signed(),
            process => process,
        };
        self.samples += 1;
        if !self.list.contains_key(&key) {
            self.make_room();
            let seen = self.new_process(sample);
            self.list.insert(key, seen);
        }
        let seen = self.list.entry(key).or_default();
        seen.last = self.samples;
        Sighted {
            constants: &seen.constants,
            sample,
            code: &seen.code,
            stack: OnceCell::new(),
            compiled,
            files: &self.files,
            foreign,
        }
    }

    fn make_room(&mut self) {
        if self.list.len() >= PROCESSES_MAX
            && let Some(oldest) = self.list.iter().min_by_key(|(_, seen)| seen.last).map(|(pid, _)| *pid)
        {
            self.list.remove(&oldest);
        }
    }

    fn new_process(&self, sample: &Sample) -> Seen {
        if sample.process <= 0 {
            let name = match sample.process {
                0 => format!("swapper/{}", sample.processor),
                _ => NAMELESS.to_owned(),
            };
            return Seen {
                constants: SessionConstants {
                    execname: name,
                    ..SessionConstants::default()
                },
                ..Seen::default()
            };
        }
        let heard = self.heard.get(&sample.process);
        let now = || name_now(sample.process);
        let execname = match heard {
            Some(heard) if heard.is_guess => now().unwrap_or_else(|| heard.name.clone()),
            Some(heard) => heard.name.clone(),
            None => now().unwrap_or_else(|| NAMELESS.to_owned()),
        };
        let pid = sample.process as u32;
        let mut constants = SessionConstants {
            ancestors: identity::ancestors_of(pid),
            ..identity::constants_of(pid, execname)
        };
        if let (0, Some(parent)) = (constants.ppid, heard.and_then(|heard| heard.parent)) {
            constants.ppid = parent;
        }
        Seen {
            constants,
            ..Seen::default()
        }
    }
}

impl Code {
    /// `None`: the process has ended, may not be opened, or is no 64-bit program.
    fn of(pid: i32, compiled: &Rc<Compiled>, files: &OfFiles) -> Option<Code> {
        let process = Process::open(pid).ok()?;
        let role = Role::Member {
            root: pid,
            is_bare: false,
        };
        let mut known = Known::new(compiled.clone(), Some(process.clone()), role).ok()?;
        known.update_modules().ok()?;
        Some(Code {
            process,
            known: RefCell::new(known),
            rows: RefCell::new(Rows::shared(files.clone())),
            numbers: RefCell::default(),
            looked: Cell::new(Instant::now()),
        })
    }

    fn frames(&self, user: &UserState, thread: ThreadId) -> Vec<u64> {
        let mut known = self.known.borrow_mut();
        let pc = TargetAddress(user.register("ip"));
        if known.modules.find(pc).is_none() && self.looked.get().elapsed() > CODE_PERIOD {
            self.looked.set(Instant::now());
            // An error: the process has ended.
            let _ = known.update_modules();
        }
        frames_of(&known, &mut self.rows.borrow_mut(), None, user, thread)
    }

    /// The number that stands for a frame's name.
    fn number(&self, address: u64, is_return: bool, foreign: &RefCell<Foreign>) -> u64 {
        let known = self.known.borrow();
        *self
            .numbers
            .borrow_mut()
            .entry((address, is_return))
            .or_insert_with(|| {
                let is_resolved = !known.compiled().options().printing.no_names;
                let text = match is_return {
                    _ if !is_resolved => known.place_in_mapping(address),
                    _ if known.interpreted_function(address).is_some() => known.symbolize(address),
                    _ if known.is_nameless_code(address - u64::from(is_return)) => {
                        nanoprobe_export::NAMELESS_CODE.to_owned()
                    }
                    true => known.symbolize_return(address),
                    false => known.symbolize(address),
                };
                foreign.borrow_mut().number(text, known.interpreted_function(address))
            })
    }
}

/// The name that a process has now.
fn name_now(pid: i32) -> Option<String> {
    let name = proc_file::read(format!("/proc/{pid}/comm")).ok()?;
    let name = name.strip_suffix(b"\n").unwrap_or(&name);
    Some(String::from_utf8_lossy(name).into_owned())
}
