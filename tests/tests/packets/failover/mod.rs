//! Failover: attempts at a backend that fails reach another one, the backend leaves, and comes back.

mod agent;
mod load;
mod table;

use std::{net::SocketAddr, thread, time::Duration};

use contiv_tests::lab::{LabError, Namespace, Outcome, Protocol, Result, scratch};

/// Clients wait this long for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(8);
/// After so many connections each of four backends has answered, except once in 10^10 runs.
const UNREACHED: usize = 80;

/// How a backend fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// A reset.
    Refuses,
    /// An ICMP error.
    Unreachable,
    /// Nothing.
    Silent,
    /// The pod is there without its address: nothing at first, and then an ICMP error of its node.
    AddressLost,
}

impl Fault {
    /// Makes the server of a pod fail.
    fn begin(self, pod: &Namespace, port: u16) -> Result<()> {
        let verdict = match self {
            Self::Refuses => "reject with tcp reset",
            Self::Unreachable => "reject with icmpx type host-unreachable",
            Self::Silent => "drop",
            Self::AddressLost => {
                let lose = "ip -o -4 addr show scope global >$0.address; ip -4 route show >$0.routes; \
                            set -- $(cat $0.address); ip addr del $4 dev $2";
                let kept = kept_state(pod)?;
                return pod.exec(&["sh", "-c", lose, &kept]).map(drop);
            }
        };
        let rules = format!(
            "table inet fault {{ chain input {{ type filter hook input priority 0; \
             tcp dport {port} ct state new {verdict}; }}; }}"
        );
        pod.exec_with_input(&["nft", "-f", "-"], &rules).map(drop)
    }

    /// Ends it.
    fn end(self, pod: &Namespace) -> Result<()> {
        match self {
            Self::AddressLost => {
                let find = "set -- $(cat $0.address); ip addr add $4 dev $2; \
                            while read route; do ip route replace $route; done <$0.routes";
                let kept = kept_state(pod)?;
                pod.exec(&["sh", "-c", find, &kept]).map(drop)
            }
            _ => pod.exec(&["nft", "flush", "ruleset"]).map(drop),
        }
    }
}

/// Where the address and the route of a pod are kept while it lacks them.
fn kept_state(pod: &Namespace) -> Result<String> {
    let path = scratch(&format!("fault/{}", pod.host.name))?;
    Ok(path.display().to_string())
}

/// The outcomes of connections that begin within half a second.
fn outcomes(from: &Namespace, to: SocketAddr, count: u32) -> Result<Vec<Outcome>> {
    thread::scope(|scope| {
        let clients: Vec<_> = (0..count)
            .map(|number| {
                scope.spawn(move || {
                    thread::sleep(Duration::from_millis(500) * number / count);
                    from.ask_within(Protocol::Tcp, to, CONNECT_TIMEOUT)
                })
            })
            .collect();
        let outcomes = clients.into_iter().map(|client| {
            client
                .join()
                .unwrap_or_else(|cause| std::panic::resume_unwind(cause))
        });
        outcomes.collect()
    })
}

/// Asserts that each connection was answered; returns by whom.
fn assert_answered(outcomes: Vec<Outcome>, of: &str) -> Result<Vec<String>> {
    let answered = outcomes.into_iter().map(|outcome| {
        let answer = outcome
            .answer()
            .map_err(|error| LabError::Unexpected(format!("{of}: {error}")))?;
        Ok(answer.by)
    });
    answered.collect()
}
