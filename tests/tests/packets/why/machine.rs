//! Faults of the network of the node: settings, routes, links, neighbours, addresses and full tables.

use std::{fmt::Write, fs, time::Duration};

use contiv_tests::lab::{LabError, Protocol, Result, isolated, scratch};

use super::{
    fault::{Failure, Fault, Machine, Step, fault},
    group::run_group,
    scene::Scene,
};

const WEB: &str = "10.96.0.80:80/tcp";
const WEB6: &str = "[fd00:10:96::80]:80/tcp";
const LOCAL: &str = "10.96.0.81:80/tcp";
const EXTERNAL: &str = "192.0.2.80:80/tcp";
const EXTERNAL6: &str = "[2001:db8:1::80]:80/tcp";
/// A neighbour has failed after three questions, one a second.
const NEIGHBOUR_TIMEOUT: Duration = Duration::from_secs(4);

fn faults_of_settings() -> Vec<Fault> {
    use Machine::{Client, Pod2};
    let set = |name, from, to: &str, codes, expert, setting: &str, [bad, good]: [&str; 2]| {
        let write = |value: &str| format!("echo {value} >/proc/sys/net/{setting}");
        fault(name, from, to, codes, expert).shell(Machine::Node, &write(bad), &write(good))
    };
    vec![
        set("forwarding is off", Pod2, WEB, &["forwarding-off"], "net.ipv4.ip_forward is 0", "ipv4/ip_forward", ["0", "1"]),
        set("forwarding is off for the pod's interface", Pod2, WEB, &["forwarding-off"], "net.ipv4.conf.pod2.forwarding is 0", "ipv4/conf/pod2/forwarding", ["0", "1"]),
        set("forwarding is off for eth0", Client, EXTERNAL, &["forwarding-off"], "net.ipv4.conf.eth0.forwarding is 0", "ipv4/conf/eth0/forwarding", ["0", "1"]),
        set("forwarding is off for IPv6", Pod2, WEB6, &["forwarding-off"], "net.ipv6.conf.all.forwarding is 0", "ipv6/conf/all/forwarding", ["0", "1"]),
        fault("strict rp_filter, and the route back is another one", Client, EXTERNAL, &["reverse-path"], "rp_filter is strict, and the route to the client does not lead back by eth0").shell(
            Machine::Node,
            "echo 1 >/proc/sys/net/ipv4/conf/eth0/rp_filter; ip route add 172.31.0.100/32 dev pod1",
            "echo 0 >/proc/sys/net/ipv4/conf/eth0/rp_filter; ip route del 172.31.0.100/32 dev pod1",
        ),
        fault("strict rp_filter for all, and the route to the pod is wrong", Pod2, WEB, &["reverse-path"], "rp_filter is strict, and the route to the pod leads to pod1").shell(
            Machine::Node,
            "echo 1 >/proc/sys/net/ipv4/conf/all/rp_filter; ip route replace 10.244.1.11/32 dev pod1",
            "echo 0 >/proc/sys/net/ipv4/conf/all/rp_filter; ip route replace 10.244.1.11/32 dev pod2",
        ),
        fault("strict rp_filter drops the answer", Pod2, WEB, &["answer-reverse-path"], "rp_filter is strict on eth0, by which answers come in, and only marked packets are routed by eth0").shell(
            Machine::Node,
            "ip link add tun9 type veth peer name tun8; ip link set tun9 up; ip link set tun8 up; echo 1 >/proc/sys/net/ipv4/conf/eth0/rp_filter
             ip rule add fwmark 9 lookup 99; ip route add 10.244.2.0/24 via 172.31.0.2 table 99; ip route replace 10.244.2.0/24 dev tun9
             nft 'add table ip fw; add chain ip fw base { type filter hook prerouting priority mangle; }; add rule ip fw base iifname pod2 meta mark set 9'",
            "nft delete table ip fw; echo 0 >/proc/sys/net/ipv4/conf/eth0/rp_filter; ip rule del fwmark 9 lookup 99; ip route flush table 99
             ip route replace 10.244.2.0/24 via 172.31.0.2; ip link del tun9",
        ),
    ]
}

