//! Compares the mirror in `layout` with the header. The C compiler gets every offset, size and
//! constant as a static assertion on `agent/contract.h`, and no field of the header may be missing
//! from the mirror.

#![allow(clippy::unwrap_used, reason = "test code")]

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Command, Stdio};

use nanoprobe_tests::in_time::{EndsInTime, InTime};

use nanoprobe_arena::Structure;
use nanoprobe_arena::layout::*;

const HEADER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../agent/contract.h");

fn assertions<S: Structure>(out: &mut String) {
    writeln!(
        out,
        "_Static_assert(sizeof(struct {0}) == {1}, \"sizeof {0}\");",
        S::C_NAME,
        S::BYTES
    )
    .unwrap();
    for field in S::FIELDS {
        writeln!(
            out,
            "_Static_assert(__builtin_offsetof(struct {0}, {1}) == {2} && sizeof(((struct {0} *)0)->{1}) == {3}, \"{0}.{1}\");",
            S::C_NAME,
            field.name,
            field.offset,
            field.bytes
        )
        .unwrap();
    }
}

/// Calls a macro with every mirrored structure.
macro_rules! every_structure {
    ($macro:ident) => {
        $macro!(
            SignalAction,
            Exec,
            Control,
            Site,
            Region,
            Semaphore,
            Range,
            Image,
            Tables,
            Readers,
            ReturnInstance,
            Returns,
            Registers,
            Redirect,
            RedirectTable,
            ThreadSlot,
            Step,
            LentMask,
            LentMasks,
            Wait,
            Held,
            Inherited,
            Emulation,
            Context,
            FrameBelow,
            Frame,
            Enabling,
            Call,
            CallSite,
            RecordHeader,
            ErrorRecord,
            AggregateTable,
            AggregateEntry,
            DynamicTable,
            DynamicBucket,
            DynamicEntry,
            UnwindTable,
            UnwindModule,
            UnwindRow,
            HotSpot,
            Runtimes,
            Python,
            V8,
            V8Object,
            V8Objects,
            RuntimeObjects
        )
    };
}

