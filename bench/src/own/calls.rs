//! The C side ([`programs/own.c`]) and libnanoprobe's interface, as this program calls them.

use std::ffi::{c_char, c_double, c_int, c_long, c_uint, c_void};
use std::ptr::{null, null_mut};
use std::sync::Barrier;

use anyhow::{Context, Result, ensure};
use nanoprobe::c::{JumperProbe, PreHandler, Probe, Registers, ReturnHandler, ReturnInstance, ReturnProbe};

use crate::statistics::median;

/// `NP_PROBE_NO_SIMD`: the handlers leave the SIMD registers alone.
pub const NO_SIMD: c_uint = 2;
/// `NP_PROBE_TRAP`.
pub const TRAP: c_uint = 4;
/// `NP_PROBE_JUMP_ONLY`.
pub const JUMP_ONLY: c_uint = 8;

/// The handlers, by index in `bench_own_handlers`.
#[derive(Clone, Copy, Debug)]
pub enum Handler {
    /// Lists 1 and 3.
    NoOp = 0,
    /// Lists 8 and 10: record an event of 64 bytes.
    Record = 1,
    /// Record an event of 64 bytes without the clock.
    RecordWithoutClock = 2,
    /// A count under one lock that all threads share.
    CountLocked = 3,
    /// Spends the time that [`set_spin`] has set.
    Spin = 4,
    /// Uses a vector register.
    Vectors = 5,
}

/// The mirror functions, by index in `bench_own_jumpers`.
#[derive(Clone, Copy, Debug)]
pub enum Jumper {
    /// List 2.
    NoOp = 0,
    /// List 9.
    Record = 1,
}

/// The functions that are called in a loop, by index in `functions`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Function {
    /// Begins with `push`, and does hardly anything.
    Small = 0,
    /// The system call gettimeofday.
    GetTimeOfDay = 1,
}

#[allow(missing_docs, reason = "nanoprobe.h and own.c say what each is")]
unsafe extern "C" {
    fn np_register_probe(probe: *mut Probe) -> c_int;
    fn np_unregister_probe(probe: *mut Probe) -> c_int;
    fn np_probe_hits(probe: *const Probe) -> u64;
    fn np_probe_tactic(probe: *const Probe) -> c_int;
    fn np_register_jprobe(probe: *mut JumperProbe) -> c_int;
    fn np_unregister_jprobe(probe: *mut JumperProbe) -> c_int;
    fn np_register_retprobe(probe: *mut ReturnProbe) -> c_int;
    fn np_unregister_retprobe(probe: *mut ReturnProbe) -> c_int;
    fn np_last_error() -> *const c_char;

    static bench_own_handlers: [PreHandler; 6];
    static bench_own_jumpers: [usize; 2];
    fn bench_own_function(text: *const c_char, value: c_long) -> c_long;
    fn bench_own_gettimeofday(text: *const c_char, value: c_long) -> c_long;
    fn bench_own_begin(thread: c_long);
    fn bench_own_batch(function: c_int, with_hook: c_int, calls: c_long) -> c_double;
    fn bench_own_set_hook(on: c_int);
    fn bench_own_set_spin(ticks: u64);
    fn bench_own_events() -> u64;
    fn bench_own_locked() -> u64;
}

impl Function {
    fn address(self) -> *mut c_void {
        match self {
            Function::Small => bench_own_function as *mut c_void,
            Function::GetTimeOfDay => bench_own_gettimeofday as *mut c_void,
        }
    }
}

/// How a return probe sees the return: `enum np_retprobe_form`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Every `ret` is a probe.
    Exits = 1,
    /// The return address is replaced.
    Address = 2,
}

/// A registered probe; dropping it unregisters it.
pub struct Registered(Structure);

/// The library's structure, which stays at its address.
enum Structure {
    Plain(Box<Probe>),
    Jumper(Box<JumperProbe>),
    Return(Box<ReturnProbe>),
}

unsafe extern "C" fn no_op_return(_: *mut ReturnInstance, _: *mut Registers) -> c_int {
    0
}

