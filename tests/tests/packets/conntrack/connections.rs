//! TCP and SCTP connections to a removed backend: they are kept until they end by themselves, unless the service requests a reset.

use contiv_model::{ContivService, Protocol};
use contiv_tests::lab::{Family, Lab, Protocol as LabProtocol, Result, isolated, wait_until};

use crate::gateway::{EVENT_TIMEOUT, Gateway, PORT, address, service};

fn with_reset(reset_connections: bool, service: ContivService) -> ContivService {
    ContivService {
        reset_connections,
        ..service
    }
}

/// Waits until all earlier changes were processed: adds a service whose address has an untranslated flow, and waits until that
/// flow is deleted.
fn wait_until_processed(
    gateway: &mut Gateway<'_>,
    services: &[&ContivService],
    deleted_before: usize,
) -> Result<()> {
    let from = &gateway.lab.pod2;
    gateway.send(from, &from.open(LabProtocol::Udp, address(99, Family::V4))?)?;
    let marker = service("marker", 99, Protocol::Udp, &[]);
    gateway.program(&[services, &[&marker]].concat())?;
    gateway.wait_for_deletions(deleted_before + 1)?;
    Ok(())
}

/// Removes the backend of an open connection, and sends on that connection. Returns the name of the host that answers, or the
/// error. `has_other_backend`: the service then has another backend instead of none.
fn answer_after_removal(
    lab: &Lab,
    family: Family,
    reset: bool,
    has_other_backend: bool,
) -> Result<String> {
    let mut gateway = Gateway::start(lab)?;
    gateway.program(&[&with_reset(
        reset,
        service("web", 1, Protocol::Tcp, &[&lab.pod3]),
    )])?;
    let mut session = lab.pod1.open(LabProtocol::Tcp, address(1, family))?;
    assert_eq!(session.ask()?.by, "pod3");
    let remaining: &[_] = if has_other_backend { &[&lab.pod2] } else { &[] };
    let after = with_reset(reset, service("web", 1, Protocol::Tcp, remaining));
    gateway.program(&[&after])?;
    if reset {
        gateway.wait_for_deletions(1)?;
    } else {
        wait_until_processed(&mut gateway, &[&after], 0)?;
    }
    Ok(session
        .ask()
        .map_or_else(|error| error.to_string(), |answer| answer.by))
}

#[test]
fn connections_to_removed_backend_are_reset_on_request() -> Result<()> {
    isolated(
        "conntrack::connections::connections_to_removed_backend_are_reset_on_request",
        |lab| {
            let seen = answer_after_removal(lab, Family::V4, true, true)?;
            assert!(seen.contains("reset"), "{seen}");
            Ok(())
        },
    )
}

#[test]
fn ipv6_connections_are_reset_without_remaining_backend() -> Result<()> {
    isolated(
        "conntrack::connections::ipv6_connections_are_reset_without_remaining_backend",
        |lab| {
            let seen = answer_after_removal(lab, Family::V6, true, false)?;
            assert!(seen.contains("reset"), "{seen}");
            Ok(())
        },
    )
}

#[test]
fn connections_to_removed_backend_are_kept_by_default() -> Result<()> {
    isolated(
        "conntrack::connections::connections_to_removed_backend_are_kept_by_default",
        |lab| {
            assert_eq!(answer_after_removal(lab, Family::V4, false, true)?, "pod3");
            Ok(())
        },
    )
}

#[test]
fn connection_attempt_succeeds_once_service_exists() -> Result<()> {
    isolated(
        "conntrack::connections::connection_attempt_succeeds_once_service_exists",
        |lab| {
            let mut gateway = Gateway::start(lab)?;
            std::thread::scope(|scope| {
                // The first SYN leaves untranslated; it is retransmitted after a second.
                let attempt =
                    scope.spawn(|| lab.pod1.ask(LabProtocol::Tcp, address(1, Family::V4)));
                wait_until("the SYN has left", EVENT_TIMEOUT, || {
                    gateway.flows("tcp").is_ok_and(|flows| !flows.is_empty())
                })?;
                gateway.program(&[&service("web", 1, Protocol::Tcp, &[&lab.pod3])])?;
                gateway.wait_for_deletions(1)?;
                let outcome = attempt
                    .join()
                    .unwrap_or_else(|cause| std::panic::resume_unwind(cause))?;
                assert_eq!(outcome.answer()?.by, "pod3");
                Ok(())
            })
        },
    )
}

#[test]
fn sctp_associations_are_reset_only_on_request() -> Result<()> {
    isolated(
        "conntrack::connections::sctp_associations_are_reset_only_on_request",
        |lab| {
            let mut gateway = Gateway::start(lab)?;
            let with = |backends: &[_]| {
                let kept = service("kept", 1, Protocol::Sctp, backends);
                (
                    kept,
                    with_reset(true, service("reset", 2, Protocol::Sctp, backends)),
                )
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
            let left: Vec<_> = gateway
                .flows("sctp")?
                .into_values()
                .map(|flow| flow.destination)
                .collect();
            assert_eq!(left, [address(1, Family::V4)]);
            Ok(())
        },
    )
}
