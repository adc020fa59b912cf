//! Latencies by entry and return are compared, call by call, with clock reads that are compiled into the program. The
//! latencies by the kernel's return probes are compared, too. A latency is never less than the time between the clock
//! reads within the function, nor more than that between those around the call. Times of 0.4 ms and more are right
//! within a twentieth. By traps this holds from 2 ms on, because a trap's own 10 us lie between the clock read around
//! the call and the probe.

use std::collections::HashMap;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use nanoprobe_tests::command::Running;
use nanoprobe_tests::left_out::left_out;
use nanoprobe_tests::live_tests;
use nanoprobe_tests::program::{copy_program, program};
use nanoprobe_tests::tracer::{Form, Tracer, start_waiting};

const CALLS: usize = 40;
const FUNCTIONS: [&str; 4] = ["spins", "sleeps", "hands_over", "sometimes"];
/// A right latency is off by at most this, or by a twentieth.
const TOLERANCE_NS: i64 = 1000;
/// At least this many calls in a hundred are right: a thread may lose the processor between its clock read and the
/// probe.
const RIGHT_PERCENT: usize = 90;

/// The time of each call, by function, in the order of the calls.
type Latencies = HashMap<String, Vec<i64>>;

/// The lines `KEYWORD NAME NUMBER`, or `NAME NUMBER` without a keyword.
fn latencies(text: &str, keyword: &str) -> Latencies {
    let mut all = Latencies::new();
    for line in text.lines() {
        let Some(rest) = line.strip_prefix(keyword) else {
            continue;
        };
        let Some((name, number)) = rest.trim().split_once(' ') else {
            continue;
        };
        if let (true, Ok(number)) = (FUNCTIONS.contains(&name), number.parse()) {
            all.entry(name.to_owned()).or_default().push(number);
        }
    }
    all
}

/// `said`: the program's output.
#[track_caller]
fn assert_right(tracer: &str, measured: &Latencies, said: &str) {
    let (took, inside) = (latencies(said, "took"), latencies(said, "inside"));
    for name in FUNCTIONS {
        let (measured, truth, least) = (&measured[name], &took[name], &inside[name]);
        let lengths = (measured.len(), truth.len(), least.len());
        assert_eq!(lengths, (CALLS, CALLS, CALLS), "{tracer}: {name}");
        let pairs: Vec<(i64, i64)> = measured.iter().copied().zip(truth.iter().copied()).collect();
        for (least, (measured, truth)) in least.iter().zip(&pairs) {
            // The two clocks may differ slightly.
            let clocks = TOLERANCE_NS + truth / 1000;
            let bounds = least - clocks..=truth + clocks;
            assert!(
                bounds.contains(measured),
                "{tracer}: {name}: {measured} is not in {bounds:?}"
            );
        }
        let is_right = |(measured, truth): &&(i64, i64)| (measured - truth).abs() <= TOLERANCE_NS.max(truth / 20);
        let right = pairs.iter().filter(is_right).count();
        let mut errors: Vec<i64> = pairs.iter().map(|(measured, truth)| measured - truth).collect();
        errors.sort_unstable();
        eprintln!(
            "{tracer}: {name}: {right} of {CALLS} right, median error {} ns",
            errors[CALLS / 2]
        );
        assert!(right * 100 >= CALLS * RIGHT_PERCENT, "{tracer}: {name}: {pairs:?}");
    }
}

