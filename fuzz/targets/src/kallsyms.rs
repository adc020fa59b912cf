//! Names of the kernel's functions.

use nanoprobe_symbols::kernel::{KERNEL_START, KernelSymbols};

/// The text of /proc/kallsyms.
pub fn kallsyms(data: &[u8]) {
    let symbols = KernelSymbols::parse(data);
    // Addresses that the text may have: those of its words, and around them.
    let words = data.split(|byte| byte.is_ascii_whitespace());
    let named = words.filter_map(|word| u64::from_str_radix(std::str::from_utf8(word).ok()?, 16).ok());
    let mut addresses: Vec<u64> = named.take(64).collect();
    addresses.extend([0, KERNEL_START, u64::MAX]);
    for address in addresses {
        for address in [address.wrapping_sub(1), address, address.wrapping_add(0x12)] {
            let Some(found) = symbols.find(address) else {
                continue;
            };
            assert!(!symbols.is_hidden() && (KERNEL_START..=address).contains(&found.start));
            let is_text = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
            assert!(is_text(found.name) && is_text(found.module));
            let first = symbols.module_start(address);
            assert!(first.is_some_and(|first| (KERNEL_START..=found.start).contains(&first)));
        }
    }
}
