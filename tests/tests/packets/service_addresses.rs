//! Every address of a service from every source: which backend answers, and which source address it sees.

use std::{collections::BTreeSet, net::IpAddr};

use contiv_tests::{
    agent::{Agent, AgentOptions},
    cluster::{Etcd, Frontend, Manifests, Service, State, TARGET_PORT},
    lab::{Family, Lab, LabError, Namespace, Protocol, Responder, Result, ServerReply, isolated},
};

use crate::explained::check_explanation;

/// By chance one of three equal backends is missed once in 10^10 runs.
const CONNECTIONS: usize = 60;

#[test]
fn addresses_answer_from_everywhere_with_manifests() -> Result<()> {
    isolated(
        "service_addresses::addresses_answer_from_everywhere_with_manifests",
        |lab| every_address_answers_from_everywhere(lab, &Manifests::new(lab)?),
    )
}

#[test]
fn every_address_answers_from_everywhere_with_state_in_etcd() -> Result<()> {
    isolated(
        "service_addresses::every_address_answers_from_everywhere_with_state_in_etcd",
        |lab| every_address_answers_from_everywhere(lab, &Etcd::start(lab)?),
    )
}

/// Packets to a backend in the network of the node do not leave, so nothing masquerades them, with any policy.
#[test]
fn backend_on_the_node_itself_sees_the_client() -> Result<()> {
    isolated(
        "service_addresses::backend_on_the_node_itself_sees_the_client",
        |lab| {
            let _responder = Responder::start(&lab.node, TARGET_PORT)?;
            let state = Manifests::new(lab)?;
            let web = Service::new("web", 80, &[lab.node.host]);
            state.put(&web)?;
            let agent = Agent::start(lab, &AgentOptions::with_store(state.url()))?;
            let of_node = addresses_of(&lab.node)?;
            for (from, frontend, family, protocol) in flows([&lab.pod1, &lab.node, &lab.client]) {
                let address = web.address(lab, frontend, family);
                let flow = format!(
                    "{} -> {address} ({frontend:?}, {protocol:?})",
                    from.host.name
                );
                let answer = from.ask(protocol, address)?.answer()?;
                assert_eq!(answer.by, lab.node.host.name, "{flow}");
                if from.host == lab.node.host {
                    assert!(
                        of_node.contains(&answer.seen_source.ip()),
                        "{flow}: {answer:?}"
                    );
                } else {
                    assert_eq!(answer.seen_source.ip(), from.host.address(family), "{flow}");
                }
                let (client, to, port) = (from.host.address(family), address.ip(), address.port());
                let name = format!("{protocol:?}").to_uppercase();
                let query = format!("from={client}&to={to}&port={port}&protocol={name}");
                check_explanation(lab, &agent, &query, "SERVED by one backend")?;
            }
            Ok(())
        },
    )
}

fn every_address_answers_from_everywhere(lab: &Lab, state: &dyn State) -> Result<()> {
    let _responders = Responder::start_all(lab.pods(), TARGET_PORT)?;
    let backends = [&lab.pod1, &lab.pod2, &lab.pod3].map(|pod| pod.host);
    let web = Service::new("web", 80, &backends);
    state.put(&web)?;
    let _agent = Agent::start(lab, &AgentOptions::with_store(state.url()))?;
    let names: BTreeSet<&str> = backends.iter().map(|host| host.name).collect();
    let of_node = addresses_of(&lab.node)?;
    for (from, frontend, family, protocol) in flows([&lab.pod1, &lab.node, &lab.client]) {
        let address = web.address(lab, frontend, family);
        let flow = format!(
            "{} -> {address} ({frontend:?}, {protocol:?})",
            from.host.name
        );
        let answers = from
            .answers(protocol, address, CONNECTIONS)
            .map_err(|error| LabError::Unexpected(format!("{flow}: {error}")))?;
        let answered: BTreeSet<&str> = answers.iter().map(|answer| answer.by.as_str()).collect();
        assert_eq!(answered, names, "{flow}");
        for ServerReply { by, seen_source } in &answers {
            // As in kube-proxy's table, only a pod that connects to another one by cluster IP keeps its source address.
            let itself = frontend == Frontend::ClusterIp
                && from.host == lab.pod1.host
                && by != from.host.name;
            if itself {
                assert_eq!(
                    seen_source.ip(),
                    from.host.address(family),
                    "{flow} by {by}"
                );
            } else {
                assert!(
                    of_node.contains(&seen_source.ip()),
                    "{flow} by {by}: from {seen_source}"
                );
            }
        }
    }
    Ok(())
}