fn faults_of_routes() -> Vec<Fault> {
    use Machine::{Client, Node, Pod2};
    let routed = |name, from, to: &str, codes, expert, make: &str, end: &str| {
        fault(name, from, to, codes, expert).shell(Node, make, end)
    };
    vec![
        routed("no route to the backend", Pod2, WEB, &["no-route"], "there is no route to 10.244.2.10",
            "ip route del 10.244.2.0/24; ip route del default", "ip route add 10.244.2.0/24 via 172.31.0.2; ip route add default via 172.31.0.254"),
        routed("no route to the backend (IPv6)", Pod2, WEB6, &["no-route"], "there is no route to fd00:10:244:2::10",
            "ip -6 route del fd00:10:244:2::/64; ip -6 route del default", "ip -6 route add fd00:10:244:2::/64 via fd00:172:31::2; ip -6 route add default via fd00:172:31::254"),
        routed("the backend is routed by a gateway that does not answer", Pod2, WEB, &["neighbour-failed"], "the route to 10.244.2.0/24 is missing, so the default route is used, whose gateway does not answer",
            "ip route del 10.244.2.0/24", "ip route add 10.244.2.0/24 via 172.31.0.2").patient(NEIGHBOUR_TIMEOUT),
        routed("route of type blackhole", Pod2, WEB, &["route-discards"], "a route of type blackhole discards packets to the backend", "ip route add blackhole 10.244.2.10", "ip route del blackhole 10.244.2.10"),
        routed("route of type unreachable", Client, EXTERNAL, &["route-discards", "no-route"], "a route of type unreachable refuses packets to the backend", "ip route add unreachable 10.244.2.10", "ip route del unreachable 10.244.2.10"),
        routed("route of type prohibit", Pod2, WEB, &["route-discards"], "a route of type prohibit refuses packets to the backend", "ip route add prohibit 10.244.2.10", "ip route del prohibit 10.244.2.10"),
        routed("blackhole of IPv6", Pod2, WEB6, &["route-discards"], "a route of type blackhole discards packets to the backend", "ip -6 route add blackhole fd00:10:244:2::10", "ip -6 route del blackhole fd00:10:244:2::10"),
        routed("rule of type blackhole", Pod2, WEB, &["route-discards"], "a rule of `ip rule` discards packets to the backend", "ip rule add to 10.244.2.10 blackhole", "ip rule del to 10.244.2.10 blackhole"),
        routed("rule to a table without a way", Pod2, WEB, &["route-discards", "no-route"], "a rule sends packets of pod2 to table 99, whose default route is unreachable", "ip rule add iif pod2 lookup 99; ip route add unreachable default table 99", "ip rule del iif pod2 lookup 99; ip route flush table 99"),
        routed("rule by mark and its route", Pod2, WEB, &["route-discards"], "a rule sends packets with mark 9 to table 98, which discards them", "ip rule add fwmark 9 lookup 98; ip route add blackhole default table 98\nnft 'add table ip fw; add chain ip fw base { type filter hook prerouting priority mangle; }; add rule ip fw base iifname pod2 meta mark set 9'", "nft delete table ip fw; ip rule del fwmark 9 lookup 98; ip route flush table 98"),
        routed("no route for own connections", Node, WEB, &["no-route"], "this node has no route to the cluster IP, so its own connections fail before they are translated", "ip route del default", "ip route add default via 172.31.0.254"),
        routed("cluster IPs are prohibited for the node", Node, WEB, &["route-discards"], "a route of type prohibit refuses own connections to cluster IPs before they are translated", "ip route add prohibit 10.96.0.0/16", "ip route del prohibit 10.96.0.0/16"),
        routed("the answer is discarded", Client, EXTERNAL, &["no-route-back", "route-discards"], "a route of type blackhole discards what goes back to the client", "ip route add blackhole 172.31.0.100", "ip route del blackhole 172.31.0.100"),
        routed("the answer leaves by another interface", Client, EXTERNAL, &["no-route-back", "neighbour-failed"], "the route to the client leads to pod1", "ip route add 172.31.0.100/32 dev pod1", "ip route del 172.31.0.100/32 dev pod1").patient(NEIGHBOUR_TIMEOUT),
        routed("the route to the client's pod is missing", Pod2, WEB, &["no-route-back"], "the route to 10.244.1.11 is missing, so answers leave by the default route", "ip route del 10.244.1.11/32", "ip route add 10.244.1.11/32 dev pod2"),
        routed("the backend's address is on this node", Pod2, WEB, &["backend-address-taken"], "lo has the address of the backend, so packets do not leave this node", "ip addr add 10.244.2.12/32 dev lo; ip addr add 10.244.2.10/32 dev lo; ip addr del 10.244.2.12/32 dev lo", "ip addr del 10.244.2.10/32 dev lo"),
        routed("the backend's address is on this node (IPv6)", Pod2, WEB6, &["backend-address-taken"], "lo has the address of the backend, so packets do not leave this node", "ip -6 addr add fd00:10:244:2::10/128 dev lo", "ip -6 addr del fd00:10:244:2::10/128 dev lo"),
    ]
}

