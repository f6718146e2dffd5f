//! Whether this machine forwards packets where services need it: otherwise only its own connections reach backends elsewhere.
//!
//! The settings are read when someone asks, since anyone can change them at any time. None is changed here.
//!
//! IPv4 has a setting for each interface by which a packet comes in, and `ip_forward` sets all of them. IPv6 has one for all, and
//! since Linux 6.17 `force_forwarding` for one interface. Source: the kernel's `Documentation/networking/ip-sysctl.rst`, and
//! `ip_route_input_slow()` and `ip6_forward()`.

use std::{collections::BTreeSet, fmt, net::IpAddr};

use contiv_model::{ContivService, InterfaceName, NodeFacts, ServiceId, ServicePort};
use serde::{Deserialize, Serialize};

use crate::{kernel::Kernel, linux::Linux};

/// Which families need forwarding, each with a service that does, and by which interfaces packets come in.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ForwardingNeeds {
    ipv4: Option<ServiceId>,
    ipv6: Option<ServiceId>,
    interfaces: BTreeSet<InterfaceName>,
}

/// A setting that keeps packets from being forwarded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForwardingOff {
    /// `IPv4` or `IPv6`.
    pub ip_family: String,
    /// The interface that it concerns; none for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<InterfaceName>,
    /// The setting, as `sysctl` has it.
    pub setting: String,
    /// A service that needs it.
    pub service: ServiceId,
}

impl fmt::Display for ForwardingOff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            interface,
            setting,
            service,
            ..
        } = self;
        write!(f, "{setting} is 0: ")?;
        match interface {
            Some(interface) => write!(f, "packets that come in by {} do not reach", interface.0)?,
            None => write!(f, "pods and external clients do not reach")?,
        }
        write!(
            f,
            " backends of {service} and others; run `sysctl -w {setting}=1`"
        )
    }
}

impl ForwardingNeeds {
    /// The needs of these services. `interfaces` are those by which packets of services come in.
    pub fn of<'a>(
        services: impl IntoIterator<Item = &'a ContivService>,
        node: &NodeFacts,
        interfaces: BTreeSet<InterfaceName>,
    ) -> Self {
        let mut needs = Self {
            interfaces,
            ..Self::default()
        };
        for service in services {
            for (need, is_ipv4) in [(&mut needs.ipv4, true), (&mut needs.ipv6, false)] {
                if need.is_none() && needs_forwarding(service, node, is_ipv4) {
                    *need = Some(service.id.clone());
                }
            }
            if needs.ipv4.is_some() && needs.ipv6.is_some() {
                break;
            }
        }
        needs
    }

    /// The settings of this process's network namespace that keep packets from being forwarded.
    pub fn check(&self) -> Vec<ForwardingOff> {
        self.check_on(&Linux)
    }

    /// The same for a kernel of the caller's choice.
    pub fn check_on(&self, kernel: &dyn Kernel) -> Vec<ForwardingOff> {
        let ipv4 = self.ipv4.iter().flat_map(|service| {
            self.disabled_ipv4(kernel).into_iter().map(|interface| {
                let setting = match &interface {
                    None => "net.ipv4.ip_forward".to_owned(),
                    // As sysctl wants it where the name itself has dots.
                    Some(InterfaceName(name)) if name.contains('.') => {
                        format!("net/ipv4/conf/{name}/forwarding")
                    }
                    Some(InterfaceName(name)) => format!("net.ipv4.conf.{name}.forwarding"),
                };
                ForwardingOff {
                    ip_family: "IPv4".to_owned(),
                    interface,
                    setting,
                    service: service.clone(),
                }
            })
        });
        let ipv6 = self
            .ipv6
            .iter()
            .filter(|_| self.is_ipv6_disabled(kernel))
            .map(|service| ForwardingOff {
                ip_family: "IPv6".to_owned(),
                interface: None,
                setting: "net.ipv6.conf.all.forwarding".to_owned(),
                service: service.clone(),
            });
        ipv4.chain(ipv6).collect()
    }

    /// The interfaces whose packets are not forwarded; one entry without a name if that concerns all.
    fn disabled_ipv4(&self, kernel: &dyn Kernel) -> Vec<Option<InterfaceName>> {
        let is_off =
            |interface: &str| setting(kernel, &format!("net/ipv4/conf/{interface}/forwarding"));
        let known = self
            .interfaces
            .iter()
            .filter_map(|interface| Some((interface, is_off(&interface.0)?)));
        let known: Vec<(&InterfaceName, bool)> = known.collect();
        let off = known
            .iter()
            .filter(|(_, is_off)| *is_off)
            .map(|(interface, _)| Some((*interface).clone()));
        let off: Vec<Option<InterfaceName>> = off.collect();
        if is_off("all") != Some(true) {
            return off;
        }
        let is_any_off = if known.is_empty() {
            let all = kernel.settings("net/ipv4/conf").unwrap_or_default();
            let is_template = |name: &String| ["all", "default", "lo"].contains(&name.as_str());
            all.iter()
                .filter(|name| !is_template(name))
                .all(|name| is_off(name) == Some(true))
        } else {
            !off.is_empty()
        };
        if is_any_off { vec![None] } else { Vec::new() }
    }

    fn is_ipv6_disabled(&self, kernel: &dyn Kernel) -> bool {
        let is_off = |interface: &str, name: &str| {
            setting(kernel, &format!("net/ipv6/conf/{interface}/{name}"))
                .unwrap_or(name != "forwarding")
        };
        let is_forced = !self.interfaces.is_empty()
            && self
                .interfaces
                .iter()
                .all(|interface| !is_off(&interface.0, "force_forwarding"));
        is_off("all", "forwarding") && !is_forced
    }
}

