//! The stored form, seen from outside: golden values, field numbers, leniency, properties.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "helpers of tests fail like tests"
)]

mod documented;
mod field_numbers;
mod golden;
mod identity;
mod lenient;
mod refused;
mod round_trip;
mod strategies;
