//! Every statement that "Probing the Guts of Kprobes" (Mavinakayanahalli, Panchamukhi, Keniston, Keshavamurthy,
//! Hiramatsu; Proceedings of the Linux Symposium 2006, volume two) makes on registration, handlers, colocation,
//! return probes, reentrancy and boosting, as a test with its section's number. Each is checked with any patch,
//! without saving SIMD registers, and with breakpoints; `tests/c/seed_003` has the programs.
//!
//! Where libnanoprobe differs from the paper, its own behaviour is tested:
//!
//! - 3: the probepoint is a jump where one fits, a breakpoint else. `NP_PROBE_TRAP` asks for the breakpoint.
//! - 3: the address may also be given as a symbol, or a function's with an offset.
//! - 3.1: whether the probepoint is at an instruction's boundary is verified.
//! - 4.2: any number of jumper probes may stand at one address.
//! - 4.3.2: stack traces show real return addresses. Where the return address was replaced, that
//!   costs this call's return.
//! - 6: no copy is ever stepped, so no hit takes more than one exception; with a jump it takes none.
//!
//! These statements cannot hold in user space, and have no test:
//!
//! - 3.2, 5.2: "preemption is disabled". A program cannot keep the system from scheduling. So a
//!   handler may be interrupted, may block, and its thread may wander to another processor;
//!   whatever is tracked is the thread's, not the processor's.
//! - 3.2: a fault that no fault handler deals with is fixed up by the kernel's exception tables. A program has no such
//!   tables. The fault is then the program's own, as if it had happened without probes. (Nor would a page that is not
//!   resident be a fault here.)
//! - 3.3: opaque types for other architectures. There is one.
//! - 4.3.2: `schedule()` and `do_exit()` are the kernel's; functions that do not return are
//!   tested with pthread_exit and longjmp (`linked.rs`). The data of return probes is under no
//!   global lock here.
//! - 5.1, 5.2: kprobes has a control block for each processor, and RCU. Here each thread has a
//!   block. A thread that removes a probe waits until every thread was seen outside of the
//!   probe's handler.
//! - 6.3: "boostable" and that the first hit is stepped. All copies are built, with the jump behind
//!   them, at registration.
//! - 4.1.2, 4.3.3, 7: what each kind costs, which no test asserts: `nanoprobe bench --own` measures it.
//! - 8.2: watchpoints: `watch.rs`.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod common;

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use common::Built;

const PROGRAMS: [&str; 7] = [
    "registration",
    "handlers",
    "jprobes",
    "colocated",
    "returns",
    "reentry",
    "boosters",
];

type Programs = Mutex<HashMap<&'static str, Arc<(Built, PathBuf)>>>;

/// A program, which is compiled once.
fn program(name: &'static str) -> Arc<(Built, PathBuf)> {
    static PROGRAMS: OnceLock<Programs> = OnceLock::new();
    let programs = PROGRAMS.get_or_init(Programs::default).lock();
    // A test that failed while it held the lock has left no half-made entry in the map.
    let mut programs = programs.unwrap_or_else(PoisonError::into_inner);
    let make = || {
        let built = Built::new();
        let path = built.compile("cc", &format!("seed_003/{name}.c"));
        Arc::new((built, path))
    };
    Arc::clone(programs.entry(name).or_insert_with(make))
}

fn holds(name: &'static str, statement: &str) {
    let program = program(name);
    let (built, path) = &*program;
    // With any tactic, with any tactic and no SIMD registers saved, and with breakpoints.
    for flags in ["0", "2", "4"] {
        assert_eq!(built.run_with(path, &[statement, flags]), "holds\n", "flags {flags}");
    }
}

