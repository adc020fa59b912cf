//! The library as others use it: C and C++ programs built against the header, linked with the shared library, and from
//! Python by ctypes.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod common;

use std::process::Command;

use nanoprobe_tests::in_time::InTime;
use nanoprobe_tests::left_out::left_out;

use common::{Built, HANDLERS, RETURNS, text};

#[test]
fn a_c_program() {
    let built = Built::new();
    let program = built.compile("cc", "first.c");
    assert_eq!(built.run(&program), "2 good NULL placed\ngood -7\n");
}

/// A function for which only a short jump to a springboard fits is probed again and again, while threads execute it.
#[test]
fn a_function_without_room_is_probed_by_a_short_jump() {
    let built = Built::new();
    let program = built.compile("cc", "evicted.c");
    assert_eq!(built.run(&program), "evict\n0 wrong, right\n");
}

/// A function without padding uses its neighbour's padding, which the neighbour's own probe may need as well.
#[test]
fn a_short_jump_leads_to_the_padding_of_a_neighbour() {
    let built = Built::new();
    let program = built.compile("cc", "evicted_beside.c");
    assert_eq!(built.run(&program), "evict\n0 wrong, right\n");
}

/// One line for each set of probes: first the tactics at the ret and at the instruction after it, then those of the
/// chain.
const SUCCESSORS: &str = "\
evict
run
evict run
run evict
evict
evict
evict run
evict evict
run evict evict
0 wrong, 0 texts, right
";

/// A site has room for a jump only if the instruction after it is displaced, too. Threads execute both instructions all
/// the time.
#[test]
fn an_instruction_gives_way_to_the_one_before_it() {
    let built = Built::new();
    // With -no-pie the code lies near address 0: a jump far back would lead below 0, where there is no memory.
    let program = built.compile_with("cc", "successors.c", "program", &["-no-pie"]);
    assert_eq!(built.run(&program), SUCCESSORS);
}

/// The mirror gets a copy of the arguments on the stack. The stack may end right after the return address, before the
/// copied range does. It may have been longer at the last hit.
#[test]
fn jumper_probes_where_stacks_end() {
    let built = Built::new();
    let program = built.compile("cc", "stackend.c");
    for flags in ["0", "2", "4"] {
        assert_eq!(built.run_with(&program, &[flags]), "2646 calls\n");
    }
}

#[test]
fn returns_are_seen_by_exits_and_by_address_alike() {
    let built = Built::new();
    let program = built.compile("cc", "retprobe.c");
    for form in ["1", "2"] {
        assert_eq!(built.run_with(&program, &[form]), RETURNS, "form {form}");
    }
}

const PLACES: &str = "depth 25
idle: 40 hits, 1 missed, 0 abandoned
crowd of 1: exact, 0 followed, 0 too many, 0 abandoned
then 0 missed
crowd of 3: exact, 0 followed, 0 too many, 0 abandoned
then 0 missed
crowd of 20: exact, 0 followed, 0 too many, 0 abandoned
then 0 missed
ended: 154 hits, 0 missed, 150 abandoned
signals: exact, 0 followed, 0 too many
child: good
child: 10 hits, 0 missed, 0 abandoned
migration: 50 hits, 0 missed, 0 abandoned
left out: 1000 hits, 0 missed, 0 abandoned
0 wrong
scribbled: 200 hits, 0 missed, 0 abandoned
sandboxed: good
sandboxed: 4 hits, 0 missed, 0 abandoned
";

/// Threads hold places for return probes, and lose them to other threads.
#[test]
fn no_return_is_missed_while_a_place_is_free() {
    let built = Built::new();
    let program = built.compile("cc", "places.c");
    for form in ["1", "2"] {
        assert_eq!(built.run_with(&program, &[form]), PLACES, "form {form}");
    }
}

/// A thread takes a place again while another thread is taking that place away, at any of its instructions. Only one of
/// the two gets the place.
#[test]
fn a_place_is_one_threads_at_every_instruction() {
    let built = Built::new();
    let program = built.compile("cc", "wanted.c");
    assert_eq!(built.run(&program), "128 rounds\n");
}

/// A signal handler may run before any instruction of a hit: all registers are kept, and all calls are counted.
#[test]
fn every_instruction_of_a_call_may_be_interrupted() {
    let built = Built::new();
    let program = built.compile("cc", "steps.c");
    let expected: String = (0..4)
        .map(|way| format!("way {way}: 0 wrong, exact, all ways\n"))
        .collect();
    assert_eq!(built.run(&program), expected);
}

