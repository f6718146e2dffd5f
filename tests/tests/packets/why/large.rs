//! Faults of large packets: small ones pass, so connections are established, and large ones vanish.

use std::time::Duration;

use contiv_tests::lab::{Result, isolated};

use super::{
    fault::{Failure, Fault, Machine, REMOVE_TABLES, fault},
    group::run_group,
    scene::Scene,
};

const ANSWERS: &str = "10.96.0.84:80/tcp";
const ANSWERS6: &str = "[fd00:10:96::84]:80/tcp";
const EXTERNAL_ANSWERS: &str = "192.0.2.84:80/tcp";
const LOCAL_ANSWERS: &str = "10.96.0.74:80/tcp";
const REQUESTS: &str = "10.96.0.75:80/tcp";
const LOCAL_REQUESTS: &str = "10.96.0.76:80/tcp";

const TOO_SMALL: &[&str] = &["mtu-too-small"];
const UNCLEAR: &[&str] = &["rule-unclear"];
/// What is lost was sent several times by then.
const LARGE_TIMEOUT: Duration = Duration::from_millis(3300);

/// The errors that would tell the sender, dropped in a hook.
fn drop_errors(hook: &str) -> String {
    format!(
        "nft 'add table inet fw; add chain inet fw base {{ type filter hook {hook} priority 0; }}
         add rule inet fw base icmp type destination-unreachable drop; add rule inet fw base icmpv6 type packet-too-big drop'"
    )
}

fn faults() -> Vec<Fault> {
    use Machine::{Client, Node, Node2, Pod2};
    let large = |name, from, to: &str, codes, expert, on: Machine, make: &str, end: &str| {
        fault(name, from, to, codes, expert)
            .shell(on, make, &format!("{REMOVE_TABLES}\n{end}"))
            .failing(Failure::LargeAnswers)
            .patient(LARGE_TIMEOUT)
    };
    let requests = |fault: Fault| fault.failing(Failure::LargeRequests);
    let errors = drop_errors("output");
    let small_pod2 = "ip link set pod2 mtu 1500";
    vec![
        large("large answers do not fit", Pod2, ANSWERS, TOO_SMALL, "pod2 takes 1300 bytes only, and a rule drops the ICMP errors that would say so",
            Node, &format!("ip link set pod2 mtu 1300; {errors}"), small_pod2),
        large("large answers do not fit (IPv6)", Pod2, ANSWERS6, TOO_SMALL, "pod2 takes 1300 bytes only, and a rule drops the ICMP errors that would say so",
            Node, &format!("ip link set pod2 mtu 1300; {errors}"), small_pod2),
        large("large answers do not fit, of a pod of this node", Pod2, LOCAL_ANSWERS, TOO_SMALL, "pod2 takes 1300 bytes only, and a rule drops the ICMP errors that would say so",
            Node, &format!("ip link set pod2 mtu 1300; {errors}"), small_pod2),
        large("large answers do not fit, and iptables drops ICMP", Pod2, ANSWERS, TOO_SMALL, "pod2 takes 1300 bytes only, and a rule of OUTPUT drops all ICMP",
            Node, "ip link set pod2 mtu 1300; iptables-nft -A OUTPUT -p icmp -j DROP", small_pod2),
        large("large answers do not fit, and the policy of OUTPUT is DROP", Pod2, ANSWERS, TOO_SMALL, "pod2 takes 1300 bytes only, and OUTPUT accepts TCP and pings only",
            Node, "ip link set pod2 mtu 1300; iptables-nft -A OUTPUT -p tcp -j ACCEPT; iptables-nft -A OUTPUT -p icmp --icmp-type echo-request -j ACCEPT
             iptables-nft -A OUTPUT -p icmp --icmp-type echo-reply -j ACCEPT; iptables-nft -P OUTPUT DROP", small_pod2),
        requests(large("large requests do not fit", Pod2, LOCAL_REQUESTS, TOO_SMALL, "pod1 takes 1300 bytes only, and a rule drops the ICMP errors that would say so",
            Node, &format!("ip link set pod1 mtu 1300; {errors}"), "ip link set pod1 mtu 1500")),
        large("the route to the client has a small MTU", Client, EXTERNAL_ANSWERS, TOO_SMALL, "the route to the client takes 1000 bytes only, and a rule drops the ICMP errors that would say so",
            Node, &format!("ip route add 172.31.0.100/32 dev eth0 mtu 1000; {errors}"), "ip route del 172.31.0.100/32 dev eth0"),
        requests(large("the route to the backend has a small MTU", Pod2, REQUESTS, TOO_SMALL, "the route to the backend takes 1000 bytes only, and a rule drops the ICMP errors that would say so",
            Node, &format!("ip route replace 10.244.2.0/24 via 172.31.0.2 mtu 1000; {errors}"), "ip route replace 10.244.2.0/24 via 172.31.0.2")),
        large("the other node's route has a small MTU", Pod2, ANSWERS, TOO_SMALL, "the route of node2 to the pods takes 1000 bytes only, and node2 does not say so",
            Node2, &format!("ip route replace 10.244.1.0/24 via 172.31.0.1 mtu 1000; {errors}"), "ip route replace 10.244.1.0/24 via 172.31.0.1"),
        large("the other node's route has a small MTU, for own connections", Node, ANSWERS, TOO_SMALL, "the route of node2 to this node takes 1000 bytes only, and node2 does not say so",
            Node2, &format!("ip route add 172.31.0.1/32 dev eth0 mtu 1000; {errors}"), "ip route del 172.31.0.1/32 dev eth0"),
        requests(large("errors of the other node are dropped here", Pod2, REQUESTS, TOO_SMALL, "pod3 takes 1300 bytes only, and a rule of this node drops the ICMP errors of node2",
            Node2, "ip link set pod3 mtu 1300", "ip link set pod3 mtu 1500")
            .shell(Node, &drop_errors("forward"), REMOVE_TABLES)),
        large("large packets are dropped by their length", Pod2, ANSWERS, UNCLEAR, "a rule of FORWARD drops packets of more than 1000 bytes",
            Node, "iptables-nft -A FORWARD -m length --length 1000:65535 -j DROP", ""),
        large("large packets are dropped by meta length", Client, EXTERNAL_ANSWERS, UNCLEAR, "a rule of the table fw drops packets of more than 1000 bytes",
            Node, "nft 'add table ip fw; add chain ip fw base { type filter hook forward priority 0; }; add rule ip fw base meta length > 1000 drop'", ""),
    ]
}

#[test]
fn packets_that_do_not_fit_are_named() -> Result<()> {
    isolated("why::large::packets_that_do_not_fit_are_named", |lab| {
        let mut scene = Scene::start(lab, &[])?;
        run_group("large packets", &mut scene, &faults())
    })
}