macro_rules! statements {
    ($($program:literal { $($(#[$text:meta])* $name:ident;)* })*) => {
        $($(
            $(#[$text])*
            #[test]
            fn $name() {
                holds($program, stringify!($name));
            }
        )*)*

        const NAMES: &[&str] = &[$($(stringify!($name),)*)*];
    };
}

statements! {
    "registration" {
        /// The instruction at the probepoint is replaced by a breakpoint instruction.
        section_3_the_instruction_is_replaced;
        /// Footnote 2: since the breakpoint stays in place while the copy is
        /// executed, the probepoint is never missed, on several processors either.
        section_3_the_probepoint_is_never_missed_on_many_processors;
        /// kprobes is registered with the highest priority, so it gets an exception before all others. It works
        /// unnoticed, whereas a debugger waits for its user.
        section_3_kprobes_is_the_first_to_be_told_of_an_exception;
        /// addr: the user must supply it.
        section_3_the_user_must_supply_the_address;
        /// Handlers that a probe does not use are to be NULL.
        section_3_handlers_that_are_not_used_are_null;
        /// Registration fails with -EINVAL for code of the infrastructure, and for code that it uses, such as the
        /// exception handlers.
        section_3_1_code_of_the_infrastructure_is_refused;
        /// Sanity checks of the architecture: certain instructions are unsafe to probe.
        section_3_1_instructions_that_are_unsafe_to_probe_are_refused;
        /// The instruction caches are flushed, so that the change is seen consistently on the other processors.
        section_3_1_all_processors_see_the_change;
        /// Only two architectures verify that the probepoint is at an instruction's boundary. Here it is verified.
        section_3_1_an_address_inside_of_an_instruction_is_refused;
        /// The probe's object is not on an executable page; copies are put on pages of their own that are.
        section_3_1_copies_lie_on_pages_of_their_own_that_are_executable;
        /// Unregistering puts the original instruction back.
        section_3_3_the_original_instruction_is_put_back;
        /// Unregistering removes the probe from the list of probes that a hit looks at.
        section_3_3_an_unregistered_probe_is_not_found_any_more;
        /// The area that held the copy is returned, so that it can be used again.
        section_3_3_the_scratch_area_is_used_again;
    }
    "handlers" {
        /// pre_handler runs just before the instruction at the probepoint, post_handler just after; then the thread
        /// continues at the next instruction.
        section_3_2_the_pre_handler_runs_before_the_instruction_and_the_post_handler_behind;
        /// The pre-handler's return value decides whether the copy of the instruction is executed.
        section_3_2_the_pre_handlers_answer_decides_whether_the_instruction_is_executed;
        /// A breakpoint that belongs to no probe, as a debugger's, is handed to the next registered handler.
        section_3_2_a_breakpoint_of_somebody_else_is_handed_on;
        /// If no handler recognises it, the default handler takes over.
        section_3_2_without_anybody_else_the_default_handler_takes_over;
        /// Relative calls, returns, branches and operands relative
        /// to rip need fixing up, which the user does not notice.
        section_3_2_instructions_that_depend_on_where_they_are_do_as_in_place;
        /// The flags are restored to their original states.
        section_3_2_the_flags_are_restored;
        /// If a fault happens in a handler, the fault handler of its probe is given a chance to rectify it.
        section_3_2_a_fault_of_a_handler_goes_to_the_fault_handler_of_its_probe;
        /// If the probe's fault handler does not handle the fault, the system's fault handler does: possibly the
        /// program crashes.
        section_3_2_a_fault_that_nobody_has_dealt_with_is_the_systems;
        /// A fault that the user has induced on purpose, for fault injection, is rectified.
        section_3_2_a_fault_that_was_induced_is_rectified;
        /// fault_handler runs for faults of the instruction at the probepoint, too; a fault that it does not handle
        /// goes to the system.
        section_3_2_a_fault_of_the_instruction_that_nobody_rectifies_is_the_programs;
    }
    "jprobes" {
        /// The mirror function is given control before the function, which then runs as usual.
        section_4_1_the_mirror_is_given_control_before_the_function;
        /// The mirror has the function's prototype, so it can inspect the arguments.
        section_4_1_the_mirror_sees_all_arguments;
        /// The argument space is saved and restored, since by the ABI the callee may overwrite it.
        section_4_1_1_what_the_mirror_does_to_its_arguments_stays_with_it;
        /// The registers are saved, and restored when the mirror calls jprobe_return.
        section_4_1_1_registers_are_restored_when_the_mirror_returns;
        /// A jprobe has a kprobe embedded in it and is built on it.
        section_4_1_1_a_jprobe_has_a_kprobe_embedded;
        /// Unregistering does nothing more than unregistering that kprobe.
        section_4_1_1_unregistering_a_jprobe_is_unregistering_its_kprobe;
    }
    "colocated" {
        /// The list of the probes at the location is walked, and their handlers are invoked in turn.
        section_4_2_two_probes_at_one_address_run_in_order_of_registration;
        /// It is possible to have any number of kprobes at a probepoint, by the interfaces that existed before.
        section_4_2_there_may_be_any_number_of_probes_at_one_address;
        /// Likewise the post-handlers.
        section_4_2_post_handlers_are_called_in_turn_behind_all_pre_handlers;
        /// It is recorded which probe's handler runs, so that only this probe's fault handler is invoked.
        section_4_2_only_the_fault_handler_of_the_probe_whose_handler_faults_is_invoked;
        /// Return probes need the function's entry, where other probes may stand, but at most one jprobe. Here: any
        /// number of jprobes.
        section_4_2_kprobes_jprobes_and_return_probes_share_an_address;
    }
    "returns" {
        /// A return probe fires when the function returns.
        section_4_3_it_fires_when_the_function_returns;
        /// Footnote 5: the return value is in one of the registers that the handler is given.
        section_4_3_footnote_5_the_value_is_in_the_register_of_the_abi;
        /// After the handler, execution continues at the real return address.
        section_4_3_execution_continues_at_the_real_return_address;
        /// The probe is registered at the entry address of the function.
        section_4_3_it_is_registered_at_the_functions_entry;
        /// Several processors may execute the function at the same time, and it may be recursive.
        section_4_3_1_several_instances_are_active_at_a_time;
        /// maxactive too low is no disaster: some returns are missed, and nmissed counts them.
        section_4_3_1_with_maxactive_too_low_some_are_missed_and_counted;
        /// The function may yield the processor, and another task may enter it.
        section_4_3_1_a_function_may_yield_and_another_task_enter_it;
        /// A hit cannot allocate, so all instances are allocated when the probe is registered.
        section_4_3_1_instances_are_allocated_at_registration_not_at_a_hit;
        /// An instance hangs around until its function returns, even if the probe was unregistered.
        section_4_3_2_calls_that_are_active_return_after_the_probe_was_unregistered;
        /// When a task exits, the instances of functions in it that will not return are recycled.
        section_4_3_2_instances_of_tasks_that_have_ended_are_recycled;
        /// Stack traces typically report the trampoline rather than the actual return address. Here they do not.
        section_4_3_2_stack_traces_show_real_addresses_not_a_trampolines;
    }
    "reentry" {
        /// If a handler calls a function that has a probe, nmissed of that probe is incremented.
        section_4_4_a_probe_that_is_hit_in_a_handler_is_counted_in_nmissed;
        /// Its pre- and post-handler are bypassed, and its instruction is executed.
        section_4_4_its_handlers_are_bypassed_and_its_instruction_is_executed;
        /// Then the processing of the original probe continues.
        section_4_4_the_original_probe_goes_on_afterwards;
        /// Another cause is a probe on an asynchronous routine: here a signal handler.
        section_4_4_an_asynchronous_routine_may_be_what_reenters;
        /// Recursive reentries are avoided.
        section_4_4_a_probe_that_hits_itself_recurses_once;
        /// kprobes tracks the kprobe that is being processed for each processor; here it is tracked for each thread.
        section_5_1_what_one_thread_is_doing_is_tracked_apart_from_the_others;
        /// Handlers run without locks: several probes, the same or different ones, run in parallel.
        section_5_2_handlers_of_one_probe_and_of_different_ones_run_in_parallel;
        /// Unregistering waits until all threads that may be in a handler have left it. Updates are serialised.
        section_5_2_unregistering_waits_for_handlers_and_registering_does_not;
    }
    "boosters" {
        /// Of the two exceptions of a hit the second is needed for a post-handler only: without one, a jump after the
        /// copy is enough.
        section_6_1_a_hit_without_a_post_handler_takes_one_exception_or_none;
        /// In the kernel, a copy with a post-handler is stepped. Here it is not stepped.
        section_6_1_a_post_handler_takes_no_second_exception;
        /// The breakpoint at the trampoline is replaced by code that saves and restores registers.
        section_6_2_the_return_through_the_trampoline_takes_no_exception;
        /// Boosting does not change the interface.
        section_6_2_the_interface_is_the_same_whether_it_is_boosted;
        /// An instruction that refers to its execution address, or has a side effect on the hardware (cpuid), cannot be
        /// boosted. It is executed nevertheless.
        section_6_3_instructions_that_cannot_be_boosted_are_executed_as_in_place;
        /// Should probes be inherited across a fork? Here they are.
        section_8_1_a_child_of_fork_inherits_the_probes;
    }
}

/// Every statement in the programs has a test above.
#[test]
fn all_statements_are_tested() {
    let mut there = BTreeSet::new();
    for name in PROGRAMS {
        let program = program(name);
        let names = program.0.run_with(&program.1, &[]);
        there.extend(names.lines().map(str::to_owned));
    }
    let tested: BTreeSet<String> = NAMES.iter().map(|name| (*name).to_owned()).collect();
    assert_eq!(there, tested);
}