/// Whether a switch is off; none if it cannot be read.
fn setting(kernel: &dyn Kernel, path: &str) -> Option<bool> {
    Some(kernel.setting(path).ok()? == "0")
}

/// True if a service sends clients other than this machine to backends on other machines.
fn needs_forwarding(service: &ContivService, node: &NodeFacts, is_ipv4: bool) -> bool {
    let is_of = |address: IpAddr| address.is_ipv4() == is_ipv4;
    let has_node_port = |port: &ServicePort| port.node_port.is_some();
    let has_other_clients = node.knows_pods(is_ipv4)
        || service.external_ips.iter().any(|address| is_of(*address))
        || service.ports.iter().any(has_node_port);
    let mut backends = service.ports.iter().flat_map(|port| &port.backends);
    has_other_clients
        && backends.any(|backend| is_of(backend.address) && !node.is_local_address(backend.address))
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, io};

    use contiv_model::{Backend, Protocol};

    use super::*;
    use crate::kernel::{BackgroundTask, NetlinkProtocol, NetlinkSocket, Subscription};

    /// A kernel that has settings and nothing else.
    #[derive(Debug)]
    struct Settings(BTreeMap<String, &'static str>);

    impl Kernel for Settings {
        fn connect(&self, _: NetlinkProtocol) -> io::Result<Box<dyn NetlinkSocket>> {
            Err(io::ErrorKind::Unsupported.into())
        }

        fn listen(&self, _: NetlinkProtocol, _: &[u32], _: u32) -> io::Result<Subscription> {
            Err(io::ErrorKind::Unsupported.into())
        }

        fn setting(&self, path: &str) -> io::Result<String> {
            self.0
                .get(path)
                .map(|value| (*value).to_owned())
                .ok_or_else(|| io::ErrorKind::NotFound.into())
        }

        fn set_setting(&self, _: &str, _: &str) -> io::Result<()> {
            Err(io::ErrorKind::Unsupported.into())
        }

        fn settings(&self, folder: &str) -> io::Result<Vec<String>> {
            let below = self
                .0
                .keys()
                .filter_map(|path| path.strip_prefix(folder)?.strip_prefix('/'));
            let names: BTreeSet<&str> = below.filter_map(|path| path.split('/').next()).collect();
            Ok(names.into_iter().map(str::to_owned).collect())
        }

        fn spawn(&self, _: &str, _: Box<dyn BackgroundTask>) -> io::Result<()> {
            Err(io::ErrorKind::Unsupported.into())
        }
    }

    fn service(node_port: Option<u16>, backend: &str) -> ContivService {
        let backends = vec![Backend::new(backend.parse().unwrap())];
        let port = ServicePort {
            port: 80,
            protocol: Protocol::Tcp,
            name: "main".into(),
            node_port,
            backends,
        };
        ContivService {
            ports: vec![port],
            ..ContivService::new(ServiceId::new("shop", "web"))
        }
    }

    #[test]
    fn forwarding_is_needed_where_others_are_led_elsewhere() {
        let no_pods = NodeFacts {
            local_ips: ["172.31.0.1".parse().unwrap()].into(),
            ..NodeFacts::default()
        };
        let pods = NodeFacts {
            pod_cidrs: ["10.244.1.0/24".parse().unwrap()].into(),
            ..no_pods.clone()
        };
        for (node_port, backend, node, expected) in [
            (Some(30_080), "10.244.2.1:8080", &no_pods, (true, false)),
            (None, "10.244.2.1:8080", &pods, (true, false)),
            // Own connections do not need it, nor those to itself; the other family has its own setting.
            (None, "10.244.2.1:8080", &no_pods, (false, false)),
            (Some(30_080), "172.31.0.1:8080", &pods, (false, false)),
            (Some(30_080), "[fd00::1]:8080", &pods, (false, true)),
        ] {
            let needs = ForwardingNeeds::of([&service(node_port, backend)], node, BTreeSet::new());
            let found = (needs.ipv4.is_some(), needs.ipv6.is_some());
            assert_eq!(found, expected, "{node_port:?} {backend}");
        }
    }

    #[test]
    fn settings_that_stop_packets_are_named_per_family() {
        let both = [
            service(Some(1), "10.244.2.1:80"),
            service(Some(2), "[fd00::1]:80"),
        ];
        let interfaces = ["cni0", "eth0.7"].map(InterfaceName::new).into();
        let needs = ForwardingNeeds::of(&both, &NodeFacts::default(), interfaces);
        let unknown = ForwardingNeeds {
            interfaces: BTreeSet::new(),
            ..needs.clone()
        };
        let (v4, v6) = ("net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding");
        let ipv4 = |all, cni0, eth0| {
            [
                ("all", all),
                ("default", all),
                ("lo", "1"),
                ("cni0", cni0),
                ("eth0.7", eth0),
            ]
            .map(|(interface, value)| (format!("net/ipv4/conf/{interface}/forwarding"), value))
        };
        let ipv6 = |all, forced| {
            let forced = ["cni0", "eth0.7"]
                .map(|name| (format!("net/ipv6/conf/{name}/force_forwarding"), forced));
            [("net/ipv6/conf/all/forwarding".to_owned(), all)]
                .into_iter()
                .chain(forced)
        };
        for (needs, ipv4, ipv6, expected) in [
            (&needs, ipv4("1", "1", "1"), ipv6("1", "0"), vec![]),
            (&needs, ipv4("0", "0", "0"), ipv6("0", "0"), vec![v4, v6]),
            // One interface is enough to lose packets.
            (&needs, ipv4("0", "1", "0"), ipv6("1", "0"), vec![v4]),
            (
                &needs,
                ipv4("1", "0", "1"),
                ipv6("1", "0"),
                vec!["net.ipv4.conf.cni0.forwarding"],
            ),
            (
                &needs,
                ipv4("1", "1", "0"),
                ipv6("1", "0"),
                vec!["net/ipv4/conf/eth0.7/forwarding"],
            ),
            // Only the interfaces that matter, by their own settings.
            (&needs, ipv4("0", "1", "1"), ipv6("0", "1"), vec![]),
            // They are not known.
            (&unknown, ipv4("0", "0", "0"), ipv6("0", "0"), vec![v4, v6]),
            (&unknown, ipv4("0", "0", "1"), ipv6("0", "1"), vec![v6]),
        ] {
            let kernel = Settings(ipv4.into_iter().chain(ipv6).collect());
            let found: Vec<String> = needs
                .check_on(&kernel)
                .into_iter()
                .map(|off| off.setting)
                .collect();
            assert_eq!(found, expected, "{kernel:?}");
        }
        assert!(
            needs.check_on(&Settings(BTreeMap::new())).is_empty(),
            "a kernel without them"
        );
        let off = Settings(
            ipv4("0", "0", "0")
                .into_iter()
                .chain(ipv6("0", "0"))
                .collect(),
        );
        assert!(
            ForwardingNeeds::default().check_on(&off).is_empty(),
            "no service needs it"
        );
    }

    #[test]
    fn disabled_forwarding_says_what_to_do() {
        let needs = ForwardingNeeds::of(
            [&service(Some(1), "10.244.2.1:80")],
            &NodeFacts::default(),
            [InterfaceName::new("eth1")].into(),
        );
        let kernel = |all| {
            Settings(
                ["all", "eth1"]
                    .map(|it| {
                        (
                            format!("net/ipv4/conf/{it}/forwarding"),
                            if it == "all" { all } else { "0" },
                        )
                    })
                    .into(),
            )
        };
        assert_eq!(
            needs.check_on(&kernel("0"))[0].to_string(),
            "net.ipv4.ip_forward is 0: pods and external clients do not reach backends of shop/web and others; run \
             `sysctl -w net.ipv4.ip_forward=1`"
        );
        assert_eq!(
            needs.check_on(&kernel("1"))[0].to_string(),
            "net.ipv4.conf.eth1.forwarding is 0: packets that come in by eth1 do not reach backends of shop/web and \
             others; run `sysctl -w net.ipv4.conf.eth1.forwarding=1`"
        );
    }
}