#[test]
fn pod_reaches_itself_through_its_own_service() -> Result<()> {
    isolated(
        "service_addresses::pod_reaches_itself_through_its_own_service",
        |lab| {
            let _responder = Responder::start(&lab.pod1, TARGET_PORT)?;
            let web = Service::new("web", 80, &[lab.pod1.host]);
            let state = Manifests::new(lab)?;
            state.put(&web)?;
            let _agent = Agent::start(lab, &AgentOptions::with_store(state.url()))?;
            for (from, frontend, family, protocol) in flows([&lab.pod1]) {
                let answer = from
                    .ask(protocol, web.address(lab, frontend, family))?
                    .answer()?;
                assert_eq!(answer.by, "pod1", "{frontend:?} {family:?} {protocol:?}");
                // If it were the pod's own address, the pod would answer itself directly and the client would not recognise the
                // answer. It is one of the node's at the pod's link.
                let seen = answer.seen_source.ip();
                let at_link =
                    lab.node
                        .exec(&["ip", "-brief", "address", "show", "dev", from.host.name])?;
                let is_at_link = at_link
                    .split([' ', '/'])
                    .any(|address| address.parse() == Ok(seen));
                assert!(
                    is_at_link,
                    "{frontend:?} {family:?} {protocol:?}: {seen} is not in {at_link}"
                );
            }
            Ok(())
        },
    )
}

#[test]
fn packets_to_other_addresses_are_not_affected() -> Result<()> {
    isolated(
        "service_addresses::packets_to_other_addresses_are_not_affected",
        |lab| {
            let _responders = Responder::start_all(lab.pods(), TARGET_PORT)?;
            let _others = Responder::start_all([&lab.node, &lab.node2], TARGET_PORT)?;
            let state = Manifests::new(lab)?;
            state.put(&Service::new("web", 80, &[lab.pod1.host]))?;
            let _agent = Agent::start(lab, &AgentOptions::with_store(state.url()))?;
            for (family, protocol) in Family::BOTH
                .into_iter()
                .flat_map(|f| Protocol::ALL.map(|p| (f, p)))
            {
                for to in [&lab.node, &lab.node2] {
                    let answer = lab
                        .client
                        .ask(protocol, to.host.socket(family, TARGET_PORT))?
                        .answer()?;
                    assert_eq!(
                        (answer.by.as_str(), answer.seen_source.ip()),
                        (to.host.name, lab.client.host.address(family))
                    );
                }
                for to in [&lab.pod2, &lab.pod3] {
                    let answer = lab
                        .pod1
                        .ask(protocol, to.host.socket(family, TARGET_PORT))?
                        .answer()?;
                    assert_eq!(
                        (answer.by.as_str(), answer.seen_source.ip()),
                        (to.host.name, lab.pod1.host.address(family))
                    );
                }
            }
            Ok(())
        },
    )
}

fn flows<const N: usize>(
    from: [&Namespace; N],
) -> impl Iterator<Item = (&Namespace, Frontend, Family, Protocol)> {
    from.into_iter()
        .flat_map(|from| Frontend::ALL.map(|frontend| (from, frontend)))
        .flat_map(|(from, frontend)| Family::BOTH.map(|family| (from, frontend, family)))
        .flat_map(|(from, frontend, family)| {
            Protocol::ALL.map(|protocol| (from, frontend, family, protocol))
        })
}

/// All addresses of a host in the kernel.
fn addresses_of(host: &Namespace) -> Result<BTreeSet<IpAddr>> {
    let listed = host.exec(&["ip", "-oneline", "address"])?;
    let addresses = listed.lines().filter_map(|line| {
        line.split_whitespace()
            .nth(3)?
            .split('/')
            .next()?
            .parse()
            .ok()
    });
    Ok(addresses.collect())
}
