//! Direct mode: backends have the addresses of the service themselves, and routes lead there.

mod changes;
mod delivery;
mod others;
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
const ADDRESSES: [Frontend; 3] = [Frontend::ClusterIp, Frontend::ExternalIp, Frontend::LoadBalancer];
const CONNECTIONS: usize = 100;

/// The service 80, for routes.
fn web(backends: &[&'static Host]) -> ServiceManifest {
    ServiceManifest {
        target_port: PORT,
        annotations: vec![("contiv.io/renderer", "route")],
        ..ServiceManifest::new(Service::new("web", 80, backends))
    }
}

/// The same, left to `nftables`.
fn translated(backends: &[&'static Host]) -> ServiceManifest {
    ServiceManifest { annotations: Vec::new(), ..web(backends) }
}

/// A host that has the addresses of the service 80 on its loopback, and answers there and on its own ones.
#[derive(Debug)]
struct Backend {
    _servers: Vec<Server>,
}

impl Backend {
    fn start(lab: &Lab, namespace: &Namespace) -> Result<Self> {
        hold_addresses(lab, namespace)?;
        let mut servers = vec![Self::everywhere(namespace)?];
        for family in Family::BOTH {
            // A datagram is answered from the address that it was sent to only by a server that is bound to it.
            for address in addresses(lab, family).into_iter().chain([namespace.host.socket(family, PORT)]) {
                servers.push(Server::start(namespace, namespace.host.name, Protocol::Udp, address)?);
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

/// An agent that drops what is for cluster IPs that no service has, with both renderers, on a node that balances by ports.
fn start<'lab>(node: &'lab Namespace, state: &Manifests, flags: &[&str]) -> Result<Agent<'lab>> {
    for family in ["ipv4", "ipv6"] {
        node.exec(&["sysctl", "-w", &format!("net.{family}.fib_multipath_hash_policy=1")])?;
    }
    let cidrs = Family::BOTH.map(|family| ranges::SERVICES.cidr(family)).join(",");
    let mut options: AgentOptions = options(state, flags);
    options.flags.push(format!("--service-cidrs={cidrs}"));
    let agent = Agent::start_on(node, &format!("agent-{}", node.host.name), &options)?;
    Ok(agent)
}

/// What the agent says of who carries the service 80.
fn assignment(agent: &Agent<'_>) -> Result<Value> {
    Ok(agent.http("GET", "/services/default/web")?.json()?["assignment"].clone())
}

/// Puts the service, and waits until it is carried so.
fn put(state: &Manifests, agents: &[&Agent<'_>], manifest: &ServiceManifest, carrier: &str) -> Result<()> {
    state.put_manifest(manifest)?;
    for agent in agents {
        wait_for_carrier(agent, carrier)?;
        agent.wait_until_applied(&manifest.service)?;
    }
    Ok(())
}

fn wait_for_carrier(agent: &Agent<'_>, carrier: &str) -> Result<()> {
    let what = format!("{carrier} carries the service");
    wait_until(&what, EVENT_TIMEOUT, || assignment(agent).is_ok_and(|found| found["addresses"] == carrier))
        .map(drop)
}

/// Who answers a new connection.
fn answering(client: &Namespace, address: SocketAddr) -> Result<String> {
    Ok(client.ask(Protocol::Tcp, address)?.answer()?.by)
}

/// Waits until new connections to every address are answered by this host.
fn wait_for_answer(lab: &Lab, client: &Namespace, by: &Host) -> Result<()> {
    for address in Family::BOTH.into_iter().flat_map(|family| addresses(lab, family)) {
        let what = format!("{} answers at {address}", by.name);
        wait_until(&what, EVENT_TIMEOUT, || answering(client, address).is_ok_and(|found| found == by.name))?;
    }
    Ok(())
}

/// What `ip nexthop` lists of ours.
fn next_hops(node: &Namespace) -> Result<String> {
    node.exec(&["ip", "nexthop", "show", "proto", "67"])
}

fn expect(condition: bool, text: &str) -> Result<()> {
    if condition { Ok(()) } else { Err(LabError::Unexpected(text.to_owned())) }
}
