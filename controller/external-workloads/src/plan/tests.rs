//! linkerd's test scenarios for its reconciler (`external-workload/*_test.go`), and its defects that are fixed here.

mod content;
mod linkerd_defects;
mod packing;
