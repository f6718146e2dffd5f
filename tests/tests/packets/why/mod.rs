//! `contiv why` on faults that real nodes have: each is made in the lab, real packets show that connections fail, and the cause that
//! the command names is compared with what an expert would say. And on healthy connections, for which it must blame nothing.
//!
//! `docs/proof/faults.md` has the results; `CONTIV_UPDATE_GOLDENS=1` writes them.

mod agents;
mod attempt;
mod backends;
mod fault;
mod firewalls;
mod group;
mod healthy;
mod ip_sets;
mod iptables;
mod large;
mod machine;
mod objects;
mod report;
mod scene;
mod settings;
