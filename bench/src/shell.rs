//! A shell that runs a loop in its own language, as a program with many functions; and the number of its functions that
//! any tool has patched.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use object::{Object, ObjectSegment, ObjectSymbol, SymbolKind};

use crate::interrupt;
use crate::statistics::median;

/// The body of the loop.
pub const BODY: &str = "x=$((x + i)); y=${x#1};";

/// A bash on the last processor that prints, after each batch, the microseconds that it took.
pub struct Shell {
    child: Child,
    batches: Receiver<f64>,
}

impl Shell {
    /// Starts a shell with this many iterations of the loop in a batch.
    pub fn start(bash: &Path, iterations: u32) -> Result<Shell> {
        let text = format!(
            "while :; do s=$EPOCHREALTIME; for ((i = 0; i < {iterations}; i++)); do {BODY} done; e=$EPOCHREALTIME; \
             echo batch $(( ${{e/./}} - ${{s/./}} )); x=0; done"
        );
        // SAFETY: a plain query.
        let last = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) }.max(1) - 1;
        let mut child = Command::new("taskset")
            .args(["-c", &last.to_string()])
            .arg(bash)
            .args(["--norc", "-c", &text])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .context("starting bash")?;
        let stdout = child.stdout.take().context("its output")?;
        let (sender, batches) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let Some(time) = line.strip_prefix("batch ").and_then(|time| time.parse().ok()) else {
                    continue;
                };
                if sender.send(time).is_err() {
                    break;
                }
            }
        });
        let shell = Shell { child, batches };
        shell.median_from_now()?;
        Ok(shell)
    }

    /// The process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Microseconds a batch, from now on.
    pub fn median_from_now(&self) -> Result<f64> {
        let median = self.median_within(10, Duration::from_secs(60))?;
        median.context("bash stopped")
    }

    /// The median of at most `most` batches that begin from now on and end within `limit`; `None` if there is none.
    ///
    /// # Errors
    /// bash has ended, or an end was requested.
    pub fn median_within(&self, most: usize, limit: Duration) -> Result<Option<f64>> {
        while self.batches.try_recv().is_ok() {}
        let (start, mut taken) = (Instant::now(), Vec::new());
        // The current batch covers both times.
        let mut is_first = true;
        while taken.len() < most && start.elapsed() < limit {
            interrupt::check()?;
            match self.batches.recv_timeout(Duration::from_millis(100)) {
                Ok(_) if is_first => is_first = false,
                Ok(time) => taken.push(time),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(anyhow::anyhow!("bash ended")),
            }
        }
        Ok(median(&taken))
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The text of a running program, compared with the text of its file.
pub struct Text {
    memory: File,
    /// The exported functions: each address, and the first byte in the file.
    entries: Vec<(u64, u8)>,
    /// The mapping that contains them.
    start: u64,
    length: usize,
}

impl Text {
    /// The text of a process that runs this file.
    pub fn of(pid: u32, program: &Path) -> Result<Text> {
        let bytes = std::fs::read(program).with_context(|| format!("reading {}", program.display()))?;
        let file = object::File::parse(&*bytes).with_context(|| format!("reading {}", program.display()))?;
        let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).context("reading its map")?;
        let (start, end, offset) = executable_mapping(&maps, program).context("it runs another program")?;
        let offsets = function_offsets(&file);
        let length = end.saturating_sub(start);
        let mut entries: Vec<(u64, u8)> = offsets
            .into_iter()
            .filter(|at| (offset..offset.saturating_add(length)).contains(at))
            .filter_map(|at| Some((at - offset + start, *bytes.get(usize::try_from(at).ok()?)?)))
            .collect();
        entries.sort_unstable();
        entries.dedup();
        ensure!(!entries.is_empty(), "{} exports no function", program.display());
        Ok(Text {
            memory: File::open(format!("/proc/{pid}/mem")).context("reading its memory")?,
            entries,
            start,
            length: usize::try_from(length)?,
        })
    }

    /// How many functions there are.
    pub fn functions(&self) -> usize {
        self.entries.len()
    }

    /// The addresses of the functions in the process.
    pub fn addresses(&self) -> impl Iterator<Item = u64> + '_ {
        self.entries.iter().map(|(address, _)| *address)
    }

    /// The number of functions whose first byte differs from the file's: such a function begins with a jump or a
    /// breakpoint.
    pub fn patched(&self) -> Result<usize> {
        let mut now = vec![0; self.length];
        self.memory
            .read_exact_at(&mut now, self.start)
            .context("reading its memory")?;
        let differs = |(address, byte): &&(u64, u8)| now.get((address - self.start) as usize) != Some(byte);
        Ok(self.entries.iter().filter(differs).count())
    }
}

