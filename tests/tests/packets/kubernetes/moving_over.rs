//! Migration from kube-proxy to contiv on a running node, and back, under continuous connections.

use std::{thread, time::Duration};

use contiv_tests::{
    agent::{Agent, AgentOptions, binary},
    cluster::{Frontend, Service, TARGET_PORT},
    lab::{Family, Lab, Protocol, Responder, Result, Session, isolated},
};

use crate::{
    kube_proxy_rules::{
        Service as ProxyService, iptables,
        nftables::{self, Layout},
    },
    kubernetes::cluster::Kubernetes,
};

/// The length of each stage, enough for many connections.
const STAGE_DURATION: Duration = Duration::from_millis(700);

/// An open connection, and the server of its first answer.
struct OpenConnection {
    session: Session,
    by: String,
}

/// Opens long-lived connections from outside, from a pod and from the node.
fn open(lab: &Lab, service: &Service) -> Result<Vec<OpenConnection>> {
    let mut open = Vec::new();
    for family in Family::BOTH {
        for (from, frontend) in [
            (&lab.client, Frontend::NodePort),
            (&lab.client, Frontend::LoadBalancer),
            (&lab.pod2, Frontend::ClusterIp),
            (&lab.node, Frontend::ClusterIp),
        ] {
            let mut session = from.open(Protocol::Tcp, service.address(lab, frontend, family))?;
            let by = session.ask()?.by;
            open.push(OpenConnection { session, by });
        }
    }
    Ok(open)
}

/// Checks that each connection still works with the same server.
fn check(open: &mut [OpenConnection], stage: &str) -> Result<()> {
    for OpenConnection { session, by } in open {
        assert_eq!(
            session.ask()?.by,
            *by,
            "an open connection stays with its backend: {stage}"
        );
    }
    Ok(())
}

/// A mode of kube-proxy: how its rules come and go.
struct Mode {
    load: fn(&Lab, &Service) -> Result<()>,
    remove: fn(&Lab) -> Result<()>,
    is_there: fn(&Lab) -> Result<bool>,
}

/// The proxies whose rules the node has: contiv's, and kube-proxy's.
fn proxies(lab: &Lab, mode: &Mode) -> Result<[bool; 2]> {
    let tables = lab.node.exec(&["nft", "list", "tables"])?;
    Ok([
        tables.lines().any(|table| table == "table inet contiv"),
        (mode.is_there)(lab)?,
    ])
}

/// The move of a node from kube-proxy to contiv and back.
fn move_there_and_back(lab: &Lab, mode: &Mode) -> Result<()> {
    let _responders = Responder::start_all(lab.pods(), TARGET_PORT)?;
    let web = Service::new("web", 80, &[lab.pod1.host, lab.pod3.host]);
    let kubernetes = Kubernetes::start(lab)?;
    kubernetes.put(&web)?;
    let options = AgentOptions::with_store(kubernetes.url()?);
    (mode.load)(lab, &web)?;
    let mut open_before = open(lab, &web)?;
    let moves = || -> Result<()> {
        thread::sleep(STAGE_DURATION);
        let agent = Agent::start(lab, &options)?;
        assert_eq!(proxies(lab, mode)?, [true, true]);
        let mut open_beside = open(lab, &web)?;
        thread::sleep(STAGE_DURATION);
        (mode.remove)(lab)?;
        assert_eq!(proxies(lab, mode)?, [true, false]);
        check(
            &mut open_before,
            "opened under kube-proxy, now under contiv",
        )?;
        check(&mut open_beside, "opened under both, now under contiv")?;
        let mut open_after = open(lab, &web)?;
        thread::sleep(STAGE_DURATION);

        (mode.load)(lab, &web)?;
        assert_eq!(proxies(lab, mode)?, [true, true]);
        thread::sleep(STAGE_DURATION);
        assert!(agent.stop()?.success());
        lab.node.exec(&[&binary()?.to_string_lossy(), "cleanup"])?;
        assert_eq!(proxies(lab, mode)?, [false, true]);
        thread::sleep(STAGE_DURATION);
        check(&mut open_before, "opened under kube-proxy, there and back")?;
        check(&mut open_beside, "opened under both, back under kube-proxy")?;
        check(&mut open_after, "opened under contiv, now under kube-proxy")
    };
    let address = |frontend, family| web.address(lab, frontend, family);
    let mut answered = [0; 4];
    let [outside4, outside6, pod, node] = &mut answered;
    *outside4 = lab.client.ask_while(
        Protocol::Tcp,
        address(Frontend::NodePort, Family::V4),
        || {
            *outside6 = lab.client.ask_while(
                Protocol::Tcp,
                address(Frontend::ExternalIp, Family::V6),
                || {
                    *pod = lab.pod2.ask_while(
                        Protocol::Tcp,
                        address(Frontend::ClusterIp, Family::V4),
                        || {
                            let cluster_ip = address(Frontend::ClusterIp, Family::V6);
                            *node = lab.node.ask_while(Protocol::Tcp, cluster_ip, moves)?;
                            Ok(())
                        },
                    )?;
                    Ok(())
                },
            )?;
            Ok(())
        },
    )?;
    assert!(
        answered.iter().all(|answered| *answered > 100),
        "too few were tried: {answered:?}"
    );
    Ok(())
}

#[test]
fn node_moves_from_kube_proxy_and_back_without_lost_connections() -> Result<()> {
    let test =
        "kubernetes::moving_over::node_moves_from_kube_proxy_and_back_without_lost_connections";
    let mode = Mode {
        load: |lab, web| {
            let services = [ProxyService::of(lab, web)];
            nftables::load(lab, &services, Layout::UpTo135, |piece| piece)
        },
        remove: nftables::remove,
        is_there: nftables::is_there,
    };
    isolated(test, |lab| move_there_and_back(lab, &mode))
}

#[test]
fn node_moves_from_iptables_and_back_without_lost_connections() -> Result<()> {
    let test =
        "kubernetes::moving_over::node_moves_from_iptables_and_back_without_lost_connections";
    let mode = Mode {
        load: |lab, web| {
            let services = [ProxyService::of(lab, web)];
            iptables::load(lab, &services, |line| Some(line.to_owned()))
        },
        remove: iptables::remove,
        is_there: iptables::is_there,
    };
    isolated(test, |lab| move_there_and_back(lab, &mode))
}
