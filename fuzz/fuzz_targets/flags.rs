#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| contiv_agent::fuzz::flag(input));