/// Two next hops of the route to the other node's pods, with options of the second one.
fn two_next_hops(second: &str) -> String {
    format!("ip route replace 10.244.2.0/24 nexthop via 172.31.0.2 nexthop {second}")
}

fn faults_of_next_hops() -> Vec<Fault> {
    use Machine::{Node, Pod2};
    const BACK: &str = "ip route replace 10.244.2.0/24 via 172.31.0.2; echo 0 >/proc/sys/net/ipv4/fib_multipath_hash_policy";
    let by_ports =
        |make: &str| format!("{make}; echo 1 >/proc/sys/net/ipv4/fib_multipath_hash_policy");
    let link = "ip link add tun9 type veth peer name tun8; ip addr add 198.18.9.1/24 dev tun9; ip link set tun9 up; ip link set tun8 up";
    vec![
        fault("one of two next hops is not there", Pod2, WEB, &["neighbour-failed"], "the route to the backend has two next hops, of which 172.31.0.77 does not answer ARP")
            .shell(Node, &by_ports(&two_next_hops("via 172.31.0.77")), BACK).failing(Failure::Some).patient(NEIGHBOUR_TIMEOUT),
        fault("one of two next hops has no carrier", Pod2, WEB, &["link-down"], "the route to the backend has two next hops, of which that by tun9 has no carrier")
            .shell(Node, &by_ports(&format!("{link}; {}; ip link set tun8 down", two_next_hops("via 198.18.9.2"))), &format!("{BACK}; ip link del tun9")).failing(Failure::Some),
        fault("the chosen next hop is not there", Pod2, WEB, &["neighbour-failed"], "of two next hops the kernel chooses 172.31.0.77 for these addresses, which does not answer ARP")
            .shell(Node, &two_next_hops("via 172.31.0.77 weight 255"), BACK).patient(NEIGHBOUR_TIMEOUT),
        fault("one of two next hops is not there (IPv6)", Pod2, WEB6, &["neighbour-failed"], "the route to the backend has two next hops, of which fd00:172:31::77 does not answer")
            .shell(Node, "ip -6 route del fd00:10:244:2::/64; ip -6 route add fd00:10:244:2::/64 nexthop via fd00:172:31::2 nexthop via fd00:172:31::77; echo 1 >/proc/sys/net/ipv6/fib_multipath_hash_policy",
                "echo 0 >/proc/sys/net/ipv6/fib_multipath_hash_policy; ip -6 route del fd00:10:244:2::/64; ip -6 route add fd00:10:244:2::/64 via fd00:172:31::2").failing(Failure::Some).patient(NEIGHBOUR_TIMEOUT),
    ]
}

