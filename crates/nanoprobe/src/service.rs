//! `--service`: a run that a service manager starts, and that stays for weeks.
//!
//! ```text
//!   start      what killed tracers have left is taken away
//!   READY=1    the probes are in place, or the first process is waited for
//!   WATCHDOG=1 the run goes on: sent from its loops, so that a run that hangs is restarted
//!   SIGHUP     the output is opened anew
//!   SIGTERM    STOPPING=1; the probes are taken out, and the exit status is 0
//! ```
//!
//! Without a service manager (`NOTIFY_SOCKET` is not set) nothing is sent, and the rest is the same. See sd_notify(3).

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use sd_notify::NotifyState;

use crate::{interrupt, restore};

/// How often the status may change.
const STATUS_PERIOD: Duration = Duration::from_secs(1);

struct Service {
    /// The time between two signs of life, if the manager wants them.
    watchdog: Option<Duration>,
    alive_at: Instant,
    is_ready: bool,
    status: String,
    status_at: Option<Instant>,
}

static SERVICE: OnceLock<Mutex<Service>> = OnceLock::new();

/// Makes this run a service.
pub fn start() {
    interrupt::reopen_on_hangup();
    // Half of the time after which the manager kills us.
    let watchdog = sd_notify::watchdog_enabled().map(|limit| limit / 2);
    let _ = SERVICE.set(Mutex::new(Service {
        watchdog,
        alive_at: Instant::now(),
        is_ready: false,
        status: String::new(),
        status_at: None,
    }));
    // A service that was killed is started again: then its probes are in the processes still.
    restore::dead();
}

/// Whether this run is a service.
pub fn is_on() -> bool {
    SERVICE.get().is_some()
}

fn service() -> Option<MutexGuard<'static, Service>> {
    let service = SERVICE.get()?;
    Some(service.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Says that the run goes on, when that is due.
pub fn alive() {
    let Some(mut service) = service() else { return };
    if let Some(period) = service.watchdog
        && service.alive_at.elapsed() >= period
    {
        service.alive_at = Instant::now();
        send(&[NotifyState::Watchdog]);
    }
}

/// Says what the run does, if that has changed. The first time says that the service is ready.
pub fn does(what: &dyn Fn() -> String) {
    let Some(mut service) = service() else { return };
    if service.status_at.is_some_and(|told| told.elapsed() < STATUS_PERIOD) {
        return;
    }
    service.status_at = Some(Instant::now());
    let status = what();
    if !std::mem::replace(&mut service.is_ready, true) {
        send(&[NotifyState::Ready, NotifyState::Status(&status)]);
    } else if status != service.status {
        send(&[NotifyState::Status(&status)]);
    }
    service.status = status;
}

/// Says that the run ends.
pub fn stopping() {
    if is_on() {
        send(&[NotifyState::Stopping, NotifyState::Status("taking the probes out")]);
    }
}

/// A manager that is gone needs no answer.
fn send(states: &[NotifyState<'_>]) {
    let _ = sd_notify::notify(states);
}
