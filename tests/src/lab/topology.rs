//! Builds the lab: namespaces, links, addresses, routes.

use std::fs;

use super::{
    Family, Host, LabError, Namespace, Range, Result,
    namespace::run_command,
    plan::{CLIENT, GATEWAY, NODE, NODE2, PODS, PODS2, pod_gateway, ranges},
};

/// All namespaces of the lab. They end with the process namespace of the lab.
#[derive(Debug)]
pub struct Lab {
    /// This node, where the agent runs.
    pub node: Namespace,
    /// The other node.
    pub node2: Namespace,
    /// Outside of the cluster.
    pub client: Namespace,
    /// On this node.
    pub pod1: Namespace,
    /// On this node.
    pub pod2: Namespace,
    /// On the other node.
    pub pod3: Namespace,
    /// On the other node.
    pub pod4: Namespace,
}

impl Lab {
    /// Builds everything. The caller is in namespaces made for the lab: see [`super::isolated`].
    pub(crate) fn build() -> Result<Self> {
        let [pod1, pod2] = &PODS;
        let [pod3, pod4] = &PODS2;
        let lab = Self {
            node: Namespace::new(&NODE),
            node2: Namespace::new(&NODE2),
            client: Namespace::new(&CLIENT),
            pod1: Namespace::new(pod1),
            pod2: Namespace::new(pod2),
            pod3: Namespace::new(pod3),
            pod4: Namespace::new(pod4),
        };
        ip(&lab
            .all()
            .map(|namespace| format!("netns add {}", namespace.host.name)))?;
        for namespace in lab.all() {
            let forwards = namespace.host == &NODE || namespace.host == &NODE2;
            namespace.run(|| write_settings(forwards))?;
        }
        ip(&external_network(&[&NODE, &NODE2, &CLIENT]))?;
        lab.node
            .configure(&node_script(&NODE, 1, &PODS, &NODE2, &ranges::PODS2))?;
        lab.node2
            .configure(&node_script(&NODE2, 2, &PODS2, &NODE, &ranges::PODS))?;
        lab.client.configure(&client_script())?;
        for (pod, node) in [
            (&lab.pod1, 1),
            (&lab.pod2, 1),
            (&lab.pod3, 2),
            (&lab.pod4, 2),
        ] {
            pod.configure(&pod_script(pod.host, node))?;
        }
        Ok(lab)
    }

    /// The pods of both nodes.
    pub const fn pods(&self) -> [&Namespace; 4] {
        [&self.pod1, &self.pod2, &self.pod3, &self.pod4]
    }

    /// Every namespace.
    pub const fn all(&self) -> [&Namespace; 7] {
        [
            &self.node,
            &self.node2,
            &self.client,
            &self.pod1,
            &self.pod2,
            &self.pod3,
            &self.pod4,
        ]
    }
}

impl Namespace {
    fn configure(&self, script: &[String]) -> Result<()> {
        self.run(|| ip(script))
    }
}

/// Runs `ip` commands in the namespace of the calling thread.
fn ip(script: &[String]) -> Result<()> {
    run_command(&["ip", "-batch", "-"], &script.join("\n")).map(drop)
}

/// A new namespace copies IPv4 settings from the host, so all relevant ones are set.
fn write_settings(forwards: bool) -> Result<()> {
    let forwards = if forwards { "1" } else { "0" };
    let settings = [
        ("ipv4/ip_forward", forwards),
        ("ipv4/conf/all/rp_filter", "0"),
        ("ipv4/conf/default/rp_filter", "0"),
        ("ipv6/conf/all/disable_ipv6", "0"),
        ("ipv6/conf/default/disable_ipv6", "0"),
        ("ipv6/conf/all/forwarding", forwards),
        // Addresses can be used immediately; they cannot collide.
        ("ipv6/conf/all/accept_dad", "0"),
        ("ipv6/conf/default/accept_dad", "0"),
        // The kernel limits the rate of ICMP errors per client and in all, and a client that also receives redirects may get
        // none for a second. The tests count each refusal, so no error is limited; for IPv6 the limit is set to an unused type.
        ("ipv4/icmp_ratelimit", "0"),
        ("ipv4/icmp_ratemask", "0"),
        ("ipv6/icmp/ratelimit", "0"),
        ("ipv6/icmp/ratemask", "0"),
    ];
    for (name, value) in settings {
        let path = format!("/proc/sys/net/{name}");
        fs::write(&path, value)
            .map_err(|error| LabError::system(format!("write {value} to {path}"), error))?;
    }
    Ok(())
}

/// A bridge in the outer namespace, with one link into each machine.
fn external_network(hosts: &[&Host]) -> Vec<String> {
    // Without snooping, neighbour solicitations pass from the start.
    let mut script = vec![
        "link add external type bridge forward_delay 0 mcast_snooping 0".to_owned(),
        "link set external up".to_owned(),
    ];
    for Host { name, .. } in hosts {
        script.push(format!(
            "link add {name} type veth peer name eth0 netns {name}"
        ));
        script.push(format!("link set {name} master external up"));
    }
    script
}

fn on_external(host: &Host) -> Vec<String> {
    let Range {
        v4_length,
        v6_length,
        ..
    } = ranges::EXTERNAL;
    vec![
        "link set lo up".to_owned(),
        "link set eth0 up".to_owned(),
        format!("addr add {}/{v4_length} dev eth0", host.v4),
        format!("addr add {}/{v6_length} dev eth0 nodad", host.v6),
    ]
}

fn node_script(
    node: &Host,
    number: u8,
    pods: &[Host],
    other: &Host,
    pods_of_other: &Range,
) -> Vec<String> {
    let mut script = on_external(node);
    let Host {
        v4: ours4,
        v6: ours6,
        ..
    } = pod_gateway(number);
    for Host { name, v4, v6, .. } in pods {
        script.push(format!(
            "link add {name} type veth peer name eth0 netns {name}"
        ));
        script.push(format!("link set {name} up"));
        script.push(format!("addr add {ours4}/32 dev {name}"));
        script.push(format!("addr add {ours6}/128 dev {name} nodad"));
        script.push(format!("route add {v4}/32 dev {name}"));
        script.push(format!("route add {v6}/128 dev {name}"));
    }
    for family in Family::BOTH {
        script.push(format!(
            "route add {} via {}",
            pods_of_other.cidr(family),
            other.address(family)
        ));
        script.push(format!("route add default via {}", GATEWAY.address(family)));
    }
    script
}

/// Routes to the service ranges, and to nothing else behind the nodes.
fn client_script() -> Vec<String> {
    let mut script = on_external(&CLIENT);
    for family in Family::BOTH {
        for range in [
            ranges::SERVICES,
            ranges::EXTERNAL_IPS,
            ranges::LOAD_BALANCERS,
        ] {
            script.push(format!(
                "route add {} via {}",
                range.cidr(family),
                NODE.address(family)
            ));
        }
    }
    script
}

fn pod_script(pod: &Host, node: u8) -> Vec<String> {
    let Host {
        v4: via4, v6: via6, ..
    } = pod_gateway(node);
    vec![
        "link set lo up".to_owned(),
        "link set eth0 up".to_owned(),
        format!("addr add {}/32 dev eth0", pod.v4),
        format!("addr add {}/128 dev eth0 nodad", pod.v6),
        format!("route add {via4}/32 dev eth0"),
        format!("route add {via6}/128 dev eth0"),
        format!("route add default via {via4}"),
        format!("route add default via {via6}"),
    ]
}