impl Registered {
    /// Registers a plain probe on a function's entry.
    pub fn probe(function: Function, handler: Handler, flags: c_uint) -> Result<Registered> {
        // SAFETY: a constant table of C's.
        let handler = unsafe { bench_own_handlers[handler as usize] };
        Registered::plain(function.address(), 0, Some(handler), None, flags)
    }

    /// Registers a plain probe anywhere.
    pub fn plain(
        address: *mut c_void,
        offset: usize,
        pre_handler: Option<PreHandler>,
        post_handler: Option<nanoprobe::c::PostHandler>,
        flags: c_uint,
    ) -> Result<Registered> {
        let mut probe = Box::new(blank(address, flags));
        probe.offset = offset;
        probe.pre_handler = pre_handler;
        probe.post_handler = post_handler;
        // SAFETY: a whole structure in its box, where it stays until it is taken back.
        let status = unsafe { np_register_probe(&mut *probe) };
        ensure!(status == 0, "{}", last_error());
        Ok(Registered(Structure::Plain(probe)))
    }

    /// Registers a return probe with a handler that does nothing.
    pub fn returning(function: Function, form: Form, flags: c_uint) -> Result<Registered> {
        Registered::returning_at(function.address(), 0, None, no_op_return, form, flags)
    }

    /// Registers a return probe anywhere.
    pub fn returning_at(
        address: *mut c_void,
        offset: usize,
        entry_handler: Option<ReturnHandler>,
        handler: ReturnHandler,
        form: Form,
        flags: c_uint,
    ) -> Result<Registered> {
        let mut probe = Box::new(ReturnProbe {
            probe: blank(address, flags),
            handler: Some(handler),
            entry_handler,
            data_size: 0,
            maxactive: 0,
            form: form as c_int,
        });
        probe.probe.size = size_of::<ReturnProbe>();
        probe.probe.offset = offset;
        // SAFETY: as above.
        let status = unsafe { np_register_retprobe(&mut *probe) };
        ensure!(status == 0, "{}", last_error());
        Ok(Registered(Structure::Return(probe)))
    }

    /// Registers a jumper probe.
    pub fn jumper(function: Function, jumper: Jumper, flags: c_uint) -> Result<Registered> {
        // SAFETY: a constant table of C's.
        let entry = unsafe { bench_own_jumpers[jumper as usize] };
        Registered::jumper_at(function.address(), 0, entry as *mut c_void, flags)
    }

    /// Registers a jumper probe anywhere.
    pub fn jumper_at(address: *mut c_void, offset: usize, entry: *mut c_void, flags: c_uint) -> Result<Registered> {
        let mut probe = Box::new(JumperProbe {
            probe: blank(address, flags),
            entry,
        });
        probe.probe.size = size_of::<JumperProbe>();
        probe.probe.offset = offset;
        // SAFETY: as above.
        let status = unsafe { np_register_jprobe(&mut *probe) };
        ensure!(status == 0, "{}", last_error());
        Ok(Registered(Structure::Jumper(probe)))
    }

    fn probe_of(&self) -> &Probe {
        match &self.0 {
            Structure::Plain(probe) => probe,
            Structure::Jumper(jumper) => &jumper.probe,
            Structure::Return(returning) => &returning.probe,
        }
    }

    /// The number of the probe's hits.
    pub fn hits(&self) -> u64 {
        // SAFETY: a registered structure.
        unsafe { np_probe_hits(self.probe_of()) }
    }

    /// Whether the probe is a trap; `None` for a return probe, which may have several patches.
    pub fn is_trap(&self) -> Option<bool> {
        // SAFETY: a registered structure.
        let tactic = unsafe { np_probe_tactic(self.probe_of()) };
        (!matches!(self.0, Structure::Return(_))).then_some(tactic == 5)
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        // SAFETY: a registered structure, of the kind it was registered as.
        unsafe {
            match &mut self.0 {
                Structure::Plain(probe) => np_unregister_probe(&mut **probe),
                Structure::Jumper(jumper) => np_unregister_jprobe(&mut **jumper),
                Structure::Return(returning) => np_unregister_retprobe(&mut **returning),
            };
        }
    }
}