fn faults_of_links() -> Vec<Fault> {
    use Machine::{Client, Node, Pod1, Pod2};
    let linked = |name, from, to: &str, codes, expert, make: &str, end: &str| {
        fault(name, from, to, codes, expert).shell(Node, make, end)
    };
    let drop_port =
        "ip link add drop9 type veth peer name drop8; ip link set drop9 up; ip link set drop8 up";
    vec![
        linked("the backend's interface is down", Pod2, LOCAL, &["link-down"], "pod1 is down", "ip link set pod1 down",
            "ip link set pod1 up; ip route replace 10.244.1.10/32 dev pod1; ip -6 addr replace fd00:10:244:1::1/128 dev pod1 nodad; ip -6 route replace fd00:10:244:1::10/128 dev pod1"),
        fault("the backend's interface has no carrier", Pod2, LOCAL, &["link-down"], "pod1 has no carrier: its peer is down").shell(Pod1, "ip link set eth0 down",
            "ip link set eth0 up; ip -6 addr replace fd00:10:244:1::10/128 dev eth0 nodad; ip route replace 10.244.1.1/32 dev eth0; ip route replace default via 10.244.1.1
             ip -6 route replace fd00:10:244:1::1/128 dev eth0; ip -6 route replace default via fd00:10:244:1::1"),
        linked("eth0 is down", Pod2, WEB, &["link-down"], "eth0 is down", "ip link set eth0 down",
            "ip link set eth0 up; ip route replace 10.244.2.0/24 via 172.31.0.2; ip route replace default via 172.31.0.254; ip -6 addr replace fd00:172:31::1/64 dev eth0 nodad
             ip -6 route replace fd00:10:244:2::/64 via fd00:172:31::2; ip -6 route replace default via fd00:172:31::254"),
        fault("the backend has lost its address", Pod2, LOCAL, &["neighbour-failed"], "10.244.1.10 does not answer ARP on pod1").patient(NEIGHBOUR_TIMEOUT).shell(Pod1, "ip addr del 10.244.1.10/32 dev eth0",
            "ip addr add 10.244.1.10/32 dev eth0; ip route replace 10.244.1.1/32 dev eth0; ip route replace default via 10.244.1.1"),
        linked("a wrong link-layer address of the backend", Pod2, LOCAL, &["neighbour-failed", "backend-silent"], "somebody fixed a link-layer address for 10.244.1.10, which is not the pod's", "ip neigh replace 10.244.1.10 lladdr 02:00:00:00:00:99 nud permanent dev pod1", "ip neigh del 10.244.1.10 dev pod1"),
        linked("a wrong link-layer address of the gateway", Pod2, WEB, &["neighbour-failed", "backend-silent"], "somebody fixed a link-layer address for 172.31.0.2, which is not the other node's", "ip neigh replace 172.31.0.2 lladdr 02:00:00:00:00:99 nud permanent dev eth0", "ip neigh del 172.31.0.2 dev eth0"),
        fault("the other node is gone", Pod2, WEB, &["neighbour-failed"], "172.31.0.2 does not answer ARP on eth0").patient(NEIGHBOUR_TIMEOUT)
            .shell(Machine::Node2, "echo 8 >/proc/sys/net/ipv4/conf/eth0/arp_ignore", "echo 0 >/proc/sys/net/ipv4/conf/eth0/arp_ignore")
            .inject(Step::Shell(Node, "ip neigh flush dev eth0".to_owned())),
        fault("neighbour solicitations are dropped", Pod2, "[fd00:10:96::81]:80/tcp", &["rule-drops", "neighbour-failed", "rule-stops-answer"], "a rule of the table fw drops neighbour advertisements, so the backend cannot be found").patient(NEIGHBOUR_TIMEOUT)
            .nft("table ip6 fw { chain base { type filter hook input priority 0; icmpv6 type { nd-neighbor-advert, nd-neighbor-solicit } drop; }; }")
            .inject(Step::Shell(Node, "ip neigh flush all".to_owned())),
        linked("a filter of traffic control at the pod's interface", Pod2, WEB, &["filter-unclear"], "a filter of tc at the ingress of pod2 sends the packets elsewhere",
            &format!("{drop_port}; tc qdisc add dev pod2 clsact; tc filter add dev pod2 ingress protocol ip u32 match ip dst 10.96.0.80/32 action mirred egress redirect dev drop9"),
            "tc qdisc del dev pod2 clsact; ip link del drop9"),
        linked("a filter of traffic control at eth0", Client, EXTERNAL, &["filter-unclear"], "a filter of tc at the egress of eth0 sends the packets elsewhere",
            &format!("{drop_port}; tc qdisc add dev eth0 clsact; tc filter add dev eth0 egress protocol ip u32 match ip dst 10.244.2.10/32 action mirred egress redirect dev drop9"),
            "tc qdisc del dev eth0 clsact; ip link del drop9"),
        linked("IPv6 is off at the interface of the client", Client, EXTERNAL6, &["ipv6-off", "neighbour-failed"], "net.ipv6.conf.eth0.disable_ipv6 is 1", "echo 1 >/proc/sys/net/ipv6/conf/eth0/disable_ipv6",
            "echo 0 >/proc/sys/net/ipv6/conf/eth0/disable_ipv6; ip -6 addr replace fd00:172:31::1/64 dev eth0 nodad; ip -6 route replace fd00:10:244:2::/64 via fd00:172:31::2; ip -6 route replace default via fd00:172:31::254"),
        fault("another machine has the node's address", Client, "[fd00:172:31::1]:30080/tcp", &["address-not-usable"], "node2 has the same address, so the kernel does not use it here (dadfailed)")
            .shell(Machine::Node2, "ip -6 addr add fd00:172:31::1/64 dev eth0 nodad", "ip -6 addr del fd00:172:31::1/64 dev eth0")
            .shell(Node, "ip -6 addr del fd00:172:31::1/64 dev eth0; echo 1 >/proc/sys/net/ipv6/conf/eth0/accept_dad; ip -6 addr add fd00:172:31::1/64 dev eth0
                 for i in $(seq 50); do ip -6 addr show dev eth0 | grep -q dadfailed && break; sleep 0.1; done",
                "echo 0 >/proc/sys/net/ipv6/conf/eth0/accept_dad; ip -6 addr del fd00:172:31::1/64 dev eth0; ip -6 addr add fd00:172:31::1/64 dev eth0 nodad
                 ip -6 route replace fd00:10:244:2::/64 via fd00:172:31::2; ip -6 route replace default via fd00:172:31::254"),
    ]
}

/// Adds connections to conntrack, one a line, as `conntrack -L -o save` prints them.
fn add_flows(scene: &Scene<'_>, lines: &str) -> Result<()> {
    let path = scratch("flows")?;
    fs::write(&path, lines)
        .map_err(|error| LabError::system(format!("write {}", path.display()), error))?;
    // A connection that is there already would end it.
    let script = format!("conntrack -F; conntrack --load-file {}", path.display());
    scene.lab.node.exec(&["sh", "-c", &script]).map(drop)
}

/// All source ports of this node to the backend are in use.
fn use_source_ports(scene: &mut Scene<'_>) -> Result<()> {
    let mut lines = String::new();
    for port in 1..=u16::MAX {
        // Writing to a string cannot fail.
        let _ = writeln!(
            lines,
            "-I -p tcp -s 198.18.0.1 -d 10.244.2.10 -r 10.244.2.10 -q 172.31.0.1 --sport {port} --dport 8080 \
             --reply-port-src 8080 --reply-port-dst {port} --state ESTABLISHED -u SEEN_REPLY,ASSURED -t 600"
        );
    }
    add_flows(scene, &lines)
}

/// The table of connections is full of those that the kernel does not forget.
fn fill_conntrack(scene: &mut Scene<'_>) -> Result<()> {
    let limit = scene
        .lab
        .node
        .exec(&["cat", "/proc/sys/net/netfilter/nf_conntrack_max"])?;
    let limit: u32 = limit.trim().parse().unwrap_or(0);
    let mut lines = String::new();
    for number in 0..limit + 64 {
        let [.., high, low, _] = number.to_be_bytes();
        let port = number % 60_000 + 1;
        // Writing to a string cannot fail.
        let _ = writeln!(
            lines,
            "-I -p tcp -s 198.18.{high}.{low} -d 198.19.0.1 --sport {port} --dport 9 --state ESTABLISHED \
             -u SEEN_REPLY,ASSURED -t 600"
        );
    }
    // The last ones are refused.
    let _ = add_flows(scene, &lines);
    Ok(())
}

/// A connection holds the only port that own connections may have.
fn use_local_port(scene: &mut Scene<'_>) -> Result<()> {
    let range = "echo 50000 50000 >/proc/sys/net/ipv4/ip_local_port_range";
    scene.lab.node.exec(&["sh", "-c", range])?;
    let to = ([10, 96, 0, 80], 80).into();
    let connection = scene.lab.node.open(Protocol::Tcp, to)?;
    scene.kept.push(Box::new(connection));
    Ok(())
}

fn faults_of_limits() -> Vec<Fault> {
    use Machine::{Node, Pod2};
    vec![
        fault("all source ports to the backend are used", Machine::Client, EXTERNAL, &["source-ports-used-up"], "all ports of 172.31.0.1 to 10.244.2.10:8080 are in use")
            .call(use_source_ports, |_| Ok(())),
        fault("own connections have no port left", Node, WEB, &["source-ports-used-up"], "ip_local_port_range has one port, which another connection to the service has")
            .call(use_local_port, |_| Ok(()))
            .undo(Step::Shell(Node, "echo 32768 60999 >/proc/sys/net/ipv4/ip_local_port_range".to_owned())),
        fault("an old entry leads datagrams elsewhere", Pod2, "10.96.0.80:80/udp", &["stale-flow"], "an entry of conntrack leads the client's port to 10.244.2.99, which is gone")
            .shell(Node, "conntrack -F; for port in $(seq 10000 10600); do echo \"-I -p udp -s 10.244.1.11 -d 10.96.0.80 --sport $port --dport 80 -g 10.244.2.99:8080 -t 600\"; done >/run/contiv-lab/stale; conntrack --load-file /run/contiv-lab/stale", "true"),
        fault("the table of connections is full", Pod2, WEB, &["conntrack-full"], "conntrack has as many connections as nf_conntrack_max allows, and none that it may forget")
            .call(fill_conntrack, |_| Ok(())),
    ]
}

/// The pods of this node become ports of a bridge, and reach each other directly, as with flannel's or the bridge plugin.
const BRIDGE_PODS: &str = "ip link add br9 type bridge forward_delay 0; ip link set br9 up
for pod in pod1 pod2; do ip link set $pod master br9; ip addr flush dev $pod; done
ip route flush dev pod1; ip route flush dev pod2
echo 0 >/proc/sys/net/bridge/bridge-nf-call-iptables
ip addr add 10.244.1.1/24 dev br9; ip -6 addr add fd00:10:244:1::1/64 dev br9 nodad";
const POD_ROUTES: &str = "ip route replace 10.244.1.0/24 dev eth0; ip neigh flush all";

fn faults_of_bridges() -> Vec<Fault> {
    vec![
        fault("answers pass the bridge unseen", Machine::Pod2, LOCAL, &["bridged-answer"], "client and backend are ports of br9, so the answer does not pass the rules (bridge-nf-call-iptables)")
            .shell(Machine::Node, BRIDGE_PODS, "true")
            .shell(Machine::Pod1, POD_ROUTES, "true")
            .shell(Machine::Pod2, POD_ROUTES, "true"),
    ]
}

#[test]
fn faults_of_settings_and_routes_are_named() -> Result<()> {
    isolated(
        "why::machine::faults_of_settings_and_routes_are_named",
        |lab| {
            let mut scene = Scene::start(lab, &[])?;
            let faults: Vec<Fault> = [
                faults_of_settings(),
                faults_of_routes(),
                faults_of_next_hops(),
            ]
            .into_iter()
            .flatten()
            .collect();
            run_group("settings and routes of the node", &mut scene, &faults)
        },
    )
}

#[test]
fn faults_of_links_and_limits_are_named() -> Result<()> {
    isolated(
        "why::machine::faults_of_links_and_limits_are_named",
        |lab| {
            let mut scene = Scene::start(lab, &[])?;
            let faults: Vec<Fault> = [faults_of_links(), faults_of_limits(), faults_of_bridges()]
                .into_iter()
                .flatten()
                .collect();
            run_group("links and limits of the node", &mut scene, &faults)
        },
    )
}
