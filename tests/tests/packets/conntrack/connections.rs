//! TCP and SCTP: connections end by themselves, unless the service requests a reset.

use contiv_model::{ContivService, Protocol};
use contiv_tests::lab::{Family, Lab, Protocol as LabProtocol, Result, isolated, wait_until};

use crate::conntrack::gateway::{EVENT_TIMEOUT, Gateway, PORT, address, service};

fn resetting(reset_connections: bool, service: ContivService) -> ContivService {
    ContivService { reset_connections, ..service }
}

/// Deletes a flow that was never translated and waits for that, which shows that all earlier changes were processed.
fn settle(gateway: &mut Gateway<'_>, services: &[&ContivService], deleted_before: usize) -> Result<()> {
    let from = &gateway.lab.pod2;
    gateway.send(from, &from.open(LabProtocol::Udp, address(99, Family::V4))?)?;
    let mark = service("mark", 99, Protocol::Udp, &[]);
    gateway.program(&[services, &[&mark]].concat())?;
    gateway.wait_for_deletions(deleted_before + 1)?;
    Ok(())
}

/// The result for a client with an open connection when its only possible backend is replaced by `left`.
fn after_the_backend_went(lab: &Lab, family: Family, reset: bool, left: bool) -> Result<String> {
    let mut gateway = Gateway::start(lab)?;
    gateway.program(&[&resetting(reset, service("web", 1, Protocol::Tcp, &[&lab.pod3]))])?;
    let mut session = lab.pod1.open(LabProtocol::Tcp, address(1, family))?;
    assert_eq!(session.ask()?.by, "pod3");
    let left: &[_] = if left { &[&lab.pod2] } else { &[] };
    let after = resetting(reset, service("web", 1, Protocol::Tcp, left));
    gateway.program(&[&after])?;
    if reset {
        gateway.wait_for_deletions(1)?;
    } else {
        settle(&mut gateway, &[&after], 0)?;
    }
    Ok(session.ask().map_or_else(|error| error.to_string(), |answer| answer.by))
}

#[test]
fn connections_to_a_removed_backend_are_reset_on_request() -> Result<()> {
    isolated("conntrack::connections::connections_to_a_removed_backend_are_reset_on_request", |lab| {
        let seen = after_the_backend_went(lab, Family::V4, true, true)?;
        assert!(seen.contains("reset"), "{seen}");
        Ok(())
    })
}

#[test]
fn they_are_reset_too_where_no_backend_is_left_and_for_ipv6() -> Result<()> {
    isolated("conntrack::connections::they_are_reset_too_where_no_backend_is_left_and_for_ipv6", |lab| {
        let seen = after_the_backend_went(lab, Family::V6, true, false)?;
        assert!(seen.contains("reset"), "{seen}");
        Ok(())
    })
}

#[test]
fn otherwise_connections_live_on_as_long_as_their_backend_does() -> Result<()> {
    isolated("conntrack::connections::otherwise_connections_live_on_as_long_as_their_backend_does", |lab| {
        assert_eq!(after_the_backend_went(lab, Family::V4, false, true)?, "pod3");
        Ok(())
    })
}

#[test]
fn connection_attempt_before_the_service_succeeds_when_it_comes() -> Result<()> {
    isolated("conntrack::connections::connection_attempt_before_the_service_succeeds_when_it_comes", |lab| {
        let mut gateway = Gateway::start(lab)?;
        std::thread::scope(|scope| {
            // Its first SYN leaves untranslated; the second follows after a second.
            let attempt = scope.spawn(|| lab.pod1.ask(LabProtocol::Tcp, address(1, Family::V4)));
            wait_until("the SYN has left", EVENT_TIMEOUT, || {
                gateway.flows("tcp").is_ok_and(|flows| !flows.is_empty())
            })?;
            gateway.program(&[&service("web", 1, Protocol::Tcp, &[&lab.pod3])])?;
            gateway.wait_for_deletions(1)?;
            let outcome = attempt.join().unwrap_or_else(|cause| std::panic::resume_unwind(cause))?;
            assert_eq!(outcome.answer()?.by, "pod3");
            Ok(())
        })
    })
}

#[test]
fn sctp_associations_follow_same_rule() -> Result<()> {
    isolated("conntrack::connections::sctp_associations_follow_same_rule", |lab| {
        let mut gateway = Gateway::start(lab)?;
        let with = |backends: &[_]| {
            let kept = service("kept", 1, Protocol::Sctp, backends);
            (kept, resetting(true, service("reset", 2, Protocol::Sctp, backends)))
        };
        let (kept, reset) = with(&[&lab.pod3]);
        gateway.program(&[&kept, &reset])?;
        for number in [1, 2] {
            let to = address(number, Family::V4).ip();
            let (source, backend) = (lab.pod1.host.v4, lab.pod3.host.v4);
            let port = 40_000 + u16::from(number);
            let flow = format!(
                "conntrack -I -p sctp --state ESTABLISHED -t 100 -u SEEN_REPLY,ASSURED --orig-vtag 1 \
                 --reply-vtag 2 -s {source} -d {to} --sport {port} --dport {PORT} -r {backend} -q {source} \
                 --reply-port-src {PORT} --reply-port-dst {port}"
            );
            lab.node.exec(&flow.split(' ').collect::<Vec<_>>())?;
        }
        let (kept, reset) = with(&[&lab.pod2]);
        gateway.program(&[&kept, &reset])?;
        gateway.wait_for_deletions(1)?;
        let left: Vec<_> = gateway.flows("sctp")?.into_values().map(|flow| flow.destination).collect();
        assert_eq!(left, [address(1, Family::V4)]);
        Ok(())
    })
}
