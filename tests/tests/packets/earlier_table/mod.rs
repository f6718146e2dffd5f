//! Tables of an earlier layout are brought over at the start of the agent, and back by an agent of that version: established
//! connections continue, and clients keep their backends.

use contiv_tests::{
    agent::{Agent, AgentOptions},
    cluster::{Frontend, Manifests, Service, ServiceManifest, State, TARGET_PORT},
    lab::{Family, Lab, LabError, Protocol, Responder, Result, isolated, load_ruleset},
};

use tempfile::TempDir;

use super::diff::{diff, write};

/// The output of `contiv render -o nft` for the services of this test when each frontend was an element with a verdict.
const VERDICT_MAPS: &str = include_str!("verdict-maps.nft");

/// The same when connections without a backend were refused at the hooks input, forward and output.
const FILTER_CHAINS: &str = include_str!("filter-chains.nft");

/// A service whose clients are remembered. With IPv6 too nft 1.0.6 could not load the table.
const STICKY: &str = "apiVersion: v1
kind: Service
metadata: {name: sticky, namespace: default}
spec:
  type: LoadBalancer
  clusterIP: 10.96.0.82
  clusterIPs: [10.96.0.82]
  ipFamilies: [IPv4]
  externalIPs: [192.0.2.82]
  ports:
  - {name: web, protocol: TCP, port: 80, targetPort: 8080, nodePort: 30082}
  - {name: web-udp, protocol: UDP, port: 80, targetPort: 8080, nodePort: 30082}
  - {name: web-sctp, protocol: SCTP, port: 80, targetPort: 8080, nodePort: 30082}
  sessionAffinity: ClientIP
  sessionAffinityConfig: {clientIP: {timeoutSeconds: 600}}
