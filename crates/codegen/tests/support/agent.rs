//! The agent's functions, written in Rust as the contract describes them for handlers. They are simple enough to be
//! right, and log all calls.
//!
//! Each function is called through a stub that saves every register, because the contract says that the
//! functions clobber nothing.

use std::cell::RefCell;
use std::collections::BTreeMap;

use nanoprobe_codegen::AgentFunction;

/// Target addresses below this cannot be read.
pub const BAD_BELOW: u64 = 0x1_0000;
pub const STRSIZE: usize = 64;

/// Offsets of `struct np_context`, written a second time: from the contract's text, not from the tested code.
pub mod offset {
    pub const RESULT: usize = 40;
    pub const FAULT: usize = 48;
    pub const FAULT_ADDRESS: usize = 56;
    pub const TID_ADDRESS: usize = 72;
    pub const TID: usize = 80;
    pub const SCRATCH: usize = 96;
    pub const SCRATCH_BYTES: usize = 104;
    pub const SCRATCH_USED: usize = 112;
    pub const KEY: usize = 120;
    pub const KEY_BYTES: usize = 128;
    pub const KEY_CAPACITY: usize = 136;
}

/// The agent's state between calls.
#[derive(Default)]
pub struct State {
    pub log: Vec<String>,
    pub aggregates: BTreeMap<(u64, Vec<u8>), Box<[u64]>>,
    pub dynamic: BTreeMap<(u64, Vec<u8>), Box<[u64]>>,
    /// The record that is being written.
    pub reserved: Option<Box<[u64]>>,
    pub committed: Vec<Vec<u8>>,
    /// (fault, action, address)
    pub errors: Vec<(u64, u64, u64)>,
    pub exits: Vec<u64>,
    pub clock: u64,
    /// Whether ring and tables have no room.
    pub full: bool,
}

thread_local! {
    pub static STATE: RefCell<State> = RefCell::default();
}

fn with<R>(name: &str, act: impl FnOnce(&mut State) -> R) -> R {
    STATE.with_borrow_mut(|state| {
        state.log.push(name.to_owned());
        act(state)
    })
}

fn get(context: *mut u8, offset: usize) -> u64 {
    // SAFETY: handlers pass the context of the machine that runs them, which is 8 KiB.
    unsafe { context.add(offset).cast::<u64>().read() }
}

fn set(context: *mut u8, offset: usize, value: u64) {
    // SAFETY: as in `get`.
    unsafe { context.add(offset).cast::<u64>().write(value) }
}

fn bytes(address: u64, count: usize) -> Vec<u8> {
    // SAFETY: tests pass addresses of memory that they own, of at least that size.
    unsafe { std::slice::from_raw_parts(address as *const u8, count) }.to_vec()
}

/// One of our strings, without its NUL.
pub fn string(address: u64) -> Vec<u8> {
    // SAFETY: strings are NUL-terminated buffers of tests and handlers.
    unsafe { std::ffi::CStr::from_ptr(address as *const std::ffi::c_char) }
        .to_bytes()
        .to_vec()
}

fn fail(context: *mut u8, fault: u64, address: u64) {
    set(context, offset::FAULT, fault);
    set(context, offset::FAULT_ADDRESS, address);
    set(context, offset::RESULT, 0);
}

fn scratch(context: *mut u8, contents: &[u8]) -> Option<u64> {
    let used = get(context, offset::SCRATCH_USED) as usize;
    if used + contents.len() > get(context, offset::SCRATCH_BYTES) as usize {
        fail(context, 3, 0);
        return None;
    }
    let address = get(context, offset::SCRATCH) + used as u64;
    // SAFETY: within the machine's scratch area, just checked.
    unsafe { std::ptr::copy_nonoverlapping(contents.as_ptr(), address as *mut u8, contents.len()) };
    set(
        context,
        offset::SCRATCH_USED,
        (used + contents.len()).next_multiple_of(8) as u64,
    );
    Some(address)
}

fn key(context: *mut u8) -> Vec<u8> {
    bytes(get(context, offset::KEY), get(context, offset::KEY_BYTES) as usize)
}

