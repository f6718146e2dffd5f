#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| contiv_renderer::fuzz::text(
    &contiv_model_testing::snapshot(input)
));
