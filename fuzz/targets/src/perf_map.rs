//! Names for code that is made at run time.

use nanoprobe_session::perf_map::PerfMap;

/// The text of a perf map.
pub fn perf_map(data: &[u8]) {
    let mut map = PerfMap::of_bytes(data);
    let start = map.start().unwrap_or(0);
    for address in [0, start, start.wrapping_add(1), 0x1000, 0x7fff_ffff_f000, u64::MAX] {
        if let Some((start, name)) = map.find(address) {
            assert!(start <= address && !name.is_empty() && name.len() < 1024);
            assert!(!name.chars().any(char::is_control));
        }
    }
}