fn append_key(context: *mut u8, contents: &[u8]) {
    let mut padded = contents.to_vec();
    padded.resize(contents.len().next_multiple_of(8), 0);
    let used = get(context, offset::KEY_BYTES);
    if used as usize + padded.len() > get(context, offset::KEY_CAPACITY) as usize {
        return fail(context, 4, 0);
    }
    let address = get(context, offset::KEY) + used;
    // SAFETY: within the key buffer, just checked.
    unsafe { std::ptr::copy_nonoverlapping(padded.as_ptr(), address as *mut u8, padded.len()) };
    set(context, offset::KEY_BYTES, used + padded.len() as u64);
}

extern "C" fn thread_changed(context: *mut u8) {
    with("thread_changed", |_| {});
    // SAFETY: the machine's context names a u32 of its own.
    let tid = unsafe { (get(context, offset::TID_ADDRESS) as *const u32).read() };
    // SAFETY: as in `set`, for four bytes.
    unsafe { context.add(offset::TID).cast::<u32>().write(tid) };
}

extern "C" fn copyin(context: *mut u8, address: u64, count: u64) {
    with("copyin", |_| {});
    if address < BAD_BELOW {
        return fail(context, 1, address);
    }
    if let Some(copy) = scratch(context, &bytes(address, count as usize)) {
        set(context, offset::RESULT, copy);
    }
}

extern "C" fn copyinstr(context: *mut u8, address: u64, limit: u64) {
    with("copyinstr", |_| {});
    if address < BAD_BELOW {
        return fail(context, 1, address);
    }
    let limit = if limit == 0 { STRSIZE } else { limit as usize };
    let mut text = Vec::new();
    // The loop goes byte by byte, because there may be no memory after the limit.
    while text.len() + 1 < limit {
        // SAFETY: tests pass addresses of memory that they own, NUL-terminated or at least `limit` bytes.
        match unsafe { ((address + text.len() as u64) as *const u8).read() } {
            0 => break,
            byte => text.push(byte),
        }
    }
    text.push(0);
    if let Some(copy) = scratch(context, &text) {
        set(context, offset::RESULT, copy);
    }
}

extern "C" fn load(context: *mut u8, address: u64, count: u64) {
    with("load", |_| {});
    if address < BAD_BELOW {
        return fail(context, 1, address);
    }
    let mut value = [0; 8];
    value[..count as usize].copy_from_slice(&bytes(address, count as usize));
    set(context, offset::RESULT, u64::from_le_bytes(value));
}

extern "C" fn strlen(context: *mut u8, text: u64) {
    with("strlen", |_| {});
    set(context, offset::RESULT, string(text).len() as u64);
}

extern "C" fn strcmp(context: *mut u8, left: u64, right: u64) {
    with("strcmp", |_| {});
    set(context, offset::RESULT, string(left).cmp(&string(right)) as i64 as u64);
}

extern "C" fn strcpy(_context: *mut u8, destination: u64, source: u64, capacity: u64) {
    with("strcpy", |_| {});
    let mut text = string(source);
    text.truncate(capacity as usize - 1);
    text.resize(capacity as usize, 0);
    // SAFETY: the variable or field has `capacity` bytes.
    unsafe { std::ptr::copy_nonoverlapping(text.as_ptr(), destination as *mut u8, text.len()) };
}

extern "C" fn key_integer(context: *mut u8, value: u64) {
    with("key_integer", |_| {});
    append_key(context, &value.to_le_bytes());
}

extern "C" fn key_string(context: *mut u8, text: u64) {
    with("key_string", |_| {});
    let mut text = string(text);
    text.push(0);
    append_key(context, &text);
}

extern "C" fn key_stack(context: *mut u8, frames: u64) {
    with(&format!("key_stack {frames}"), |_| {});
    append_key(
        context,
        &[2u64.to_le_bytes(), 0xaaau64.to_le_bytes(), 0xbbbu64.to_le_bytes()].concat(),
    );
}

