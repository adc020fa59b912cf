//! Compiles the agent's C and links it into one flat image: `agent.bin`, and `symbols.rs` with every function's offset.
//!
//! The build fails when the image would need something that it cannot have: writable data,
//! relocations, an undefined symbol, a large stack frame.

use std::env;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use object::{Object, ObjectSection, ObjectSymbol, SymbolKind};

const SOURCES: &[&str] = &[
    "aggregate",
    "buckets",
    "calls",
    "chain",
    "clock",
    "dispatch",
    "dynamic",
    "emulate",
    "enter",
    "errno",
    "exec",
    "follow",
    "goroutine",
    "handlers",
    "held",
    "hotspot",
    "image",
    "interrupts",
    "json",
    "key",
    "library",
    "made",
    "memory",
    "numbers",
    "paths",
    "python",
    "redirects",
    "returns",
    "ring",
    "runtimes",
    "sandbox",
    "shims",
    "sockets",
    "speculation",
    "step",
    "strings",
    "text",
    "trap",
    "unwind",
    "v8",
    "v8_code",
    "waits",
];
const HEADERS: &[&str] = &[
    "agent.h",
    "chain.h",
    "contract.h",
    "contract/context.h",
    "contract/control.h",
    "contract/functions.h",
    "contract/hotspot.h",
    "contract/image.h",
    "contract/runtimes.h",
    "contract/tables.h",
    "contract/v8.h",
    "emulate.h",
    "exec.h",
    "guard.h",
    "handlers.h",
    "hash.h",
    "held.h",
    "hotspot.h",
    "made.h",
    "ranges.h",
    "redirects.h",
    "returns.h",
    "ring.h",
    "runtimes.h",
    "sandbox.h",
    "scratch.h",
    "strings.h",
    "syscalls.h",
    "text.h",
    "threads.h",
    "unwind.h",
    "v8.h",
    "waits.h",
];

const FLAGS: &[&str] = &[
    "-std=gnu11",
    "-O2",
    "-ffreestanding",
    "-fno-builtin",
    "-fPIC",
    "-fvisibility=hidden",
    "-fno-stack-protector",
    "-fcf-protection=none",
    "-fno-jump-tables",
    "-fno-asynchronous-unwind-tables",
    "-fno-strict-aliasing",
    "-fomit-frame-pointer",
    "-fno-common",
    "-march=x86-64",
    "-mgeneral-regs-only",
    // A detour that calls a handler moves the stack pointer past the program's red zone, and no
    // further than needed.
    "-mno-red-zone",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-Wstrict-prototypes",
    "-Wframe-larger-than=256",
];

fn main() -> Result<(), Box<dyn Error>> {
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?);
    let compiler = env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    println!("cargo::rerun-if-env-changed=CC");
    for file in SOURCES
        .iter()
        .map(|name| format!("{name}.c"))
        .chain(HEADERS.iter().map(|name| (*name).to_owned()))
    {
        println!("cargo::rerun-if-changed={file}");
    }
    println!("cargo::rerun-if-changed=agent.ld");

    let mut objects = Vec::new();
    for name in SOURCES {
        let target = out.join(format!("{name}.o"));
        run(Command::new(&compiler)
            .args(FLAGS)
            .arg("-c")
            .arg(format!("{name}.c"))
            .arg("-o")
            .arg(&target))?;
        objects.push(target);
    }
    let linked = out.join("agent.elf");
    run(Command::new(&compiler)
        .args([
            "-nostdlib",
            "-nostartfiles",
            "-shared",
            "-Wl,-Bsymbolic",
            "-Wl,--no-undefined",
            "-Wl,-z,text",
        ])
        .args([
            "-Wl,--build-id=none",
            "-Wl,-z,noexecstack",
            "-Wl,--no-warn-rwx-segments",
            "-Wl,-T,agent.ld",
        ])
        .arg("-o")
        .arg(&linked)
        .args(&objects))?;
    extract(&fs::read(&linked)?, &out)
}

fn run(command: &mut Command) -> Result<(), Box<dyn Error>> {
    let status = command.status().map_err(|error| format!("{command:?}: {error}"))?;
    if !status.success() {
        return Err(format!("{command:?}: {status}").into());
    }
    Ok(())
}

/// Writes the flat section and the offsets of the functions in it.
fn extract(elf: &[u8], out: &Path) -> Result<(), Box<dyn Error>> {
    let file = object::File::parse(elf)?;
    let flat = file.section_by_name(".flat").ok_or("the agent has no section .flat")?;
    if flat.address() != 0 {
        return Err("the agent's image does not begin at address 0".into());
    }
    for section in file.sections() {
        let name = section.name()?;
        let allocated = matches!(
            section.flags(),
            object::SectionFlags::Elf { sh_flags, .. } if sh_flags.0 & object::elf::SHF_ALLOC.0 != 0
        );
        if allocated && section.size() != 0 && name != ".flat" {
            return Err(format!("the agent's image has a section besides .flat: {name}").into());
        }
    }
    let mut symbols: Vec<(String, u64)> = Vec::new();
    for symbol in file.symbols() {
        if symbol.kind() == SymbolKind::Text && symbol.is_global() && symbol.is_definition() {
            symbols.push((symbol.name()?.to_owned(), symbol.address()));
        }
    }
    symbols.sort();
    let mut text = String::new();
    for (name, address) in symbols {
        text.push_str(&format!("pub(super) const {name}: u32 = {address:#x};\n"));
    }
    fs::write(out.join("symbols.rs"), text)?;
    fs::write(out.join("agent.bin"), flat.data()?)?;
    Ok(())
}
