//! Files that a process maps to harm their reader. Reading them costs no more than the data that their owner has
//! really stored.

#![allow(clippy::unwrap_used, reason = "a test ends where it goes wrong")]

use std::io::{BufRead as _, BufReader, Seek as _, SeekFrom, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use nanoprobe_target::Process;
use nanoprobe_tests::in_time::{InTime as _, TimeLimit};
use nanoprobe_text::modules::Modules;

/// The task of this test program when it is started by itself.
const PART: &str = "NANOPROBE_TEST_PART";
/// The most memory that reading the modules may take: this test program's own symbols are most of it.
const PEAK_KIB_MAX: u64 = 128 << 10;

/// Ends the child when it is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// This test again, in another part.
fn again(name: &str, part: &str, argument: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", name, "--nocapture"]);
    command.env(PART, format!("{part} {argument}"));
    command
}

/// Makes a sparse file of 4 GiB, whose headers claim all of it as code, a symbol table, frames and strings.
fn sparse(path: &Path) {
    const SECTIONS_AT: u64 = 0x1000;
    let mut file = std::fs::File::create(path).unwrap();
    file.set_len(4 << 30).unwrap();
    let mut head = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x03\0\x3e\0\x01\0\0\0".to_vec();
    head.resize(64, 0);
    let mut put =
        |at: usize, value: u64, bytes: usize| head[at..at + bytes].copy_from_slice(&value.to_le_bytes()[..bytes]);
    put(32, 64, 8);
    put(40, SECTIONS_AT, 8);
    put(54, 56, 2);
    put(56, 1, 2);
    put(58, 64, 2);
    put(60, 6, 2);
    put(62, 5, 2);
    // A PT_LOAD header, readable and executable, for the whole file.
    head.extend(1_u32.to_le_bytes());
    head.extend(5_u32.to_le_bytes());
    for word in [0, 0, 0, 4_u64 << 30, 4 << 30, 0x1000] {
        head.extend(word.to_le_bytes());
    }
    file.write_all(&head).unwrap();
    file.seek(SeekFrom::Start(SECTIONS_AT)).unwrap();
    let names = b"\0.text\0.symtab\0.strtab\0.eh_frame\0.shstrtab\0";
    let name = |wanted: &str| {
        let found = names
            .windows(wanted.len())
            .position(|window| window == wanted.as_bytes());
        found.unwrap() as u32
    };
    // Name, type, flags, offset, bytes, link, entry.
    let rows: [(u32, u32, u64, u64, u64, u32, u64); 6] = [
        (0, 0, 0, 0, 0, 0, 0),
        (name(".text"), 1, 6, 1 << 20, 3 << 30, 0, 0),
        (name(".symtab"), 2, 0, 1 << 20, 3 << 30, 3, 24),
        (name(".strtab"), 3, 0, 1 << 20, 3 << 30, 0, 0),
        (name(".eh_frame"), 1, 2, 1 << 20, 3 << 30, 0, 0),
        (name(".shstrtab"), 3, 0, SECTIONS_AT + 384, names.len() as u64, 0, 0),
    ];
    for (name, kind, flags, offset, bytes, link, entry) in rows {
        file.write_all(&name.to_le_bytes()).unwrap();
        file.write_all(&kind.to_le_bytes()).unwrap();
        for word in [flags, if flags == 0 { 0 } else { offset }, offset, bytes] {
            file.write_all(&word.to_le_bytes()).unwrap();
        }
        file.write_all(&link.to_le_bytes()).unwrap();
        file.write_all(&0_u32.to_le_bytes()).unwrap();
        for word in [16, entry] {
            file.write_all(&u64::to_le_bytes(word)).unwrap();
        }
    }
    file.write_all(names).unwrap();
}

/// The part of the process that is read: maps a file executable, says so, and waits.
fn map(path: &str) {
    let file = std::fs::File::open(path).unwrap();
    use rustix::mm::{MapFlags, ProtFlags, mmap};
    // SAFETY: a new mapping at an address that the kernel chooses; nobody reads it.
    unsafe {
        mmap(
            std::ptr::null_mut(),
            1 << 20,
            ProtFlags::READ | ProtFlags::EXEC,
            MapFlags::PRIVATE,
            &file,
            0,
        )
    }
    .unwrap();
    println!("\nmapped");
    std::thread::sleep(std::time::Duration::from_secs(120));
}

/// The part of the tracer: reads the modules and their functions, and says how much memory that took.
fn read(pid: &str) {
    let process = Process::open(pid.parse().unwrap()).unwrap();
    let mut modules = Modules::default();
    let executable = process.facts().executable.clone();
    let changes = modules.update(process.pid(), &process.map().unwrap(), process.memory(), &executable);
    let names: Vec<&str> = modules.list().iter().map(nanoprobe_symbols::Module::name).collect();
    let functions = modules.list().iter().map(|module| module.functions().len());
    assert!(functions.sum::<usize>() > 0);
    println!("\nread {names:?}, not {:?}", changes.unreadable);
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    println!("{}", status.lines().find(|line| line.starts_with("VmHWM:")).unwrap());
}

#[test]
fn a_sparse_file_of_4_gib_costs_little_memory() {
    const NAME: &str = "a_sparse_file_of_4_gib_costs_little_memory";
    if let Ok(part) = std::env::var(PART) {
        let (part, argument) = part.split_once(' ').unwrap();
        return if part == "map" { map(argument) } else { read(argument) };
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hostile.so");
    sparse(&path);
    let mut mapping = Running(
        again(NAME, "map", path.to_str().unwrap())
            .stdout(Stdio::piped())
            .spawn_in_group()
            .unwrap(),
    );
    let _limit = TimeLimit::new(mapping.0.id() as i32, "its mapping is read");
    let mut lines = BufReader::new(mapping.0.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap() == "mapped"));
    let output = again(NAME, "read", &mapping.0.id().to_string())
        .output_in_time()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(text.contains("hostile.so"), "{text}");
    let peak = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let peak: u64 = peak.unwrap().trim().trim_end_matches(" kB").parse().unwrap();
    println!("peak {peak} KiB");
    assert!(peak < PEAK_KIB_MAX, "{peak} KiB: {text}");
}
