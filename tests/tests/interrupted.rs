//! Ctrl-C and SIGTERM at any moment: the tracer ends soon and with success, and leaves the target restored.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::process::Command;
use std::time::{Duration, Instant};

use nanoprobe_tests::busy::Target;
use nanoprobe_tests::command::Running;
use nanoprobe_tests::text::ptracer;
use nanoprobe_tests::tracer::{Form, Traced, Tracer, Tracing, is_prepared, nanoprobe};
use nanoprobe_tests::{live_tests, number_from_environment};
use nix::sys::signal::Signal;
use nix::sys::stat::Mode;

/// Every instruction of the program and its libraries: matching and planning them takes far longer than the time until
/// the request to end.
const MANY: &str = "pid$target:::{ @ = count(); } END { printf(\"the end\\n\"); }";
const FEW: &str = "pid$target:a.out::entry,pid$target:a.out::return,pid$target:libc:malloc:entry,
                   pid$target:libc:malloc:return { @[probefunc] = count(); } END { printf(\"the end\\n\"); }";
/// How often to try. If this test gets no processor, a request may come too late for the step that it should cut short.
const ATTEMPTS: usize = 10;

/// The state that a request to end must leave.
trait Interrupted {
    #[track_caller]
    fn assert_untouched(&mut self, traced: &Traced, when: &str);
    fn has_arena(&self) -> bool;
}

impl Interrupted for Target {
    #[track_caller]
    fn assert_untouched(&mut self, traced: &Traced, when: &str) {
        assert_eq!(traced.finished.code(), 0, "{when}: {}", traced.finished.stderr);
        assert!(self.busy.is_running(), "the target died: {when}");
        assert_eq!(ptracer(self.busy.pid()), Some(0), "{when}");
        self.snapshot.assert_identical(self.busy.pid());
    }

    fn has_arena(&self) -> bool {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", self.busy.pid())).unwrap_or_default();
        maps.contains("/memfd:nanoprobe")
    }
}

fn signal_of(number: u64) -> Signal {
    if number.is_multiple_of(2) {
        Signal::SIGINT
    } else {
        Signal::SIGTERM
    }
}

/// Nothing is in the target yet, so the end has no results.
#[test]
fn matching_is_cut_short() {
    let mut target = Target::start();
    let is_cut = (0..ATTEMPTS).any(|_| {
        let mut tracing = Tracer::new(Form::Default).clause(MANY).start_on(target.busy.pid());
        tracing.running.wait_until("being prepared for signals", is_prepared);
        tracing.running.signal(Signal::SIGINT);
        let traced = tracing.finish();
        target.assert_untouched(&traced, "matching");
        let (said, is_cut) = (&traced.finished.stderr, traced.results.is_empty());
        assert!(
            !is_cut || said.contains("interrupted before anything was changed"),
            "{said}"
        );
        is_cut
    });
    assert!(is_cut, "it goes on as if nobody had asked");
    target.finish();
}

/// A request to end ends the tracer even if standard error takes no more bytes: here it is a full pipe.
#[test]
fn an_end_does_not_wait_for_standard_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let pipe = folder.path().join("pipe");
    nix::unistd::mkfifo(&pipe, Mode::S_IRUSR | Mode::S_IWUSR).expect("a pipe");
    let mut full = OpenOptions::new();
    full.read(true).write(true).custom_flags(libc::O_NONBLOCK);
    let mut full = full.open(&pipe).expect("the pipe");
    while full.write(&[b' '; 4096]).is_ok() {}
    let target = Target::start();
    for _ in 0..3 {
        let mut command = Command::new("sh");
        command.args(["-c", "exec \"$0\" -q -n \"$1\" -p \"$2\" 2> \"$3\""]);
        command
            .arg(nanoprobe())
            .arg(MANY)
            .arg(target.busy.pid().to_string())
            .arg(&pipe);
        let mut tracer = Running::start(&mut command);
        tracer.wait_until("being prepared for signals", is_prepared);
        tracer.signal(Signal::SIGTERM);
        assert_eq!(tracer.finish().code(), 0);
        target.snapshot.assert_identical(target.busy.pid());
    }
    target.finish();
}

/// Everything that is in the target by then is taken back, and END fires as at any other end.
#[test]
fn planning_is_cut_short() {
    let mut target = Target::start();
    let is_cut = (0..ATTEMPTS).any(|_| {
        let tracer = Tracer::new(Form::Default).argument("-v").clause(MANY);
        let mut tracing = tracer.start_on(target.busy.pid());
        tracing.running.wait_until("mapping the arena", |_| target.has_arena());
        tracing.running.signal(Signal::SIGTERM);
        let traced = tracing.finish();
        target.assert_untouched(&traced, "planning");
        assert!(traced.results.contains("the end"), "{}", traced.results);
        let said = &traced.finished.stderr;
        let is_cut = (said.lines()).any(|line| line.starts_with("nanoprobe: attach ") && line.ends_with(", 0 sites"));
        assert!(
            !is_cut || said.contains("interrupted before the probes were in place"),
            "{said}"
        );
        is_cut
    });
    assert!(is_cut, "it goes on as if nobody had asked");
    target.finish();
}

/// Of a set, too, it is told what was done.
#[test]
fn a_set_is_cut_short() {
    let (mut one, mut other) = (Target::start(), Target::start());
    let list = format!("{},{}", one.busy.pid(), other.busy.pid());
    let is_cut = (0..ATTEMPTS).any(|_| {
        let tracer = Tracer::new(Form::Default).argument("-p").argument(&list).clause(MANY);
        let mut tracing = tracer.start();
        tracing.running.wait_until("mapping the arena", |_| one.has_arena());
        tracing.running.signal(Signal::SIGINT);
        let traced = tracing.finish();
        one.assert_untouched(&traced, "the first of a set");
        other.assert_untouched(&traced, "the second of a set");
        let said = &traced.finished.stderr;
        said.contains("interrupted before the probes were in place") || said.contains("of 2 processes were traced")
    });
    assert!(is_cut, "nothing is told");
    one.finish();
    other.finish();
}

/// Starts a tracer. In turn, the probes are written as nanoprobe chooses (in a stop, as they are few), and by the
/// breakpoint protocol.
fn start(form: Form, number: u64, target: &Target) -> Tracing {
    let stop = if number.is_multiple_of(2) { "never" } else { "auto" };
    let tracer = Tracer::new(form).argument("-x").argument(format!("stop={stop}"));
    let mut tracing = tracer.argument("-v").clause(FEW).start_on(target.busy.pid());
    tracing.running.wait_until("being prepared for signals", is_prepared);
    tracing
}

fn wait_until_attached(tracing: &mut Tracing) {
    tracing
        .running
        .wait_until("attaching", |tracer| tracer.stderr().contains("nanoprobe: attach "));
}

live_tests! {
    /// Requests during attaching (with its planning and arming), tracing, and detaching, which a second request does
    /// not disturb.
    fn at_any_moment(form) {
        let mut target = Target::start();
        let started = Instant::now();
        let mut tracing = start(form, 0, &target);
        wait_until_attached(&mut tracing);
        let attach = started.elapsed();
        let started = Instant::now();
        let traced = tracing.interrupt();
        let detach = started.elapsed();
        target.assert_untouched(&traced, "at first");
        let times = number_from_environment("NANOPROBE_INTERRUPTS", 10);
        for number in 0..times {
            let part = (number as f64 + 0.5) / times as f64;
            let signal = signal_of(number / 2);

            let tracing = start(form, number, &target);
            std::thread::sleep(attach.mul_f64(part));
            tracing.running.signal(signal);
            target.assert_untouched(&tracing.finish(), &format!("{signal}, part {part} of attaching"));

            let mut tracing = start(form, number, &target);
            wait_until_attached(&mut tracing);
            std::thread::sleep(Duration::from_millis(number));
            tracing.running.signal(signal);
            let traced = tracing.finish();
            target.assert_untouched(&traced, &format!("{signal} while it runs"));
            assert!(traced.results.contains("the end"), "{signal}: {}", traced.results);

            let mut tracing = start(form, number, &target);
            wait_until_attached(&mut tracing);
            tracing.running.signal(signal);
            std::thread::sleep(detach.mul_f64(part));
            tracing.running.signal(signal_of(number / 2 + 1));
            let traced = tracing.finish();
            target.assert_untouched(&traced, &format!("{signal}, and another in part {part} of detaching"));
            assert!(traced.results.contains("the end"), "{signal}: {}", traced.results);
        }
        target.finish();
    }
}
