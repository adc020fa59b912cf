//! A thread waits eight times for a lock that another thread holds for 60 ms.

use std::sync::{Barrier, Mutex};
use std::time::Duration;

static QUEUE_LOCK: Mutex<u32> = Mutex::new(0);

fn main() {
    let barrier = Barrier::new(2);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..8 {
                barrier.wait();
                *QUEUE_LOCK.lock().unwrap() += 1;
                barrier.wait();
            }
        });
        for _ in 0..8 {
            let guard = QUEUE_LOCK.lock().unwrap();
            barrier.wait();
            std::thread::sleep(Duration::from_millis(60));
            drop(guard);
            barrier.wait();
        }
    });
    assert_eq!(*QUEUE_LOCK.lock().unwrap(), 8);
    println!("OK");
}
