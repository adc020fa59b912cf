//! Compiles the hit path, C and assembly, and names the shared library.

fn main() {
    for file in [
        "hit.c",
        "hook.c",
        "hook.S",
        "left.c",
        "dispatch.S",
        "fault.c",
        "threads.c",
        "jprobe.c",
        "watch.c",
        "watched.S",
        "retprobe.c",
        "retprobe.h",
        "places.c",
        "places.h",
        "returned.S",
        "short.S",
        "simd.S",
        "resume.S",
        "mirror.S",
        "hit.h",
        "raw.h",
    ] {
        println!("cargo::rerun-if-changed=src/hit/{file}");
    }
    println!("cargo::rerun-if-changed=include/nanoprobe.h");
    cc::Build::new()
        .files([
            "src/hit/hit.c",
            "src/hit/hook.c",
            "src/hit/hook.S",
            "src/hit/left.c",
            "src/hit/dispatch.S",
            "src/hit/fault.c",
            "src/hit/threads.c",
            "src/hit/jprobe.c",
            "src/hit/watch.c",
            "src/hit/watched.S",
            "src/hit/retprobe.c",
            "src/hit/places.c",
            "src/hit/returned.S",
            "src/hit/short.S",
            "src/hit/simd.S",
            "src/hit/resume.S",
            "src/hit/mirror.S",
        ])
        .include("include")
        .std("gnu11")
        .pic(true)
        .opt_level(2)
        // The program's values stay in the SIMD registers until they are saved.
        .flag("-mgeneral-regs-only")
        .flag("-fvisibility=hidden")
        .flag("-fno-stack-protector")
        .warnings_into_errors(true)
        .compile("nanoprobe_hit");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libnanoprobe.so.0");
    // No other module may use the symbols around the hit path.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,start-stop-visibility=hidden");
    // Detours, thunks and thread keys lead into this library for ever, so it is never unloaded.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
