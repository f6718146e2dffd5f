//! Changes while no renderer was running.

use contiv_model::Protocol;
use contiv_tests::lab::{Family, Protocol as LabProtocol, Result, Session, isolated};

use crate::gateway::{Gateway, address, service};

#[test]
fn restart_deletes_exactly_the_flows_of_removed_backends() -> Result<()> {
    isolated(
        "conntrack::restart::restart_deletes_exactly_the_flows_of_removed_backends",
        |lab| {
            let mut gateway = Gateway::start(lab)?;
            let [changed, removed, same] = [("changed", 1), ("removed", 2), ("same", 3)]
                .map(|(name, number)| service(name, number, Protocol::Udp, &[&lab.pod3]));
            gateway.program(&[&changed, &removed, &same])?;
            let open = |number| -> Result<Session> {
                let mut session = lab
                    .pod1
                    .open(LabProtocol::Udp, address(number, Family::V4))?;
                assert_eq!(session.ask()?.by, "pod3");
                Ok(session)
            };
            let (mut to_changed, to_removed, to_same) = (open(1)?, open(2)?, open(3)?);
            let flow_of =
                |gateway: &Gateway<'_>, session: &Session| gateway.flow_of(&lab.pod1, session);
            let before = flow_of(&gateway, &to_same)?;
            assert!(before.is_some());

            gateway.restart(&[&service("changed", 1, Protocol::Udp, &[&lab.pod2]), &same])?;
            gateway.wait_for_deletions(2)?;
            assert_eq!(flow_of(&gateway, &to_changed)?, None);
            assert_eq!(flow_of(&gateway, &to_removed)?, None);
            assert_eq!(
                flow_of(&gateway, &to_same)?,
                before,
                "a flow that is right outlives the restart"
            );
            assert_eq!(to_changed.ask()?.by, "pod2");
            Ok(())
        },
    )
}

#[test]
fn service_removed_together_with_the_table_loses_its_flows() -> Result<()> {
    isolated(
        "conntrack::restart::service_removed_together_with_the_table_loses_its_flows",
        |lab| {
            let mut gateway = Gateway::start(lab)?;
            let [removed, same] = [("removed", 1), ("same", 2)]
                .map(|(name, number)| service(name, number, Protocol::Udp, &[&lab.pod3]));
            gateway.program(&[&removed, &same])?;
            let open = |number| -> Result<Session> {
                let mut session = lab
                    .pod1
                    .open(LabProtocol::Udp, address(number, Family::V4))?;
                assert_eq!(session.ask()?.by, "pod3");
                Ok(session)
            };
            let (to_removed, to_same) = (open(1)?, open(2)?);
            // So the kernel no longer has the backends, and only the renderer knows them.
            lab.node.exec(&["nft", "delete table inet contiv"])?;
            gateway.resync(&[&same])?;
            gateway.wait_for_deletions(1)?;
            assert_eq!(gateway.flow_of(&lab.pod1, &to_removed)?, None);
            assert!(gateway.flow_of(&lab.pod1, &to_same)?.is_some());
            Ok(())
        },
    )
}

#[test]
fn flow_older_than_its_service_is_refused_after_a_restart() -> Result<()> {
    isolated(
        "conntrack::restart::flow_older_than_its_service_is_refused_after_a_restart",
        |lab| {
            let mut gateway = Gateway::start(lab)?;
            let mut session = lab.pod1.open(LabProtocol::Udp, address(1, Family::V4))?;
            gateway.send(&lab.pod1, &session)?;
            gateway.restart(&[&service("empty", 1, Protocol::Udp, &[])])?;
            gateway.wait_for_deletions(1)?;
            let refusal = session
                .ask()
                .map_err(|error| error.to_string())
                .err()
                .unwrap_or_default();
            assert!(refusal.contains("refused"), "{refusal}");
            Ok(())
        },
    )
}