extern "C" fn aggregate(context: *mut u8, aggregation: u64, words: u64) {
    let found = with("aggregate", |state| {
        if state.full {
            return 0;
        }
        let entry = state.aggregates.entry((aggregation, key(context)));
        entry.or_insert_with(|| vec![0; words as usize].into()).as_mut_ptr() as u64
    });
    set(context, offset::RESULT, found);
}

fn note_update(name: &str, words: u64, rest: &[u64]) {
    // SAFETY: value words are never fewer than one.
    unsafe { *(words as *mut u64) += 1 };
    with(
        &format!(
            "{name} {:x?}",
            rest.iter().map(|value| *value as i64).collect::<Vec<_>>()
        ),
        |_| {},
    );
}

extern "C" fn quantize(_context: *mut u8, words: u64, value: u64, weight: u64) {
    note_update("quantize", words, &[value, weight]);
}
extern "C" fn lquantize(_context: *mut u8, words: u64, value: u64, weight: u64, parameters: u64) {
    note_update("lquantize", words, &[value, weight, parameters]);
}
extern "C" fn llquantize(_context: *mut u8, words: u64, value: u64, weight: u64, parameters: u64) {
    note_update("llquantize", words, &[value, weight, parameters]);
}
extern "C" fn stddev(_context: *mut u8, words: u64, value: u64) {
    note_update("stddev", words, &[value]);
}

extern "C" fn dynamic_get(context: *mut u8, variable: u64, _bytes: u64) {
    let found = with("dynamic_get", |state| {
        state
            .dynamic
            .get(&(variable, key(context)))
            .map_or(0, |value| value.as_ptr() as u64)
    });
    set(context, offset::RESULT, found);
}

extern "C" fn dynamic_store(context: *mut u8, variable: u64, count: u64, value: u64) {
    let mut contents = value.to_le_bytes().to_vec();
    if count > 8 && value != 0 {
        contents = string(value);
        contents.resize(count as usize, 0);
    }
    let words = contents
        .chunks(8)
        .map(|word| u64::from_le_bytes(word.try_into().unwrap()))
        .collect();
    with("dynamic_store", |state| {
        if value == 0 {
            state.dynamic.remove(&(variable, key(context)));
        } else {
            state.dynamic.insert((variable, key(context)), words);
        }
    });
}

extern "C" fn reserve(context: *mut u8, epid: u64, count: u64) {
    let address = with("reserve", |state| {
        if state.full {
            return 0;
        }
        let mut room: Box<[u64]> = vec![0xeeee_eeee_eeee_eeee; count as usize / 8].into();
        room[0] = epid | count << 32;
        let address = room.as_ptr() as u64;
        state.reserved = Some(room);
        address
    });
    set(context, offset::RESULT, address);
}

extern "C" fn commit(_context: *mut u8) {
    with("commit", |state| {
        let words = state.reserved.take().expect("a commit follows a reserve");
        state
            .committed
            .push(words.iter().flat_map(|word| word.to_le_bytes()).collect());
    });
}

extern "C" fn ustack(_context: *mut u8, destination: u64, frames: u64) {
    with(&format!("ustack {frames}"), |_| {});
    // SAFETY: the field has room for a count and two frames in the tests that use this.
    unsafe { (destination as *mut [u64; 3]).write_unaligned([2, 0xaaa, 0xbbb]) };
}

extern "C" fn ucaller(context: *mut u8) {
    with("ucaller", |_| {});
    set(context, offset::RESULT, 0xca11);
}

fn tick(context: *mut u8, name: &str) {
    let now = with(name, |state| {
        state.clock += 1000;
        state.clock
    });
    set(context, offset::RESULT, now);
}

extern "C" fn timestamp(context: *mut u8) {
    tick(context, "timestamp");
}
extern "C" fn vtimestamp(context: *mut u8) {
    tick(context, "vtimestamp");
}
extern "C" fn walltimestamp(context: *mut u8) {
    tick(context, "walltimestamp");
}

extern "C" fn cpu(context: *mut u8) {
    with("cpu", |_| {});
    set(context, offset::RESULT, 3);
}

extern "C" fn error(context: *mut u8, action: u64) {
    let (fault, address) = (get(context, offset::FAULT), get(context, offset::FAULT_ADDRESS));
    with("error", |state| state.errors.push((fault, action, address)));
}