fn compiles(program: &str) -> Result<(), String> {
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let mut child = Command::new(compiler)
        .args(["-std=gnu11", "-fsyntax-only", "-x", "c", "-"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn_in_group()
        .unwrap();
    child.stdin.take().unwrap().write_all(program.as_bytes()).unwrap();
    let output = child.wait_with_output_in_time().unwrap();
    if output.status.success() {
        Ok(())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

#[test]
fn layout_is_the_contracts() {
    let mut program = format!("#include \"{HEADER}\"\n");
    macro_rules! assert_all {
        ($($name:ident),*) => { $( assertions::<$name>(&mut program); )* };
    }
    every_structure!(assert_all);
    let constants = [
        ("NP_MAGIC", MAGIC),
        ("NP_EXEC_FREE", u64::from(EXEC_FREE)),
        ("NP_EXEC_ASKED", u64::from(EXEC_ASKED)),
        ("NP_EXEC_HELD", u64::from(EXEC_HELD)),
        ("NP_EXEC_ALONE", u64::from(EXEC_ALONE)),
        ("NP_EXEC_FAILED", u64::from(EXEC_FAILED)),
        ("NP_EXECS", EXECS as u64),
        ("NP_VERSION", u64::from(VERSION)),
        ("NP_CALL_NUMBERS", u64::from(CALL_NUMBERS)),
        ("NP_CALL_PROCESS_BEGINS", u64::from(CALL_PROCESS_BEGINS)),
        ("NP_CALL_THREAD_BEGINS", u64::from(CALL_THREAD_BEGINS)),
        ("NP_CALL_ROWS", u64::from(CALL_ROWS)),
        ("NP_CALLS", CALLS as u64),
        ("NP_FRAME_INTERPRETED", FRAME_INTERPRETED),
        ("NP_POSITION_NONE", u64::from(POSITION_NONE)),
        ("NP_OBJECT_NONE", u64::from(OBJECT_NONE)),
        ("NP_RUNTIME_PYTHON", RUNTIME_PYTHON),
        ("NP_RUNTIME_JAVA", RUNTIME_JAVA),
        ("NP_RUNTIME_JAVA_STUB", RUNTIME_JAVA_STUB),
        ("NP_RUNTIME_JAVA_INTERPRETER", RUNTIME_JAVA_INTERPRETER),
        ("NP_RUNTIME_JAVA_CODE", RUNTIME_JAVA_CODE),
        ("NP_POSITION_INLINED", u64::from(POSITION_INLINED)),
        ("NP_HOTSPOT_HEAPS", HOTSPOT_HEAPS as u64),
        ("NP_RUNTIME_JAVASCRIPT", RUNTIME_JAVASCRIPT),
        ("NP_V8_OBJECTS", V8_OBJECTS),
        ("NP_V8_FIRST_OBJECT", u64::from(V8_FIRST_OBJECT)),
        ("NP_V8_BASELINE", u64::from(V8_BASELINE)),
        ("NP_V8_BEGIN_FIRST", u64::from(V8_BEGIN_FIRST)),
        ("NP_V8_BEGIN_LAST", u64::from(V8_BEGIN_LAST)),
        ("NP_V8_BUILTIN_FRAME", u64::from(V8_BUILTIN_FRAME)),
        ("NP_V8_CONSTRUCT_FRAME", u64::from(V8_CONSTRUCT_FRAME)),
        ("NP_V8_EXTRA_FRAME", u64::from(V8_EXTRA_FRAME)),
        ("NP_V8_INTERPRETED_FIRST", u64::from(V8_INTERPRETED_FIRST)),
        ("NP_V8_INTERPRETED_LAST", u64::from(V8_INTERPRETED_LAST)),
        ("NP_V8_FRAME_LAST", u64::from(V8_FRAME_LAST)),
        ("NP_V8_MATCH", u64::from(V8_MATCH)),
        ("NP_V8_OPERATIONS", u64::from(V8_OPERATIONS)),
        ("NP_V8_OPERANDS_0", V8_OPERANDS[0]),
        ("NP_V8_OPERANDS_1", V8_OPERANDS[1]),
        ("NP_V8_OPERANDS_2", V8_OPERANDS[2]),
        ("NP_V8_LIST_BYTES_MAX", u64::from(V8_LIST_BYTES_MAX)),
        ("NP_V8_CODE_BYTES_MAX", V8_CODE_BYTES_MAX),
        ("NP_V8_CODE_ALIGNMENT", V8_CODE_ALIGNMENT),
        ("NP_RUNTIME_OBJECTS", RUNTIME_OBJECTS),
        ("NP_PYTHON_OBJECTS", u64::from(PYTHON_OBJECTS)),
        ("NP_PYTHON_RECORDS", u64::from(PYTHON_RECORDS)),
        ("NP_PYTHON_SHIMS", u64::from(PYTHON_SHIMS)),
        ("NP_ORIGIN_PUSHED_SHIFT", u64::from(ORIGIN_PUSHED_SHIFT)),
        ("NP_STATE_BUILDING", u64::from(STATE_BUILDING)),
        ("NP_STATE_ARMED", u64::from(STATE_ARMED)),
        ("NP_STATE_RESTORED", u64::from(STATE_RESTORED)),
        ("NP_DISPATCH_BUSY", DISPATCH_BUSY),
        ("NP_STATE_COMPLETE", u64::from(STATE_COMPLETE)),
        ("NP_SEMAPHORE_GONE", u64::from(SEMAPHORE_GONE)),
        ("NP_SEMAPHORE_RAISING", u64::from(SEMAPHORE_RAISING)),
        ("NP_SEMAPHORE_RAISED", u64::from(SEMAPHORE_RAISED)),
        ("NP_SEMAPHORE_LOWERING", u64::from(SEMAPHORE_LOWERING)),
        ("NP_SEMAPHORE_LOWERED", u64::from(SEMAPHORE_LOWERED)),
        ("NP_SLOT_TRAP", SLOT_TRAP as u64),
        ("NP_SLOT_SEGV", SLOT_SEGV as u64),
        ("NP_SLOT_BUS", SLOT_BUS as u64),
        ("NP_SLOT_ILL", SLOT_ILL as u64),
        ("NP_SLOT_FPE", SLOT_FPE as u64),
        ("NP_REGION_CODE", u64::from(REGION_CODE)),
        ("NP_REGION_TABLE", u64::from(REGION_TABLE)),
        ("NP_REGION_ARENA", u64::from(REGION_ARENA)),
        ("NP_REGION_RETURNS", u64::from(REGION_RETURNS)),
        ("NP_REGION_STACKS", u64::from(REGION_STACKS)),
        ("NP_REGION_TEXT", u64::from(REGION_TEXT)),
        ("NP_RETURN_INSTANCES", u64::from(RETURN_INSTANCES)),
        ("NP_RETURN_CHUNK", u64::from(RETURN_CHUNK)),
        ("NP_RETURN_THUNK_BYTES", RETURN_THUNK_BYTES),
        ("NP_SPECULATIONS_MAX", SPECULATIONS_MAX),
        ("NP_SPECULATION_TAKEN", SPECULATION_TAKEN),
        ("NP_SPECULATION_ENDED", SPECULATION_ENDED),
        ("NP_SPECULATION_SHIFT", SPECULATION_SHIFT),
        ("NP_RETURN_CHAIN_MAX", u64::from(RETURN_CHAIN_MAX)),
        ("NP_RETURN_FREE", u64::from(RETURN_FREE)),
        ("NP_RETURN_CLAIMED", u64::from(RETURN_CLAIMED)),
        ("NP_RETURN_ARMED", u64::from(RETURN_ARMED)),
        ("NP_RETURN_NEVER", u64::from(RETURN_NEVER)),
        ("NP_OFFSET_RETURNED", OFFSET_RETURNED),
        ("sizeof(struct np_return_pool)", RETURN_POOL_BYTES),
        (
            "__builtin_offsetof(struct np_return_pool, instances)",
            RETURN_POOL_INSTANCES,
        ),
        (
            "__builtin_offsetof(struct np_return_pool, chunk_lowest)",
            RETURN_POOL_LOWEST,
        ),
        (
            "__builtin_offsetof(struct np_return_pool, chunk_highest)",
            RETURN_POOL_HIGHEST,
        ),
        ("NP_KEY_TLS_SELF", KEY_TLS_SELF),
        ("NP_KEY_FSBASE", KEY_FSBASE),
        ("NP_KEY_ASKED", KEY_ASKED),
        ("NP_KEY_OF_NUMBER", KEY_OF_NUMBER),
        ("NP_KEY_SHARED", KEY_SHARED),
        ("NP_HANDLER_STACK_BYTES", HANDLER_STACK_BYTES),
        ("NP_HANDLER_STACKS", HANDLER_STACKS),
        ("NP_KEY_TLS_CHECKED", KEY_TLS_CHECKED),
        ("NP_TABLE_BITS", u64::from(TABLE_BITS)),
        ("NP_FOLLOWS_NOT", FOLLOWS_NOT),
        ("NP_FOLLOWS", FOLLOWS),
        ("NP_FOLLOWS_ANCESTORS", FOLLOWS_ANCESTORS),
        ("NP_NESTED", NESTED),
        ("NP_ANCESTORS", ANCESTORS as u64),
        ("NP_TABLE_SLOTS", TABLE_SLOTS as u64),
        ("NP_TABLE_FACTOR", TABLE_FACTOR),
        ("NP_SLOT_ENDED", SLOT_ENDED),
        ("NP_CONTEXTS_MAX", u64::from(CONTEXTS_MAX)),
        ("sizeof(struct np_thread_table)", TABLE_BYTES as u64),
        ("__builtin_offsetof(struct np_thread_table, magic)", TABLE_MAGIC as u64),
        ("__builtin_offsetof(struct np_thread_table, lent)", TABLE_LENT as u64),
        ("__builtin_offsetof(struct np_thread_table, began)", TABLE_BEGAN as u64),
        ("__builtin_offsetof(struct np_thread_table, pid)", TABLE_PID as u64),
        (
            "__builtin_offsetof(struct np_thread_table, shared_pointers)",
            TABLE_SHARED_POINTERS as u64,
        ),
        (
            "__builtin_offsetof(struct np_thread_table, early_keys)",
            TABLE_EARLY_KEYS as u64,
        ),
        (
            "__builtin_offsetof(struct np_thread_table, inherited.blocks)",
            TABLE_BLOCKS as u64,
        ),
        ("__builtin_offsetof(struct np_thread_table, keys)", TABLE_KEYS as u64),
        (
            "__builtin_offsetof(struct np_thread_table, inherited)",
            TABLE_INHERITANCE as u64,
        ),
        (
            "__builtin_offsetof(struct np_thread_table, blocked)",
            TABLE_BLOCKED as u64,
        ),
        (
            "__builtin_offsetof(struct np_thread_table, action_masks)",
            TABLE_ACTION_MASKS as u64,
        ),
        ("__builtin_offsetof(struct np_thread_table, steps)", TABLE_STEPS as u64),
        (
            "__builtin_offsetof(struct np_thread_table, lent_masks)",
            TABLE_LENT_MASKS as u64,
        ),
        ("__builtin_offsetof(struct np_thread_table, waits)", TABLE_WAITS as u64),
        ("__builtin_offsetof(struct np_thread_table, held)", TABLE_HELD as u64),
        (
            "__builtin_offsetof(struct np_thread_table, held_count)",
            TABLE_HELD_COUNT as u64,
        ),
        ("NP_HELD", HELD as u64),
        ("NP_HELD_THERE", u64::from(HELD_THERE)),
        ("NP_LENT_MASKS", LENT_MASKS as u64),
        ("NP_REDIRECT_EMULATION", REDIRECT_EMULATION),
        ("NP_REDIRECT_CALL", REDIRECT_CALL),
        ("NP_SYNCHRONOUS", SYNCHRONOUS),
        ("NP_HANDLERS", HANDLERS as u64),
        (
            "__builtin_offsetof(struct np_control, missed_without_context)",
            FROZEN_BYTES as u64,
        ),
        ("NP_CONTEXT_SLOTS", CONTEXT_SLOTS),
        ("NP_RING_SWITCH", u64::from(RING_SWITCH)),
        ("NP_RING_FILL", u64::from(RING_FILL)),
        ("NP_RING_OVERWRITE", u64::from(RING_OVERWRITE)),
        ("NP_RECORD_ERROR", u64::from(RECORD_ERROR)),
        ("NP_FAULT_NONE", u64::from(FAULT_NONE)),
        ("NP_FAULT_BAD_ADDRESS", u64::from(FAULT_BAD_ADDRESS)),
        ("NP_FAULT_DIVIDE", u64::from(FAULT_DIVIDE)),
        ("NP_FAULT_SCRATCH", u64::from(FAULT_SCRATCH)),
        ("NP_FAULT_KEY_TOO_LONG", u64::from(FAULT_KEY_TOO_LONG)),
        ("NP_FAULT_BAD_SIZE", u64::from(FAULT_BAD_SIZE)),
        ("NP_FAULT_ILLEGAL", u64::from(FAULT_ILLEGAL)),
        ("NP_AGGREGATE_PROBES", AGGREGATE_PROBES),
        ("NP_DYNAMIC_SPINS", u64::from(DYNAMIC_SPINS)),
        ("NP_CFA_END", u64::from(CFA_END)),
        ("NP_CFA_RSP", u64::from(CFA_RSP)),
        ("NP_CFA_RBP", u64::from(CFA_RBP)),
        ("NP_CFA_PLT", u64::from(CFA_PLT)),
        ("NP_CFA_SIGNAL", u64::from(CFA_SIGNAL)),
        ("NP_CFA_RBP_DEREF", u64::from(CFA_RBP_DEREF)),
        ("NP_CFA_UNKNOWN", u64::from(CFA_UNKNOWN)),
    ];
    for (name, value) in constants {
        writeln!(
            program,
            "_Static_assert({name} == {value}UL, \"{}\");",
            name.replace('"', "")
        )
        .unwrap();
    }
    if let Err(messages) = compiles(&program) {
        panic!("{messages}");
    }
    // The compiler really checks: a wrong assertion is an error.
    let wrong = format!("#include \"{HEADER}\"\n_Static_assert(sizeof(struct np_site) == 47, \"\");\n");
    assert!(compiles(&wrong).is_err());
}

/// The text of the header and of the files in its folder.
fn header_with_its_parts() -> String {
    let parts = std::fs::read_dir(HEADER.strip_suffix(".h").unwrap()).unwrap();
    let mut text = std::fs::read_to_string(HEADER).unwrap();
    for part in parts {
        text += &std::fs::read_to_string(part.unwrap().path()).unwrap();
    }
    text
}

/// The names of the fields of `struct name` in the header.
fn fields_of(header: &str, name: &str) -> Vec<String> {
    let (_, rest) = header.split_once(&format!("struct {name} {{")).unwrap();
    let (body, _) = rest.split_once("\n};").unwrap();
    let mut code = String::new();
    let mut rest = body;
    while let Some((before, after)) = rest.split_once("/*") {
        code.push_str(before);
        rest = after.split_once("*/").unwrap().1;
    }
    code.push_str(rest);
    let declared = code
        .split(';')
        .map(str::trim)
        .filter(|declaration| !declaration.is_empty());
    let names = declared.flat_map(|declaration| declaration.split(','));
    names
        .map(|name| {
            let name = name.split('[').next().unwrap().trim();
            name.rsplit(|c: char| !c.is_alphanumeric() && c != '_')
                .next()
                .unwrap()
                .to_owned()
        })
        .collect()
}

#[test]
fn no_field_is_missing() {
    let header = header_with_its_parts();
    let mut mirrored = 0;
    macro_rules! compare_all {
        ($($name:ident),*) => { $(
            let here: Vec<&str> = $name::FIELDS.iter().map(|field| field.name).collect();
            assert_eq!(here, fields_of(&header, $name::C_NAME), "{}", $name::C_NAME);
            mirrored += 1;
        )* };
    }
    every_structure!(compare_all);
    // Every structure must be mirrored, except the thread table and the pool of instances. These
    // two are arrays and have constants instead.
    let declared = header
        .lines()
        .filter(|line| line.starts_with("struct ") && line.ends_with(" {"))
        .count();
    assert_eq!(declared, mirrored + 2);
}

#[test]
fn structures_survive_bytes() {
    let context = Context {
        busy: 1,
        tid: 2,
        index: 3,
        ring_tail: 4,
        reserved2: [5; 7],
        ..Context::default()
    };
    assert_eq!(Context::from_bytes(&context.to_bytes()), Some(context));
    assert_eq!(context.to_bytes().len(), Context::BYTES);
    let row = UnwindRow {
        pc: 1,
        cfa: 2,
        rbp: 1,
        rbp_offset: -16,
        cfa_offset: -8,
    };
    assert_eq!(UnwindRow::from_bytes(&row.to_bytes()), Some(row));
    assert_eq!(UnwindRow::from_bytes(&[0; 11]), None);
}
