//! Failover as the drivers of the core see it: reports and answers to probes in, watched backends, probes and failing backends out.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod node;
mod random;
mod rules;
mod watches;