extern "C" fn exit(_context: *mut u8, status: u64) {
    with("exit", |state| state.exits.push(status));
}

/// Saves every register around a call of a Rust function, which follows the C convention.
macro_rules! stub {
    ($target:path) => {{
        #[unsafe(naked)]
        extern "C" fn stub() {
            core::arch::naked_asm!(
                "push rbp", "mov rbp, rsp",
                "push rax", "push rcx", "push rdx", "push rsi", "push rdi",
                "push r8", "push r9", "push r10", "push r11",
                "sub rsp, 264", "and rsp, -16",
                "movups [rsp], xmm0", "movups [rsp+16], xmm1", "movups [rsp+32], xmm2", "movups [rsp+48], xmm3",
                "movups [rsp+64], xmm4", "movups [rsp+80], xmm5", "movups [rsp+96], xmm6", "movups [rsp+112], xmm7",
                "movups [rsp+128], xmm8", "movups [rsp+144], xmm9", "movups [rsp+160], xmm10", "movups [rsp+176], xmm11",
                "movups [rsp+192], xmm12", "movups [rsp+208], xmm13", "movups [rsp+224], xmm14", "movups [rsp+240], xmm15",
                "call {target}",
                "movups xmm0, [rsp]", "movups xmm1, [rsp+16]", "movups xmm2, [rsp+32]", "movups xmm3, [rsp+48]",
                "movups xmm4, [rsp+64]", "movups xmm5, [rsp+80]", "movups xmm6, [rsp+96]", "movups xmm7, [rsp+112]",
                "movups xmm8, [rsp+128]", "movups xmm9, [rsp+144]", "movups xmm10, [rsp+160]", "movups xmm11, [rsp+176]",
                "movups xmm12, [rsp+192]", "movups xmm13, [rsp+208]", "movups xmm14, [rsp+224]", "movups xmm15, [rsp+240]",
                "lea rsp, [rbp-72]",
                "pop r11", "pop r10", "pop r9", "pop r8",
                "pop rdi", "pop rsi", "pop rdx", "pop rcx", "pop rax",
                "pop rbp", "ret",
                target = sym $target,
            )
        }
        stub as extern "C" fn() as usize as u64
    }};
}

/// The address of a function of the agent.
pub fn address(function: AgentFunction) -> u64 {
    match function {
        AgentFunction::ThreadChanged => stub!(thread_changed),
        AgentFunction::CopyIn => stub!(copyin),
        AgentFunction::CopyInString => stub!(copyinstr),
        AgentFunction::Load => stub!(load),
        AgentFunction::StringLength => stub!(strlen),
        AgentFunction::StringCompare => stub!(strcmp),
        AgentFunction::StringCopy => stub!(strcpy),
        AgentFunction::KeyInteger => stub!(key_integer),
        AgentFunction::KeyString => stub!(key_string),
        AgentFunction::KeyStack => stub!(key_stack),
        AgentFunction::Aggregate => stub!(aggregate),
        AgentFunction::Quantize => stub!(quantize),
        AgentFunction::LinearQuantize => stub!(lquantize),
        AgentFunction::LogLinearQuantize => stub!(llquantize),
        AgentFunction::StandardDeviation => stub!(stddev),
        AgentFunction::DynamicGet => stub!(dynamic_get),
        AgentFunction::DynamicStore => stub!(dynamic_store),
        AgentFunction::Reserve => stub!(reserve),
        AgentFunction::Commit => stub!(commit),
        AgentFunction::UserStack => stub!(ustack),
        AgentFunction::UserCaller => stub!(ucaller),
        AgentFunction::Timestamp => stub!(timestamp),
        AgentFunction::VirtualTimestamp => stub!(vtimestamp),
        AgentFunction::WallTimestamp => stub!(walltimestamp),
        AgentFunction::Cpu => stub!(cpu),
        AgentFunction::Error => stub!(error),
        AgentFunction::Exit => stub!(exit),
        // No handler calls the other functions.
        _ => 0,
    }
}
