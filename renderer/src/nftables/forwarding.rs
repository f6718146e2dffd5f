//! Whether this machine forwards packets: without that only its own connections reach backends elsewhere.
//!
//! Nothing here changes a setting. Source: the kernel's `Documentation/networking/ip-sysctl.rst`.

use std::{collections::BTreeMap, fs, path::Path, sync::Arc};

use contiv_model::{ContivService, NodeFacts, ServiceId, ServicePort};

use super::layout::Family;

/// The families in which no interface forwards.
pub(super) fn disabled() -> Vec<Family> {
    Family::ALL.into_iter().filter(|family| !forwards(*family)).collect()
}

/// What to tell the administrator, one note for each of these families in which a service needs forwarding.
pub(super) fn notes(
    disabled: &[Family],
    services: &BTreeMap<ServiceId, Arc<ContivService>>,
    node: &NodeFacts,
) -> Vec<String> {
    let missed = |family: &Family| {
        let service = services.values().find(|service| needs_forwarding(service, node, *family))?;
        let setting = setting(*family);
        Some(format!(
            "{setting} is 0: pods and clients outside do not reach backends of {} and others; run `sysctl -w {setting}=1`",
            service.id
        ))
    };
    disabled.iter().filter_map(missed).collect()
}

const fn setting(family: Family) -> &'static str {
    match family {
        Family::V4 => "net.ipv4.ip_forward",
        Family::V6 => "net.ipv6.conf.all.forwarding",
    }
}

/// Whether a service leads clients other than this machine to backends that are not on an address of its own.
fn needs_forwarding(service: &ContivService, node: &NodeFacts, family: Family) -> bool {
    let is_of = |address| Family::of(&address) == family;
    let has_node_port = |port: &ServicePort| port.node_port.is_some();
    let has_other_clients = node.knows_pods(family == Family::V4)
        || service.external_ips.iter().any(|address| is_of(*address))
        || service.ports.iter().any(has_node_port);
    let mut backends = service.ports.iter().flat_map(|port| &port.backends);
    has_other_clients && backends.any(|backend| is_of(backend.address) && !node.is_own(backend.address))
}

/// Whether all interfaces forward, or some do by a setting of their own. Where that cannot be read, they are taken to.
fn forwards(family: Family) -> bool {
    let conf = match family {
        Family::V4 => Path::new("/proc/sys/net/ipv4/conf"),
        Family::V6 => Path::new("/proc/sys/net/ipv6/conf"),
    };
    let is_off = |interface: &Path| {
        fs::read_to_string(interface.join("forwarding")).is_ok_and(|value| value.trim() == "0")
    };
    if !is_off(&conf.join("all")) {
        return true;
    }
    let Ok(interfaces) = fs::read_dir(conf) else { return true };
    let is_template = |interface: &Path| interface.ends_with("all") || interface.ends_with("default");
    let mut interfaces = interfaces.flatten().map(|entry| entry.path()).filter(|path| !is_template(path));
    !interfaces.all(|interface| is_off(&interface))
}

#[cfg(test)]
mod tests {
    use contiv_model::{Backend, Protocol};

    use super::*;

    fn service(node_port: Option<u16>, backend: &str) -> BTreeMap<ServiceId, Arc<ContivService>> {
        let backends = vec![Backend::new(backend.parse().unwrap())];
        let port =
            ServicePort { port: 80, protocol: Protocol::Tcp, name: "main".into(), node_port, backends };
        let service =
            ContivService { ports: vec![port], ..ContivService::new(ServiceId::new("shop", "web")) };
        BTreeMap::from([(service.id.clone(), Arc::new(service))])
    }

    #[test]
    fn forwarding_is_missed_where_others_are_led_elsewhere() {
        let v4 = "net.ipv4.ip_forward is 0: pods and clients outside do not reach backends of shop/web and others; run \
                  `sysctl -w net.ipv4.ip_forward=1`";
        let no_pods = NodeFacts { local_ips: ["172.31.0.1".parse().unwrap()].into(), ..NodeFacts::default() };
        let pods = NodeFacts { pod_cidrs: ["10.244.1.0/24".parse().unwrap()].into(), ..no_pods.clone() };
        for (node_port, backend, node, expected) in [
            (Some(30_080), "10.244.2.1:8080", &no_pods, Some(v4)),
            (None, "10.244.2.1:8080", &pods, Some(v4)),
            // Its own connections need none, nor do those to itself; the other family has a setting of its own.
            (None, "10.244.2.1:8080", &no_pods, None),
            (Some(30_080), "172.31.0.1:8080", &pods, None),
            (Some(30_080), "[fd00::1]:8080", &pods, None),
        ] {
            let services = service(node_port, backend);
            let notes = notes(&[Family::V4], &services, node);
            assert_eq!(notes.first().map(String::as_str), expected, "{node_port:?} {backend}");
        }
        let services = service(Some(30_080), "[fd00::1]:8080");
        assert!(notes(&Family::ALL, &services, &pods)[0].contains("net.ipv6.conf.all.forwarding=1"));
        assert!(notes(&[], &services, &pods).is_empty(), "nothing is off");
    }
}
