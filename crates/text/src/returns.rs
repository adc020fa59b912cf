//! Return probes by the return address (a kretprobe): where that form may be used, and its requirements. Pure.
//! `agent/returns.h` explains how it works.
//!
//! The program must never meet a replaced address where it looks for a real one. So the form is refused
//!
//! | where | because |
//! |---|---|
//! | a shadow stack is on | the processor compares the addresses |
//! | Go, OCaml, the JVM, V8, .NET, Mono | they look up return addresses in tables of their own |
//! | greenlets, Ruby, Guile | stacks are copied away, so the end of an instance cannot be seen |
//! | an unwinder without a name may exist | it cannot be hooked |
//! | a function uses its return address, or returns twice | see [`needs_its_return_address`] |
//! | no symbol names a function | it may be one of these |
//!
//! In all other cases, the unwinders that have names are hooked ([`unwinders`]).

use std::collections::BTreeSet;

use nanoprobe_patch::{FunctionMap, ReturnAddressUse, TargetAddress};
use nanoprobe_symbols::{FunctionKind, ImageAddress, Linking, Module, ModuleKind, RelocationTarget};

/// Why a return address is not replaced.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReturnRefusal {
    /// CET, as `x86_Thread_features` of /proc/PID/status shows.
    #[error("the process has a shadow stack, on which the processor compares return addresses")]
    ShadowStack,
    /// A language runtime reads return addresses, or moves stacks.
    #[error("the process contains {runtime}, which reads or moves the return addresses on the stack")]
    Runtime { runtime: &'static str },
    /// A module may contain code that unwinds stacks, and has no symbols.
    #[error("{module} may unwind stacks with its own code, and has no symbols that show where this code is")]
    HiddenUnwinder { module: String },
    /// Libraries that are loaded later could not be examined in time.
    #[error("the dynamic linker has no hook that reports new libraries")]
    NoLinkerHook,
    /// The function's name forbids it.
    #[error("{name} uses its return address, or returns twice")]
    Name { name: String },
    /// The function has no name that could forbid it.
    #[error("no symbol names it, so it may be a function that uses its return address, or returns twice")]
    Nameless,
    /// The function's code forbids it.
    #[error(transparent)]
    Use(#[from] ReturnAddressUse),
    /// At a jump out of the function, the frame still exists, or the place of the return address is not known.
    #[error("the place of its return address is not known at {site}")]
    Frame {
        /// The address of the jump.
        site: TargetAddress,
    },
}

/// The tail calls of a function at which the stack pointer points at the return address.
pub fn frameless_jumps(module: &Module, parts: &[FunctionMap]) -> BTreeSet<TargetAddress> {
    let mut by_code = None;
    let jumps = parts.iter().flat_map(FunctionMap::tail_jumps);
    let is_frameless = |jump: &TargetAddress| {
        let said = module.is_frameless_at(module.bias().to_image(*jump));
        said.unwrap_or_else(|| {
            by_code
                .get_or_insert_with(|| nanoprobe_patch::frameless_jumps(parts))
                .contains(jump)
        })
    };
    jumps.filter(is_frameless).collect()
}

/// Whether a function uses its return address for more than returning. The address identifies the caller (dlsym), or
/// is returned to twice (setjmp, vfork), or is not a return address at all (_start). Some functions read the return
/// addresses of their callers.
pub fn needs_its_return_address(name: &str) -> bool {
    const NAMES: [&str; 44] = [
        "setjmp",
        "_setjmp",
        "__setjmp",
        "sigsetjmp",
        "__sigsetjmp",
        "savectx",
        "vfork",
        "__vfork",
        "__libc_vfork",
        "clone",
        "__clone",
        "clone3",
        "__clone3",
        "getcontext",
        "__getcontext",
        "setcontext",
        "__setcontext",
        "swapcontext",
        "__swapcontext",
        "__start_context",
        "dlopen",
        "__dlopen",
        "dlmopen",
        "__dlmopen",
        "dlsym",
        "__dlsym",
        "dlvsym",
        "__dlvsym",
        "__libc_dlopen_mode",
        "__libc_dlsym",
        "_dl_debug_state",
        "dl_debug_state",
        "_start",
        "_dl_start",
        "_dl_start_user",
        "_dlstart",
        "__restore_rt",
        "__restore",
        "mcount",
        "_mcount",
        "__fentry__",
        "__cyg_profile_func_enter",
        "__cyg_profile_func_exit",
        "__gmon_start__",
    ];
    const PREFIXES: [&str; 18] = [
        "_Unwind_",
        "__unw_",
        "unw_",
        "_ULx86_64_",
        "_Ux86_64_",
        "_dl_runtime_",
        "_dl_tlsdesc_",
        "__morestack",
        "__x86.",
        "__x86_",
        "jump_fcontext",
        "make_fcontext",
        "ontop_fcontext",
        "__asan_",
        "__tsan_",
        "__msan_",
        "__sanitizer_",
        "__interceptor_",
    ];
    NAMES.contains(&name) || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// Functions that may be reached by jumps, and that read their return address: to find their caller, or to return to it
/// later or twice.
const READERS: [&str; 24] = [
    "setjmp",
    "_setjmp",
    "__setjmp",
    "sigsetjmp",
    "__sigsetjmp",
    "vfork",
    "__vfork",
    "__libc_vfork",
    "getcontext",
    "__getcontext",
    "swapcontext",
    "__swapcontext",
    "dlopen",
    "__dlopen",
    "dlmopen",
    "__dlmopen",
    "dlsym",
    "__dlsym",
    "dlvsym",
    "__dlvsym",
    "__libc_dlopen_mode",
    "__libc_dlsym",
    "__libc_dlvsym",
    "mcount",
];

/// The entries of unwinders: every walk of a stack begins at one of them.
const UNWINDERS: [&str; 13] = [
    "_Unwind_RaiseException",
    "_Unwind_Resume",
    "_Unwind_Resume_or_Rethrow",
    "_Unwind_ForcedUnwind",
    "_Unwind_Backtrace",
    "_Unwind_SjLj_RaiseException",
    "_ULx86_64_init_local",
    "_ULx86_64_init_local2",
    "_Ux86_64_init_local",
    "_Ux86_64_init_local2",
    "unw_backtrace",
    "unw_init_local",
    "__unw_init_local",
];

/// The entries of a module's unwinders.
pub fn unwinders(module: &Module) -> Vec<ImageAddress> {
    entries(module, &UNWINDERS)
}

/// The entries of a module's functions that read their return address when they are reached by a jump.
pub fn readers(module: &Module) -> Vec<ImageAddress> {
    entries(module, &READERS)
}

fn entries(module: &Module, names: &[&str]) -> Vec<ImageAddress> {
    let functions = module.functions().iter();
    let code = functions.filter(|function| function.kind == FunctionKind::Code);
    let named = code.filter(|function| function.names().any(|name| names.contains(&name)));
    let mut found: Vec<ImageAddress> = named.map(|function| function.extent().start).collect();
    found.dedup();
    found
}

/// Checks that nothing in a module forbids replacing return addresses.
pub fn check_module(module: &Module) -> Result<(), ReturnRefusal> {
    if let Some(runtime) = runtime(module) {
        return Err(ReturnRefusal::Runtime { runtime });
    }
    if may_hide_an_unwinder(module) {
        return Err(ReturnRefusal::HiddenUnwinder {
            module: module.name().to_owned(),
        });
    }
    Ok(())
}

fn runtime(module: &Module) -> Option<&'static str> {
    const LIBRARIES: [(&str, &str); 11] = [
        ("libjvm.so", "the JVM"),
        ("libcoreclr.so", ".NET"),
        ("libmono", "Mono"),
        ("libv8", "V8"),
        ("libnode.so", "V8"),
        ("libmozjs", "SpiderMonkey"),
        ("libjavascriptcoregtk", "JavaScriptCore"),
        ("_greenlet", "greenlet"),
        ("libruby", "Ruby"),
        ("libguile", "Guile"),
        ("libgo.so", "Go"),
    ];
    const FUNCTIONS: [(&str, &str); 5] = [
        ("caml_main", "OCaml"),
        ("caml_startup", "OCaml"),
        ("JNI_CreateJavaVM", "the JVM"),
        ("rb_callcc_new", "Ruby"),
        ("mono_jit_init", "Mono"),
    ];
    if module.linkage().go {
        return Some("Go");
    }
    let of_library = |(start, runtime): &(&str, &'static str)| module.name().starts_with(start).then_some(*runtime);
    let of_function = |name: &str| {
        let v8 = name.starts_with("_ZN2v8").then_some("V8");
        v8.or_else(|| {
            FUNCTIONS
                .iter()
                .find(|(known, _)| *known == name)
                .map(|(_, runtime)| *runtime)
        })
    };
    let functions = || module.functions().iter().flat_map(|function| function.names());
    LIBRARIES
        .iter()
        .find_map(of_library)
        .or_else(|| functions().find_map(of_function))
}

/// Whether a module may contain an unwinder without a name. Code that walks a stack needs the modules' unwinding
/// tables, and asks the linker for them. A module is suspect if it asks the linker, has no symbols, and uses no
/// unwinder of another module. A static program without symbols is always suspect, because it need not ask the
/// linker.
fn may_hide_an_unwinder(module: &Module) -> bool {
    if module.has_full_symbols() || !unwinders(module).is_empty() || module.kind() == ModuleKind::Vdso {
        return false;
    }
    if module.kind() == ModuleKind::Executable && module.linkage().linking != Linking::Dynamic {
        return true;
    }
    let relocations = module.relocations();
    let imports = || {
        relocations.iter().filter_map(|relocation| match &relocation.target {
            RelocationTarget::Symbol {
                name, definition: None, ..
            } => Some(name.as_ref()),
            _ => None,
        })
    };
    let asks = imports().any(|name| matches!(name, "dl_iterate_phdr" | "_dl_find_object" | "__register_frame_info"));
    asks && !imports().any(|name| name.starts_with("_Unwind_"))
}

/// Whether a process's threads have shadow stacks.
pub fn has_shadow_stack(pid: i32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    says_shadow_stack(&status)
}

fn says_shadow_stack(status: &str) -> bool {
    let features = status
        .lines()
        .find_map(|line| line.strip_prefix("x86_Thread_features:"));
    features.is_some_and(|features| features.split_whitespace().any(|feature| feature == "shstk"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_functions_need_their_return_address() {
        for name in [
            "setjmp",
            "__sigsetjmp",
            "vfork",
            "dlsym",
            "_Unwind_Resume",
            "_dl_runtime_resolve_xsavec",
        ] {
            assert!(needs_its_return_address(name), "{name}");
        }
        for name in ["main", "malloc", "longjmp", "fork", "unwind", "startup"] {
            assert!(!needs_its_return_address(name), "{name}");
        }
    }

    #[test]
    fn a_shadow_stack_is_seen_in_the_status() {
        let status = |features: &str| format!("Name:\tshstk\n{features}Speculation_Store_Bypass:\tvulnerable\n");
        assert!(says_shadow_stack(&status("x86_Thread_features:\tshstk \n")));
        assert!(says_shadow_stack(&status("x86_Thread_features:\tshstk wrss \n")));
        // "Locked" does not mean "enabled". Older kernels have no such lines.
        let locked = "x86_Thread_features:\t\nx86_Thread_features_locked:\tshstk wrss \n";
        assert!(!says_shadow_stack(&status(locked)));
        assert!(!says_shadow_stack(&status("")));
    }

    #[test]
    fn the_unwinder_of_the_c_compiler_is_found() {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let path = maps
            .split_whitespace()
            .find(|word| word.contains("/libgcc_s.so"))
            .expect("Rust programs unwind by libgcc_s");
        let bytes = nanoprobe_symbols::files::read(std::path::Path::new(path)).unwrap();
        let module = Module::parse(std::sync::Arc::new(bytes), path).unwrap();
        assert_eq!(unwinders(&module).len(), 5);
        assert_eq!(check_module(&module), Ok(()));
    }
}
