//! What conntrack remembers of a client's attempts.

use std::{net::SocketAddr, thread, time::Duration};

use contiv_model::{Flow, Protocol};
use contiv_node::diagnosis::Attempt;
use contiv_renderer::packet_path::{KernelSettings, KnownFlow, NodeInspector, PathError, TcpState};

/// An attempt with so few seconds left may have a shorter limit than others, that of failover.
const SHORT_LIMIT_SECONDS: u32 = 5;
/// What is sent is acknowledged within this time, at one of so many moments.
const ACKNOWLEDGE_INTERVAL: Duration = Duration::from_millis(400);
const ACKNOWLEDGE_LOOKS: usize = 4;
/// Connections may be idle for so many times longer than what is sent may stay unacknowledged; otherwise both look the same.
const MIN_LIMIT_RATIO: u32 = 10;

/// The attempts of the client of a flow at its destination, and how many of them are not over. A connection whose data waits for an
/// acknowledgement is looked at several times.
pub(super) fn read(
    node: &mut NodeInspector,
    flow: &Flow,
) -> Result<(Vec<Attempt>, usize), PathError> {
    let destination = SocketAddr::new(flow.to(), flow.port());
    let mut looks = 0;
    loop {
        let known = node.flows(flow.protocol(), flow.from(), destination)?;
        let settings = node.settings();
        let attempt = |flow: KnownFlow| {
            let limits = limits(&flow, settings);
            let left = flow.seconds_left;
            let is_unacknowledged = limits.is_some_and(|it| it.is_unacknowledged(left));
            Attempt {
                age: limits.and_then(|it| it.age(left)).unwrap_or(0),
                flow,
                is_unacknowledged,
            }
        };
        let attempts: Vec<Attempt> = known.flows.into_iter().map(attempt).collect();
        looks += 1;
        let is_open = attempts.iter().any(|attempt| attempt.is_unacknowledged);
        let is_stalled = attempts.iter().any(Attempt::is_stalled);
        if !is_open || is_stalled || looks == ACKNOWLEDGE_LOOKS {
            return Ok((attempts, known.open));
        }
        thread::sleep(ACKNOWLEDGE_INTERVAL);
    }
}

/// After how many seconds without a packet the kernel forgets a connection.
#[derive(Debug, Clone, Copy)]
struct Limits {
    usual: u32,
    /// While what was sent is not acknowledged; none if that does not matter, or cannot be told.
    unacknowledged: Option<u32>,
}

impl Limits {
    fn is_unacknowledged(self, left: Option<u32>) -> bool {
        let limit = self.unacknowledged.zip(left);
        limit.is_some_and(|(limit, left)| left <= limit)
    }

    /// Seconds since the last packet, at least.
    fn age(self, left: Option<u32>) -> Option<u32> {
        let limit = self.unacknowledged.filter(|_| self.is_unacknowledged(left));
        limit.unwrap_or(self.usual).checked_sub(left?)
    }
}

/// A connection may have limits of its own, as those of failover have; none if they are not known.
fn limits(flow: &KnownFlow, settings: &KernelSettings) -> Option<Limits> {
    let timeout = match (flow.tcp_state, flow.protocol) {
        (Some(state), _) => match state {
            TcpState::SynSent | TcpState::SynSent2 => "tcp_timeout_syn_sent",
            TcpState::SynReceived => "tcp_timeout_syn_recv",
            TcpState::Established => "tcp_timeout_established",
            TcpState::FinWait => "tcp_timeout_fin_wait",
            TcpState::CloseWait => "tcp_timeout_close_wait",
            TcpState::LastAck => "tcp_timeout_last_ack",
            TcpState::TimeWait => "tcp_timeout_time_wait",
            TcpState::Close => "tcp_timeout_close",
            TcpState::None => return None,
        },
        (None, Protocol::Udp) if flow.is_assured => "udp_timeout_stream",
        (None, Protocol::Udp) => "udp_timeout",
        (None, _) => return None,
    };
    if timeout == "tcp_timeout_syn_sent" && flow.seconds_left? <= SHORT_LIMIT_SECONDS {
        return None;
    }
    let limit = |name: &str| {
        let limit = settings.number(&format!("net/netfilter/nf_conntrack_{name}"))?;
        u32::try_from(limit).ok()
    };
    let usual = limit(timeout)?;
    let unacknowledged = (flow.tcp_state == Some(TcpState::Established))
        .then(|| limit("tcp_timeout_unacknowledged"))
        .flatten()
        .filter(|limit| limit.saturating_mul(MIN_LIMIT_RATIO) <= usual);
    Some(Limits {
        usual,
        unacknowledged,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn age_of_unacknowledged_connection_counts_from_its_own_limit() {
        let limits = |unacknowledged| Limits {
            usual: 432_000,
            unacknowledged,
        };
        let of = |limits: Limits, left| (limits.is_unacknowledged(left), limits.age(left));
        assert_eq!(of(limits(Some(300)), Some(431_990)), (false, Some(10)));
        assert_eq!(of(limits(Some(300)), Some(297)), (true, Some(3)));
        assert_eq!(of(limits(None), Some(297)), (false, Some(431_703)));
        assert_eq!(of(limits(Some(300)), Some(500_000)), (false, None));
        assert_eq!(of(limits(Some(300)), None), (false, None));
    }
}
