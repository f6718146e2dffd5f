//! Models of what is around a node, for runs without a node: a whole agent, or a part of it, meets them in place of the real
//! thing, in one thread and by simulated time.
#![allow(
    clippy::format_push_string,
    clippy::match_same_arms,
    clippy::needless_for_each,
    clippy::needless_pass_by_value,
    clippy::redundant_closure_for_method_calls,
    clippy::semicolon_if_nothing_returned,
    clippy::similar_names,
    clippy::too_many_lines,
    clippy::unnecessary_wraps,
    clippy::unused_self,
    reason = "what mirrors the kernel's functions keeps their shape"
)]

pub mod kernel;