status:
  loadBalancer: {ingress: [{ip: 198.51.100.82}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: sticky-ipv4, namespace: default, labels: {kubernetes.io/service-name: sticky}}
addressType: IPv4
ports:
- {name: web, protocol: TCP, port: 8080}
- {name: web-udp, protocol: UDP, port: 8080}
- {name: web-sctp, protocol: SCTP, port: 8080}
endpoints:
- {addresses: ['10.244.1.10'], nodeName: node, conditions: {ready: true}}
- {addresses: ['10.244.2.10'], nodeName: node2, conditions: {ready: true}}
";

fn state(lab: &Lab) -> Result<(Manifests, Service)> {
    let state = Manifests::new(lab)?;
    let two = [lab.pod1.host, lab.pod3.host];
    let web = Service::new("web", 80, &two);
    state.put(&web)?;
    let local = ServiceManifest::new(Service::new("local", 81, &two));
    state.put_manifest(&ServiceManifest {
        external_local: true,
        ..local
    })?;
    state.write("sticky.yaml", STICKY)?;
    state.put(&Service::new("empty", 83, &[]))?;
    Ok((state, web))
}

#[test]
fn table_of_verdict_maps_is_brought_over_and_back() -> Result<()> {
    isolated(
        "earlier_table::table_of_verdict_maps_is_brought_over_and_back",
        |lab| over_and_back(lab, VERDICT_MAPS, "map unserved4", |_, start| start()),
    )
}

/// All its sets are those of the present layout, and stay. Where some are replaced, as in the other direction, a packet between its
/// first rule and the lookup in a map finds that empty in the microsecond of the commit.
#[test]
fn table_of_filter_chains_is_brought_over_without_a_failure() -> Result<()> {
    isolated(
        "earlier_table::table_of_filter_chains_is_brought_over_without_a_failure",
        |lab| {
            over_and_back(
                lab,
                FILTER_CHAINS,
                "chain filter-forward",
                no_connection_fails,
            )
        },
    )
}

/// Their connections end as those of this version do, except where services change.
#[test]
fn tables_of_earlier_versions_are_compared_by_connections() -> Result<()> {
    isolated(
        "earlier_table::tables_of_earlier_versions_are_compared_by_connections",
        |lab| {
            let (state, _) = state(lab)?;
            let files = TempDir::new().map_err(|error| LabError::Unexpected(error.to_string()))?;
            let text = format!(
                "node-name = {:?}\nstore = {:?}\n",
                lab.node.host.name,
                state.url()
            );
            let config = write(&files, "agent.toml", &text)?;
            for earlier in [VERDICT_MAPS, FILTER_CHAINS] {
                load_ruleset(&lab.node, earlier)?;
                let equal = diff(lab, &["--from-config", &config])?;
                assert_eq!(equal.code, Some(0), "{equal:#?}");
                assert!(
                    equal.out.contains("a table of another version"),
                    "{equal:#?}"
                );
                state.put(&Service::new("web", 80, &[lab.pod1.host]))?;
                let changed = diff(lab, &["--from-config", &config, "-o", "name"])?;
                assert_eq!(
                    (changed.code, changed.out.as_str()),
                    (Some(1), "default/web\n"),
                    "{changed:#?}"
                );
                state.put(&Service::new("web", 80, &[lab.pod1.host, lab.pod3.host]))?;
                lab.node
                    .exec(&["nft", "delete", "table", "inet", "contiv"])?;
            }
            Ok(())
        },
    )
}

/// Brings a table over and back, several times. Only an earlier layout has `feature`. `bring_over` starts the agent.
fn over_and_back(
    lab: &Lab,
    earlier: &str,
    feature: &str,
    bring_over: fn(&Lab, &mut dyn FnMut() -> Result<()>) -> Result<()>,
) -> Result<()> {
    let _responders = Responder::start_all(lab.pods(), TARGET_PORT)?;
    let (state, web) = state(lab)?;
    load_ruleset(&lab.node, earlier)?;
    let sticky = Service::new("sticky", 82, &[]).address(lab, Frontend::ClusterIp, Family::V4);
    let remembered = lab.pod2.ask(Protocol::Tcp, sticky)?.answer()?.by;
    let node_port = web.address(lab, Frontend::NodePort, Family::V4);
    let mut session = lab.client.open(Protocol::Tcp, node_port)?;
    let partner = session.ask()?;

    let options = AgentOptions::with_open_table(state.url());
    let listing = || {
        lab.node
            .exec(&["nft", "--stateless", "list", "table", "inet", "contiv"])
    };
    // An agent of that version finds a table that it does not know, and replaces it in one transaction.
    let back = format!("delete table inet contiv\n{earlier}");
    for round in 0..5 {
        let mut started = None;
        bring_over(lab, &mut || {
            started = Some(Agent::start(lab, &options)?);
            Ok(())
        })?;
        let new = listing()?;
        assert!(
            new.contains("chain refuse-prerouting") && !new.contains(feature),
            "{new}"
        );
        assert_eq!(session.ask()?, partner, "it keeps its backend");
        if round == 0 {
            let again = lab.pod2.distribution(Protocol::Tcp, sticky, 20)?;
            assert_eq!(
                again.into_keys().collect::<Vec<_>>(),
                std::slice::from_ref(&remembered)
            );
        }
        if let Some(agent) = started {
            agent.stop()?;
        }
        load_ruleset(&lab.node, &back)?;
        assert!(listing()?.contains(feature));
        assert_eq!(session.ask()?, partner, "it keeps its backend");
        lab.client.ask(Protocol::Tcp, node_port)?.answer()?;
    }
    Ok(())
}

/// Clients connect all the time while the table is brought over.
fn no_connection_fails(lab: &Lab, bring_over: &mut dyn FnMut() -> Result<()>) -> Result<()> {
    let web = Service::new("web", 80, &[]);
    let address = |frontend, family| web.address(lab, frontend, family);
    let local = Service::new("local", 81, &[]).address(lab, Frontend::LoadBalancer, Family::V4);
    let mut answered = [0; 4];
    let [from_outside, of_local, from_pod, from_node] = &mut answered;
    *from_outside = lab.client.ask_while(
        Protocol::Tcp,
        address(Frontend::NodePort, Family::V4),
        || {
            *of_local = lab.client.ask_while(Protocol::Tcp, local, || {
                *from_pod = lab.pod2.ask_while(
                    Protocol::Tcp,
                    address(Frontend::ClusterIp, Family::V6),
                    || {
                        let udp = address(Frontend::ClusterIp, Family::V4);
                        *from_node = lab.node.ask_while(Protocol::Udp, udp, bring_over)?;
                        Ok(())
                    },
                )?;
                Ok(())
            })?;
            Ok(())
        },
    )?;
    assert!(
        answered.iter().all(|answered| *answered > 20),
        "too few were tried: {answered:?}"
    );
    Ok(())
}
