#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| nanoprobe_fuzz::kallsyms(data));
