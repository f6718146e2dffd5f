//! Rules of iptables-nft that match sets of `ipset`.

use contiv_tests::lab::{Result, isolated};

use super::{
    fault::{Fault, Machine, REMOVE_TABLES, fault},
    group::run_group,
    scene::Scene,
};

const WEB: &str = "10.96.0.80:80/tcp";
const WEB6: &str = "[fd00:10:96::80]:80/tcp";
const NODE_PORT: &str = "172.31.0.1:30080/tcp";

const STOPS: &[&str] = &["rule-drops"];

fn faults() -> Vec<Fault> {
    use Machine::{Client, Node, Pod2};
    // The set `s` of a type with an element, and the rule that matches it.
    let set = |name, from, to: &str, codes, expert, kind: &str, element: &str, rule: &str| {
        let script = format!("ipset create s {kind}; ipset add s {element}; iptables-nft {rule}");
        fault(name, from, to, codes, expert).shell(
            Node,
            &script,
            &format!("{REMOVE_TABLES}\nipset destroy s"),
        )
    };
    let backends = "a set that a rule of FORWARD drops has the backend";
    vec![
        set("dropped by hash:ip", Pod2, WEB, STOPS, backends,
            "hash:ip", "10.244.2.10", "-A FORWARD -m set --match-set s dst -j DROP"),
        set("dropped by hash:net", Pod2, WEB, STOPS, "a set of networks that mangle PREROUTING drops has the pod",
            "hash:net", "10.244.1.0/24", "-t mangle -A PREROUTING -m set --match-set s src -j DROP"),
        set("refused by hash:ip,port", Client, NODE_PORT, &["rule-rejects"], "a set of backends with ports that FORWARD refuses has the backend",
            "hash:ip,port", "10.244.2.10,tcp:8080", "-A FORWARD -m set --match-set s dst,dst -j REJECT"),
        set("dropped by hash:net,port", Pod2, "10.96.0.80:80/udp", STOPS, backends,
            "hash:net,port", "10.244.2.0/24,udp:8080", "-A FORWARD -m set --match-set s dst,dst -j DROP"),
        set("dropped by hash:ip,port,ip", Pod2, WEB, STOPS, "a set has the pod, the port and the backend",
            "hash:ip,port,ip", "10.244.1.11,tcp:8080,10.244.2.10", "-A FORWARD -m set --match-set s src,dst,dst -j DROP"),
        set("dropped by hash:net,iface", Pod2, WEB, STOPS, "a set has the network of the backend at eth0",
            "hash:net,iface", "10.244.2.0/24,eth0", "-A FORWARD -m set --match-set s dst,dst -j DROP"),
        set("dropped by bitmap:port", Client, NODE_PORT, STOPS, "a set of ports that raw PREROUTING drops has the node port",
            "bitmap:port range 30000-32767", "30080", "-t raw -A PREROUTING -p tcp -m set --match-set s dst -j DROP"),
        set("not in the set of those that may connect", Pod2, WEB, STOPS, "a rule of FORWARD drops all sources that are not in a set",
            "hash:net", "172.31.0.0/24", "-A FORWARD -p tcp --dport 8080 -m set ! --match-set s src -j DROP"),
        set("the answer is dropped by a set", Pod2, WEB, &["rule-stops-answer"], "a rule of FORWARD drops what comes from the backend",
            "hash:ip,port", "10.244.2.10,tcp:8080", "-A FORWARD -m set --match-set s src,src -j DROP"),
        set("own connections are refused by a set", Node, WEB, &["rule-rejects"], "a rule of OUTPUT refuses what a set has",
            "hash:net", "10.244.2.0/24", "-A OUTPUT -m set --match-set s dst -j REJECT"),
        fault("dropped by a set (IPv6)", Pod2, WEB6, STOPS, backends).shell(
            Node,
            "ipset create s hash:net family inet6; ipset add s fd00:10:244:2::/64; ip6tables-nft -A FORWARD -m set --match-set s dst -j DROP",
            &format!("{REMOVE_TABLES}\nipset destroy s"),
        ),
        fault("dropped by a list of sets", Pod2, WEB, &["rule-unclear"], "a list of sets that FORWARD drops has one with the backend").shell(
            Node,
            "ipset create inner hash:ip; ipset add inner 10.244.2.10; ipset create s list:set; ipset add s inner; iptables-nft -A FORWARD -m set --match-set s dst -j DROP",
            &format!("{REMOVE_TABLES}\nipset destroy s; ipset destroy inner"),
        ),
    ]
}

#[test]
fn rules_with_sets_of_ipset_are_named() -> Result<()> {
    isolated("why::ip_sets::rules_with_sets_of_ipset_are_named", |lab| {
        let mut scene = Scene::start(lab, &[])?;
        run_group("rules with sets of ipset", &mut scene, &faults())
    })
}
