//! A service changes from one renderer to the other and back under load.

use contiv_tests::{
    cluster::{Frontend, Manifests},
    lab::{Family, Protocol, Result, Server, isolated},
};

use super::{Backend, hold_addresses, put, start, translated, wait_for_carrier, web};

const ROUNDS: usize = 3;

#[test]
fn switching_renderers_back_and_forth_fails_no_connection() -> Result<()> {
    isolated(
        "routes::direct::switch::switching_renderers_back_and_forth_fails_no_connection",
        |lab| {
            let _backends = [
                Backend::start(lab, &lab.pod1)?,
                Backend::start(lab, &lab.pod2)?,
            ];
            let state = Manifests::new(lab)?;
            let agent = start(&lab.node, &state, &[])?;
            let backends = [lab.pod1.host, lab.pod2.host];
            put(&state, &[&agent], &translated(&backends), "nftables")?;
            let service = web(&[]).service;
            let [v4, v6] =
                Family::BOTH.map(|family| service.address(lab, Frontend::ClusterIp, family));
            let mut sessions = Vec::new();
            let mut change = || {
                for _ in 0..ROUNDS {
                    for (manifest, carrier) in [
                        (web(&backends), "route"),
                        (translated(&backends), "nftables"),
                    ] {
                        for address in [v4, v6] {
                            let mut session = lab.client.open(Protocol::Tcp, address)?;
                            let by = session.ask()?.by;
                            sessions.push((session, by));
                        }
                        put(&state, &[&agent], &manifest, carrier)?;
                        for (session, by) in &mut sessions {
                            assert_eq!(session.ask()?.by, *by, "established connections go on");
                        }
                    }
                }
                Ok(())
            };
            let answered = lab.client.ask_while(Protocol::Tcp, v4, || {
                lab.pod2
                    .ask_while(Protocol::Udp, v6, || {
                        lab.node.ask_while(Protocol::Tcp, v6, &mut change).map(drop)
                    })
                    .map(drop)
            })?;
            assert!(answered > 0);
            Ok(())
        },
    )
}

#[test]
fn no_connection_fails_when_configuration_changes_with_restart() -> Result<()> {
    isolated(
        "routes::direct::switch::no_connection_fails_when_configuration_changes_with_restart",
        |lab| {
            let _backends = [
                Backend::start(lab, &lab.pod1)?,
                Backend::start(lab, &lab.pod2)?,
            ];
            let state = Manifests::new(lab)?;
            let backends = [lab.pod1.host, lab.pod2.host];
            let agent = start(&lab.node, &state, &[])?;
            put(&state, &[&agent], &translated(&backends), "nftables")?;
            let address = web(&[])
                .service
                .address(lab, Frontend::ClusterIp, Family::V4);
            let answered = lab.client.ask_while(Protocol::Tcp, address, || {
                let mut agent = agent;
                let mut sessions = Vec::new();
                for (flag, carrier) in [
                    ("--route-direct=true", "route"),
                    ("--route-direct=false", "nftables"),
                ] {
                    let mut session = lab.client.open(Protocol::Tcp, address)?;
                    let by = session.ask()?.by;
                    sessions.push((session, by));
                    agent.stop()?;
                    agent = start(&lab.node, &state, &[flag])?;
                    wait_for_carrier(&agent, carrier)?;
                    agent.wait_until_applied(&web(&backends).service)?;
                    for (session, by) in &mut sessions {
                        assert_eq!(session.ask()?.by, *by, "established connections go on");
                    }
                }
                Ok(())
            })?;
            assert!(answered > 0);
            Ok(())
        },
    )
}

#[test]
fn restart_never_translates_services_carried_by_routes() -> Result<()> {
    isolated(
        "routes::direct::switch::restart_never_translates_services_carried_by_routes",
        |lab| {
            let state = Manifests::new(lab)?;
            let backends = [lab.pod1.host];
            let agent = start(&lab.node, &state, &[])?;
            put(&state, &[&agent], &web(&backends), "route")?;
            let address = web(&[])
                .service
                .address(lab, Frontend::ClusterIp, Family::V4);
            hold_addresses(lab, &lab.pod1)?;
            // No server listens on the pod's own address, to which translated packets go.
            let _server = Server::start(&lab.pod1, "pod1", Protocol::Udp, address)?;
            let answered = lab.client.ask_while(Protocol::Udp, address, || {
                let mut agent = agent;
                for _ in 0..ROUNDS {
                    agent.stop()?;
                    agent = start(&lab.node, &state, &[])?;
                    wait_for_carrier(&agent, "route")?;
                    agent.wait_until_applied(&web(&backends).service)?;
                }
                Ok(())
            })?;
            assert!(answered > 0);
            Ok(())
        },
    )
}
