//! fork: the child has one thread, and its own copies of all registered probes.
//!
//! The locks are taken before the fork, in the order in which they nest, and released after it, so that the child
//! finds nothing half done. A handler that forks waits only for a bounded time, since the thread that holds the
//! engine may be waiting for that very handler. After that the child's probes fire, but it can register none. The
//! same is true if the system refuses the child what patching needs.

use std::cell::RefCell;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant};

use crate::api::{HOOKS, Hooks, PENDING, Pending, REGISTERED, ReturnProbes};
use crate::engine::{self, Engine};
use crate::{hit, self_process};

/// How long a handler waits for each lock.
const WAIT: Duration = Duration::from_millis(200);

/// The locks, in reverse order: fields are dropped in the order in which they stand.
struct Held {
    _pending: Option<MutexGuard<'static, Vec<Pending>>>,
    _registered: Option<MutexGuard<'static, ReturnProbes>>,
    engine: Option<MutexGuard<'static, Engine>>,
    _making: Option<MutexGuard<'static, ()>>,
    _hooks: Option<MutexGuard<'static, Hooks>>,
}

thread_local! {
    // The variable has no destructor: a thread's first fork must not need memory from the dynamic linker.
    static HELD: RefCell<ManuallyDrop<Option<Held>>> = const { RefCell::new(ManuallyDrop::new(None)) };
}

/// Called when the library is loaded, because a thread may fork while another one makes the engine.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = watch;

static IS_WATCHED: AtomicBool = AtomicBool::new(false);

/// Arranges that the three functions are called around every fork from now on.
pub extern "C" fn watch() {
    if IS_WATCHED.swap(true, Ordering::SeqCst) {
        return;
    }
    // SAFETY: the functions live as long as the process, since the library is never unloaded. If there is no memory
    // for this, forks work as they did without this library. An allocator with its own locks registers at its first
    // use, which comes before this call. So its locks are taken after ours.
    unsafe {
        libc::free(libc::malloc(1));
        libc::pthread_atfork(Some(prepare), Some(parent), Some(child));
    }
}

fn put(new: Option<Held>) -> Option<Held> {
    HELD.with(|held| std::mem::replace(&mut **held.try_borrow_mut().ok()?, new))
}

/// Locks a mutex. `None`: the caller is a handler, and has waited long enough.
fn lock<T>(mutex: &'static Mutex<T>) -> Option<MutexGuard<'static, T>> {
    let begun = Instant::now();
    loop {
        match mutex.try_lock() {
            Ok(guard) => return Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) if hit::in_handler() && begun.elapsed() > WAIT => return None,
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_micros(50)),
        }
    }
}

unsafe extern "C" fn prepare() {
    let _hooks = lock(&HOOKS);
    let _making = lock(&engine::MAKING);
    let engine = engine::made().and_then(lock);
    let _registered = lock(&REGISTERED);
    let _pending = lock(&PENDING);
    put(Some(Held {
        _pending,
        _registered,
        engine,
        _making,
        _hooks,
    }));
}

unsafe extern "C" fn parent() {
    drop(put(None));
}

unsafe extern "C" fn child() {
    hit::forked();
    self_process::Loaded::forked();
    let Some(mut held) = put(None) else { return };
    if let Some(mut engine) = held.engine.take()
        && engine.forked().is_err()
    {
        // A write now might go to the parent's memory, so the lock is never released.
        std::mem::forget(engine);
    }
}
