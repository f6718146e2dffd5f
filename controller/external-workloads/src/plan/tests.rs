//! linkerd's scenarios for its reconciler (`external-workload/*_test.go`), and its traps, mended.

mod content;
mod mended;
mod packing;