/// Start, end and offset in the file.
fn executable_mapping(maps: &str, program: &Path) -> Option<(u64, u64, u64)> {
    maps.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        let (range, access, offset) = (words.next()?, words.next()?, words.next()?);
        let path = words.nth(2)?;
        let (start, end) = range.split_once('-')?;
        let number = |text: &str| u64::from_str_radix(text, 16).ok();
        (access.contains('x') && Path::new(path) == program)
            .then(|| Some((number(start)?, number(end)?, number(offset)?)))
            .flatten()
    })
}

/// The offsets of the file's exported functions.
pub fn function_offsets(file: &object::File) -> Vec<u64> {
    let functions = file
        .dynamic_symbols()
        .filter(|symbol| symbol.is_definition() && symbol.kind() == SymbolKind::Text && symbol.size() > 0);
    let offset = |address: u64| {
        file.segments().find_map(|segment| {
            let (offset, bytes) = segment.file_range();
            let distance = address.checked_sub(segment.address())?;
            (distance < bytes).then_some(offset + distance)
        })
    };
    let mut offsets: Vec<u64> = functions.filter_map(|symbol| offset(symbol.address())).collect();
    offsets.sort_unstable();
    offsets.dedup();
    offsets
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mapping_is_that_of_the_program_and_executable() {
        let maps = "1000-2000 r--p 00000000 fe:00 1   /tmp/bash\n2000-5000 r-xp 00001000 fe:00 1   /tmp/bash\n\
                    9000-a000 r-xp 00000000 00:00 0\n";
        assert_eq!(
            executable_mapping(maps, Path::new("/tmp/bash")),
            Some((0x2000, 0x5000, 0x1000))
        );
        assert_eq!(executable_mapping(maps, Path::new("/tmp/dash")), None);
    }

    /// First nothing is patched, then one byte, then nothing again.
    #[test]
    fn a_changed_first_byte_counts_as_a_patched_function() {
        let bash = std::fs::canonicalize("/bin/bash").expect("bash");
        let shell = Shell::start(&bash, 100).expect("it runs");
        let text = Text::of(shell.pid(), &bash).expect("its text");
        assert!(text.functions() > 100, "{}", text.functions());
        assert_eq!(text.patched().expect("its memory"), 0);
        // The loop never calls this function.
        let (address, byte) = unused(&bash, &text);
        let memory = File::options()
            .write(true)
            .open(format!("/proc/{}/mem", shell.pid()))
            .expect("its memory");
        memory.write_all_at(&[byte ^ 0xff], address).expect("written");
        assert_eq!(text.patched().expect("its memory"), 1);
        memory.write_all_at(&[byte], address).expect("written");
        assert_eq!(text.patched().expect("its memory"), 0);
        assert!(shell.median_from_now().expect("it runs on") > 0.0);
    }

    /// `wait_builtin`, or the last function.
    fn unused(bash: &Path, text: &Text) -> (u64, u8) {
        let bytes = std::fs::read(bash).expect("bash");
        let file = object::File::parse(&*bytes).expect("an ELF file");
        let symbol = file
            .dynamic_symbols()
            .find(|symbol| symbol.name() == Ok("wait_builtin"));
        let low = symbol.map_or(0, |symbol| symbol.address() & 0xfff);
        let found = text.entries.iter().find(|(address, _)| address & 0xfff == low);
        *found.or(text.entries.last()).expect("a function")
    }
}