const PAIRS: &str = "without: 0 wrong, 0 moved, all seen
one: 0 wrong, 0 moved, all seen
two at one entry: 0 wrong, 0 moved, all seen
one again: 0 wrong, 0 moved, all seen
by a tail call: 0 wrong, 0 moved, all seen
the first alone: 0 wrong, 0 moved, all seen
unwinds: 500500, good
at last: 0 wrong, 0 moved, all seen
";

/// For both forms: all registers and flags keep their values on the way into a function and back.
#[test]
fn a_return_probe_changes_no_register_and_no_flag() {
    let built = Built::new();
    let program = built.compile("cc", "pairs.c");
    for form in ["1", "2"] {
        assert_eq!(built.run_with(&program, &[form]), PAIRS, "form {form}");
    }
}

#[test]
fn handlers_run_behind_branches_and_survive_faults() {
    let built = Built::new();
    let program = built.compile("cc", "handlers.c");
    // With any tactic, with any tactic and no SIMD registers saved, and with breakpoints.
    for flags in ["0", "2", "4"] {
        assert_eq!(built.run_with(&program, &[flags]), HANDLERS, "flags {flags}");
    }
}

#[test]
fn a_program_keeps_its_signals_and_forks() {
    let built = Built::new();
    let program = built.compile("cc", "process.c");
    let expected = "\
blocked: 4, 1 hits, believes 1 1
unblocked: believes 0
actions: own, original, 1 trap, 2 hits
without: 0 hits
forks: 50 good
forks beside the linker: 20 good
";
    assert_eq!(built.run(&program), expected);
}

#[test]
fn probes_come_and_go_under_four_threads() {
    let built = Built::new();
    let program = built.compile("cc", "stress.c");
    assert_eq!(built.run_with(&program, &["100"]), "0 idle, 0 left, 0 changed\n");
}

#[test]
fn tables_are_published_under_threads_that_trap() {
    let built = Built::new();
    let program = built.compile("cc", "published.c");
    assert_eq!(built.run_with(&program, &["2000"]), "exact, called\n");
}

const FORBIDDEN: &str = "\
the library: refused, 0 others
signals: -5 -5 -5 -5 -5 -5 -5 -5 -5 -5
detour: -5
signal calls: refused, the rest taken, 0 others
restorer: 10 hits, 10 signals
first hits: 1100, seen
variable -3, stack -3, heap -3, constant -3, own page -3
first page -3, vsyscall -3, kernel -3, wrapped -3
inside of instructions: refused
symbols: -2 -2 -2
unloaded: address -3, enable -8, unregister -8, twice -7
";

/// Each kind of forbidden place has its error. Functions of other modules may be probed, even if a hit calls them.
#[test]
fn the_hit_path_and_places_without_code_are_refused() {
    let built = Built::new();
    let library = built.compile_with("cc", "loaded.c", "loaded.so", &["-shared", "-fPIC"]);
    let program = built.compile("cc", "forbidden.c");
    let output = built.run_with(&program, &[library.to_str().unwrap()]);
    assert_eq!(output, FORBIDDEN);
}

/// If thread-local storage were found by a call, a hit would call the dynamic linker before the guard against
/// reentry.
#[test]
fn no_hit_asks_the_dynamic_linker_for_thread_local_storage() {
    let built = Built::new();
    let library = built.folder.path().join("libnanoprobe.so");
    let code = Command::new("objdump")
        .args(["-d", "--no-show-raw-insn"])
        .arg(&library)
        .output_in_time()
        .unwrap();
    let code = text(&code);
    let mut path = false;
    let mut functions = 0;
    for line in code.lines() {
        if line.ends_with(">:") {
            path = [
                "<np_hit",
                "<np_retprobe_e",
                "<np_jprobe_h",
                "<np_watched",
                "<np_unwinder",
            ]
            .iter()
            .any(|name| line.contains(name));
            functions += usize::from(path);
        }
        assert!(!(path && line.contains("__tls_get_addr")), "{line}");
    }
    assert!(functions > 10, "{functions}");
}

/// The library reads the program's modules again when they have changed, and not for each probe.
#[test]
fn code_comes_and_goes() {
    let built = Built::new();
    let library = |name| built.compile_with("cc", "loaded.c", name, &["-shared", "-fPIC"]);
    let libraries = [library("one.so"), library("two.so")];
    let program = built.compile("cc", "modules.c");
    let expected = "\
by address: 100 right, few
by symbol: 100 right, few
libraries: 0 wrong, at one place
by hand: 0 wrong
in use: 0 wrong
in handlers: 0 wrong
";
    let paths = libraries.each_ref().map(|path| path.to_str().unwrap());
    assert_eq!(built.run_with(&program, &paths), expected);
}