fn blank(address: *mut c_void, flags: c_uint) -> Probe {
    Probe {
        size: size_of::<Probe>(),
        addr: address,
        symbol: null(),
        offset: 0,
        pre_handler: None,
        post_handler: None,
        fault_handler: None,
        flags,
        user: null_mut(),
        reserved: [null_mut(); 4],
    }
}

fn last_error() -> String {
    // SAFETY: a string of the library's, valid until this thread's next call.
    let text = unsafe { std::ffi::CStr::from_ptr(np_last_error()) };
    text.to_string_lossy().into_owned()
}

/// Pins this thread, and tells the C side its processor.
pub fn begin(thread: usize) {
    // SAFETY: changes only this thread's affinity, and our own numbers.
    unsafe { bench_own_begin(thread as c_long) };
}

/// Turns the compiled-in hook on or off.
pub fn set_hook(on: bool) {
    // SAFETY: one flag.
    unsafe { bench_own_set_hook(c_int::from(on)) };
}

/// How many events were recorded so far.
pub fn events() -> u64 {
    // SAFETY: reads a number.
    unsafe { bench_own_events() }
}

/// How often the lock was taken.
pub fn locked() -> u64 {
    // SAFETY: reads a number.
    unsafe { bench_own_locked() }
}

/// The least time of a batch, in ns.
const BATCH_NS: f64 = 1_500_000.0;
const BATCHES: usize = 5;

/// The cost of a call in ns of this thread's processor time: the median of some batches.
///
/// # Errors
/// A call returned a wrong value.
pub fn cost(function: Function, with_hook: bool) -> Result<f64> {
    let batch = |calls: c_long| -> Result<f64> {
        // SAFETY: the function has no other effect than its result.
        let cost = unsafe { bench_own_batch(function as c_int, c_int::from(with_hook), calls) };
        ensure!(cost >= 0.0, "a probed function returned something else");
        Ok(cost)
    };
    let mut calls = 500;
    while batch(calls)? * (calls as f64) < BATCH_NS {
        calls *= 2;
    }
    let batches = (0..BATCHES).map(|_| batch(calls)).collect::<Result<Vec<f64>>>()?;
    Ok(median(&batches).unwrap_or(0.0))
}

/// The cost of a call on each of several threads that call at the same time.
///
/// # Errors
/// A call returned a wrong value.
pub fn together(threads: usize) -> Result<Vec<f64>> {
    let barrier = Barrier::new(threads);
    std::thread::scope(|scope| {
        let measure = |thread: usize| {
            let barrier = &barrier;
            scope.spawn(move || {
                begin(thread);
                barrier.wait();
                let cost = cost(Function::Small, false);
                // No thread ends while others are still measured under the load of all.
                barrier.wait();
                cost
            })
        };
        let handles: Vec<_> = (0..threads).map(measure).collect();
        let join = |handle: std::thread::ScopedJoinHandle<'_, Result<f64>>| {
            handle.join().ok().context("a thread ended").and_then(|cost| cost)
        };
        handles.into_iter().map(join).collect()
    })
}

/// Makes [`Handler::Spin`] spend this many ticks of the time stamp counter. Yields that time in ns without any probe:
/// the least of some tries, because every disturbance makes it longer.
pub fn measured_spin(ticks: u64) -> f64 {
    let once = || {
        let start = std::time::Instant::now();
        for _ in 0..20 {
            // SAFETY: the handler does not look at its arguments.
            unsafe { bench_own_handlers[Handler::Spin as usize](null_mut(), null_mut()) };
        }
        start.elapsed().as_nanos() as f64 / 20.0
    };
    // SAFETY: one number.
    unsafe { bench_own_set_spin(ticks) };
    (0..50).map(|_| once()).fold(f64::INFINITY, f64::min)
}
