//! Direct mode: backends have the addresses of the service, and routes lead to them.

mod changes;
mod delivery;
mod others;
mod random;
mod shared;
mod switch;

use std::net::SocketAddr;

use contiv_tests::{
    agent::{Agent, AgentOptions},
    cluster::{Frontend, Manifests, PORT, Service, ServiceManifest},
    lab::{Family, Host, Lab, LabError, Namespace, Protocol, Result, Server, ranges, wait_until},
};
use serde_json::Value;

use super::{EVENT_TIMEOUT, options};

/// The table with routes to backends.
const DIRECT: &str = "69";
/// The addresses of a service.
const ADDRESSES: [Frontend; 3] = [
    Frontend::ClusterIp,
    Frontend::ExternalIp,
    Frontend::LoadBalancer,
];
const CONNECTIONS: usize = 100;

/// The service 80, carried by routes.
fn web(backends: &[&'static Host]) -> ServiceManifest {
    ServiceManifest {
        target_port: PORT,
        annotations: vec![("contiv.io/renderer", "route")],
        ..ServiceManifest::new(Service::new("web", 80, backends))
    }
}

/// The same, carried by `nftables`.
fn translated(backends: &[&'static Host]) -> ServiceManifest {
    ServiceManifest {
        annotations: Vec::new(),
        ..web(backends)
    }
}

/// A host with the addresses of the service 80 on its loopback, which answers there and on its own addresses.
#[derive(Debug)]
struct Backend {
    _servers: Vec<Server>,
}

impl Backend {
    fn start(lab: &Lab, namespace: &Namespace) -> Result<Self> {
        hold_addresses(lab, namespace)?;
        let mut servers = vec![Self::everywhere(namespace)?];
        for family in Family::BOTH {
            // Only a server bound to an address answers a datagram from that address.
            for address in addresses(lab, family)
                .into_iter()
                .chain([namespace.host.socket(family, PORT)])
            {
                servers.push(Server::start(
                    namespace,
                    namespace.host.name,
                    Protocol::Udp,
                    address,
                )?);
            }
        }
        Ok(Self { _servers: servers })
    }

    /// A TCP server on all addresses of both families.
    fn everywhere(namespace: &Namespace) -> Result<Server> {
        let any = SocketAddr::from((std::net::Ipv6Addr::UNSPECIFIED, PORT));
        Server::start(namespace, namespace.host.name, Protocol::Tcp, any)
    }
}

/// Gives a host the addresses of the service 80.
fn hold_addresses(lab: &Lab, namespace: &Namespace) -> Result<()> {
    for family in Family::BOTH {
        for address in addresses(lab, family) {
            let prefix = if family == Family::V4 { 32 } else { 128 };
            let address = format!("{}/{prefix}", address.ip());
            let mut command = vec!["ip", "addr", "add", &address, "dev", "lo"];
            command.extend((family == Family::V6).then_some("nodad"));
            namespace.exec(&command)?;
        }
    }
    Ok(())
}

fn addresses(lab: &Lab, family: Family) -> [SocketAddr; 3] {
    ADDRESSES.map(|frontend| web(&[]).service.address(lab, frontend, family))
}

/// An agent that drops packets to unused cluster IPs, with both renderers, on a node that balances by ports.
fn start<'lab>(node: &'lab Namespace, state: &Manifests, flags: &[&str]) -> Result<Agent<'lab>> {
    for family in ["ipv4", "ipv6"] {
        node.exec(&[
            "sysctl",
            "-w",
            &format!("net.{family}.fib_multipath_hash_policy=1"),
        ])?;
    }
    let cidrs = Family::BOTH
        .map(|family| ranges::SERVICES.cidr(family))
        .join(",");
    let mut options: AgentOptions = options(state, flags);
    options.flags.push(format!("--service-cidrs={cidrs}"));
    let agent = Agent::start_on(node, &format!("agent-{}", node.host.name), &options)?;
    Ok(agent)
}

/// The carrier of the service 80 as the agent reports it.
fn assignment(agent: &Agent<'_>) -> Result<Value> {
    Ok(agent.http("GET", "/services/default/web")?.json()?["assignment"].clone())
}

/// Writes the service and waits until it has this carrier.
fn put(
    state: &Manifests,
    agents: &[&Agent<'_>],
    manifest: &ServiceManifest,
    carrier: &str,
) -> Result<()> {
    state.put_manifest(manifest)?;
    for agent in agents {
        wait_for_carrier(agent, carrier)?;
        agent.wait_until_applied(&manifest.service)?;
    }
    Ok(())
}

fn wait_for_carrier(agent: &Agent<'_>, carrier: &str) -> Result<()> {
    let what = format!("{carrier} carries the service");
    wait_until(&what, EVENT_TIMEOUT, || {
        assignment(agent).is_ok_and(|found| found["addresses"] == carrier)
    })
    .map(drop)
}

/// The server of a new connection.
fn answering(client: &Namespace, address: SocketAddr) -> Result<String> {
    Ok(client.ask(Protocol::Tcp, address)?.answer()?.by)
}

/// Waits until new connections to every address are answered by this host.
fn wait_for_answer(lab: &Lab, client: &Namespace, by: &Host) -> Result<()> {
    for address in Family::BOTH
        .into_iter()
        .flat_map(|family| addresses(lab, family))
    {
        let what = format!("{} answers at {address}", by.name);
        wait_until(&what, EVENT_TIMEOUT, || {
            answering(client, address).is_ok_and(|found| found == by.name)
        })?;
    }
    Ok(())
}

/// Our next hops in the output of `ip nexthop`.
fn next_hops(node: &Namespace) -> Result<String> {
    node.exec(&["ip", "nexthop", "show", "proto", "67"])
}

fn expect(condition: bool, text: &str) -> Result<()> {
    if condition {
        Ok(())
    } else {
        Err(LabError::Unexpected(text.to_owned()))
    }
}