/// Each registration publishes new tables. There is not memory for all of these tables, so their memory must be used
/// again.
#[test]
fn many_probes_one_by_one() {
    let built = Built::new();
    let program = built.compile("cc", "many.c");
    assert_eq!(built.run(&program), "1500 of 1500, the others whole\n");
}

/// `examples/faults.c` on a program that was not built for it.
#[test]
fn faults_are_injected_into_python() {
    let find = Command::new("python3")
        .args(["-c", "import sys; print(sys.executable)"])
        .output_in_time();
    let Ok(found) = find else {
        return left_out("faults injected into python", "there is no python3");
    };
    let built = Built::new();
    let faults = built.compile_with("cc", "../../examples/faults.c", "faults.so", &["-shared", "-fPIC"]);
    let script = r#"
import os
failed = 0
for _ in range(100):
    try:
        bytearray(5000000)
    except MemoryError:
        failed += 1
null = os.open("/dev/null", os.O_WRONLY)
for _ in range(50):
    os.write(null, b"x")
print(failed)
"#;
    let output = Command::new(text(&found).trim())
        .args(["-c", script])
        .env("LD_LIBRARY_PATH", built.folder.path())
        .env("LD_PRELOAD", faults)
        .envs([
            ("FAULTS_MALLOC", "10"),
            ("FAULTS_SIZE", "4000000"),
            ("FAULTS_REPORT", "1"),
        ])
        .envs([("FAULTS_WRITE", "5"), ("FAULTS_DELAY", "100")])
        .output_in_time()
        .unwrap();
    assert_eq!(text(&output), "10\n");
    let report = String::from_utf8_lossy(&output.stderr);
    assert!(report.contains("faults: 10 of 100 mallocs failed, 1"), "{report}");
}

#[test]
fn libraries_come_while_return_addresses_are_replaced() {
    let built = Built::new();
    let library = built.compile_with("cc", "unwinder.c", "unwinder.so", &["-shared", "-fPIC"]);
    let program = built.compile("cc", "libraries.c");
    let output = built.run_with(&program, &[library.to_str().unwrap()]);
    assert_eq!(output, "seen right\n");
}

#[test]
fn exceptions_pass_through_return_probes() {
    let built = Built::new();
    let program = built.compile("c++", "retprobe.cpp");
    for form in ["0", "1", "2"] {
        let output = built.run_with(&program, &[form]);
        // inner throws for 200 values, and outer lets half of them through.
        assert!(output.contains(", 100 caught, 1200 calls\n"), "{output}");
        assert_eq!(output.matches("0 missed, the rest abandoned").count(), 2, "{output}");
        assert!(output.ends_with("all plain returns\n"), "{output}");
    }
}

#[test]
fn a_cpp_program() {
    let built = Built::new();
    let program = built.compile("c++", "first.cpp");
    assert_eq!(built.run(&program), "100 50\n");
}

#[test]
fn python_by_ctypes() {
    let built = Built::new();
    let script = r#"
import ctypes
library = ctypes.CDLL("libnanoprobe.so.0")
library.np_strerror.restype = ctypes.c_char_p
library.np_probe_hits.restype = ctypes.c_uint64

class Probe(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("addr", ctypes.c_void_p), ("symbol", ctypes.c_char_p),
                ("offset", ctypes.c_size_t), ("pre_handler", ctypes.c_void_p), ("post_handler", ctypes.c_void_p),
                ("fault_handler", ctypes.c_void_p), ("flags", ctypes.c_uint), ("user", ctypes.c_void_p),
                ("reserved", ctypes.c_void_p * 4)]

probe = Probe(size=ctypes.sizeof(Probe), symbol=b"libc:getppid")
error = library.np_register_probe(ctypes.byref(probe))
assert error == 0, library.np_strerror(error)
import os
for _ in range(1000):
    os.getppid()
print(library.np_probe_hits(ctypes.byref(probe)))
assert library.np_unregister_probe(ctypes.byref(probe)) == 0
os.getppid()
"#;
    let python = Command::new("python3")
        .args(["-c", script])
        .env("LD_LIBRARY_PATH", built.folder.path())
        .output_in_time();
    let Ok(output) = python else {
        return left_out("probes from python", "there is no python3");
    };
    assert_eq!(text(&output), "1000\n");
}