live_tests! {
    fn a_latency_lies_between_the_programs_own_clock_readings(form) {
        let mut clauses = String::new();
        for name in FUNCTIONS {
            clauses += &format!("pid$target:a.out:{name}:entry {{ self->{name} = timestamp; }}
                pid$target:a.out:{name}:return /self->{name}/ {{
                    printf(\"{name} %d\\n\", timestamp - self->{name}); self->{name} = 0; }}\n");
        }
        let spins_ns = if form == Form::Trap { 2_000_000 } else { 400_000 };
        let mut target = start_waiting(&program("latencies.c"), &format!("{CALLS} {spins_ns}"));
        let tracing = Tracer::new(form).argument("-q").clause(&clauses).trace(target.pid());
        target.go();
        let finished = target.finish().success();
        let traced = tracing.finish().success();
        assert_right("nanoprobe", &latencies(&traced.results, ""), &finished.stdout);
    }
}

/// The kernel's uprobes and uretprobes on the functions of a program. Dropping the value removes them.
struct KernelProbes {
    tracing: PathBuf,
    mounted: bool,
    group: String,
}

impl KernelProbes {
    /// # Errors
    ///
    /// The step that is not permitted here, or not available.
    fn on(target: &Running, path: &Path) -> std::io::Result<KernelProbes> {
        let usual = Path::new("/sys/kernel/tracing");
        let is_mounted = usual.join("uprobe_events").exists();
        let tracing = if is_mounted {
            usual.to_path_buf()
        } else {
            tempfile::tempdir()?.keep()
        };
        let group = format!("nanoprobe{}", std::process::id());
        let probes = KernelProbes {
            tracing,
            mounted: !is_mounted,
            group,
        };
        if !is_mounted {
            let mut mount = Command::new("mount");
            let mounted = mount.args(["-t", "tracefs", "nodev"]).arg(&probes.tracing).output()?;
            if !mounted.status.success() {
                return Err(std::io::Error::other(
                    String::from_utf8_lossy(&mounted.stderr).trim().to_owned(),
                ));
            }
        }
        fs::create_dir(probes.instance())?;
        fs::write(probes.instance().join("trace_clock"), "mono")?;
        for line in target.stdout().lines() {
            if let ["offset", name, offset] = line.split(' ').collect::<Vec<_>>()[..] {
                for (kind, event) in [('p', "entry"), ('r', "return")] {
                    let definition = format!("{kind}:{}/{name}_{event} {}:0x{offset}\n", probes.group, path.display());
                    probes.define(&definition)?;
                }
            }
        }
        let enable = probes.instance().join("events").join(&probes.group).join("enable");
        fs::write(enable, "1")?;
        Ok(probes)
    }

    fn instance(&self) -> PathBuf {
        self.tracing.join("instances").join(&self.group)
    }

    fn define(&self, line: &str) -> std::io::Result<()> {
        let mut file = fs::OpenOptions::new()
            .append(true)
            .open(self.tracing.join("uprobe_events"))?;
        file.write_all(line.as_bytes())
    }

    /// Nanoseconds from each entry to the return after it.
    fn latencies(&self) -> std::io::Result<Latencies> {
        let mut all = Latencies::new();
        let mut entered: HashMap<String, f64> = HashMap::new();
        // `latencies-123  [000] .....  12.345678: spins_entry: (0x...)`
        for line in fs::read_to_string(self.instance().join("trace"))?.lines() {
            let mut words = line.split_whitespace().filter_map(|word| word.strip_suffix(':'));
            let time = words.find_map(|word| word.parse::<f64>().ok());
            let (Some(seconds), Some(event)) = (time, words.next()) else {
                continue;
            };
            if let Some(name) = event.strip_suffix("_entry") {
                entered.insert(name.to_owned(), seconds);
            } else if let Some(name) = event.strip_suffix("_return")
                && let Some(start) = entered.remove(name)
            {
                let ns = ((seconds - start) * 1e9).round() as i64;
                all.entry(name.to_owned()).or_default().push(ns);
            }
        }
        Ok(all)
    }
}

impl Drop for KernelProbes {
    fn drop(&mut self) {
        let _ = fs::write(self.instance().join("events").join(&self.group).join("enable"), "0");
        let _ = fs::remove_dir(self.instance());
        for name in FUNCTIONS {
            for event in ["entry", "return"] {
                let _ = self.define(&format!("-:{}/{name}_{event}\n", self.group));
            }
        }
        if self.mounted {
            let _ = Command::new("umount").arg(&self.tracing).output();
            let _ = fs::remove_dir(&self.tracing);
        }
    }
}

/// The reference for the test above: the precision of the kernel's own return probes on the same program.
#[test]
fn the_kernels_return_probes_say_the_same() {
    // Such probes belong to a file: every process that runs the file hits them.
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("latencies");
    copy_program(&program("latencies.c"), &path);
    let mut target = start_waiting(&path, &CALLS.to_string());
    let probes = match KernelProbes::on(&target, &path) {
        Ok(probes) => probes,
        Err(error) => {
            left_out("latencies by the kernel's return probes", &error.to_string());
            target.go();
            target.finish().success();
            return;
        }
    };
    target.go();
    let finished = target.finish().success();
    let measured = probes.latencies().expect("what was traced");
    drop(probes);
    assert_right("uretprobe", &measured, &finished.stdout);
}
