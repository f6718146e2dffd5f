//! Flows whose backend, service or node port was removed, with real packets. The `conntrack` command is the independent reader.

mod affinity;
mod attempts;
mod connections;
mod cost;
mod datagrams;
mod restart;
