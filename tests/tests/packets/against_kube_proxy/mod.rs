//! `contiv verify --against kube-proxy`: with the rules that a kube-proxy writes for a cluster of 500 different services, and with
//! differences that are planted in them.

#![expect(clippy::print_stdout, reason = "the times are part of the result")]

mod cluster;
mod planted;

use std::process::Command;

use contiv_tests::{
    agent::{Agent, AgentOptions, binary},
    cluster::{Frontend, Manifests, NodeManifest, Service as WebService},
    lab::{Family, Lab, LabError, Result, isolated, ranges},
};
use serde_json::Value;

use crate::{
    kube_proxy_rules::{
        Service, ZONE, iptables,
        nftables::{self, Layout},
    },
    kubernetes::cluster::Kubernetes,
};

use self::{
    cluster::services,
    planted::{Planted, planted},
};

/// The services of the cluster.
const SERVICES: u32 = 500;

/// In mode iptables node ports answer on all addresses.
const ALL_NODE_PORTS: [&str; 3] = [
    "--node-port-addresses",
    "all",
    "--node-ports-on-loopback=true",
];

/// The output of the command, and its exit code.
#[derive(Debug)]
struct Run {
    code: Option<i32>,
    out: String,
    err: String,
}

impl Run {
    fn json(&self) -> Result<Value> {
        serde_json::from_str(&self.out)
            .map_err(|error| LabError::Unexpected(format!("{error}: {self:?}")))
    }
}

/// The cluster as contiv sees it.
fn manifests(lab: &Lab, services: &[Service]) -> Result<Manifests> {
    let manifests = Manifests::new(lab)?;
    manifests.put_node(&NodeManifest {
        host: lab.node.host,
        pods: Some(&ranges::PODS),
        zone: Some(ZONE),
    })?;
    let text: String = services.iter().map(Service::manifest).collect();
    manifests.write("services.yaml", &text)?;
    Ok(manifests)
}

/// Runs the command on the node, without an agent. The ranges of cluster IPs are those that kube-proxy has.
fn verify(lab: &Lab, manifests: &Manifests, arguments: &[&str]) -> Result<Run> {
    verify_without_ranges(lab, manifests, &[&[&*service_ranges()], arguments].concat())
}

fn service_ranges() -> String {
    let ranges = Family::BOTH.map(|family| ranges::SERVICES.cidr(family));
    format!("--service-cidrs={}", ranges.join(","))
}

fn verify_without_ranges(lab: &Lab, manifests: &Manifests, arguments: &[&str]) -> Result<Run> {
    let store = format!("dir:{}", manifests.folder());
    let first = ["--store", &store, "--node-name", lab.node.host.name];
    verify_with(lab, &[&first[..], arguments].concat())
}

/// Runs the command on the node.
fn verify_with(lab: &Lab, arguments: &[&str]) -> Result<Run> {
    let binary = binary()?;
    let output = lab.node.run(|| {
        Command::new(&binary)
            .args(["verify", "--against", "kube-proxy"])
            .args(arguments)
            .output()
            .map_err(|error| LabError::Unexpected(format!("{}: {error}", binary.display())))
    })?;
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ok(Run {
        code: output.status.code(),
        out: text(output.stdout),
        err: text(output.stderr),
    })
}

fn load(lab: &Lab, services: &[Service], layout: Layout) -> Result<()> {
    nftables::load(lab, services, layout, |piece| piece)
}

/// The services with the planted differences.
fn with_planted(services: &[Service], planted: &[Planted]) -> Result<Vec<Service>> {
    let mut other = services.to_vec();
    for Planted {
        service, change, ..
    } in planted
    {
        let found = other.iter_mut().find(|it| it.name == *service);
        change(found.ok_or_else(|| LabError::Unexpected((*service).to_owned()))?);
    }
    Ok(other)
}

fn expect_equal(run: &Run, mode: &str) {
    assert_eq!(run.code, Some(0), "{run:#?}");
    assert!(
        run.out.starts_with(&format!("kube-proxy ({mode}): "))
            && run.out.contains(": all equal")
            && run.out.contains(" frontends of 450 services compared by "),
        "{run:#?}"
    );
    print!("{}", run.out);
}

#[test]
fn cluster_of_500_services_is_equal_in_both_layouts_of_nftables() -> Result<()> {
    isolated(
        "against_kube_proxy::cluster_of_500_services_is_equal_in_both_layouts_of_nftables",
        |lab| {
            let services = services(SERVICES);
            let manifests = manifests(lab, &services)?;
            for layout in [Layout::UpTo135, Layout::From136] {
                load(lab, &services, layout)?;
                expect_equal(&verify(lab, &manifests, &[])?, "nftables");
                nftables::remove(lab)?;
            }
            Ok(())
        },
    )
}

#[test]
fn cluster_of_500_services_is_equal_in_mode_iptables() -> Result<()> {
    isolated(
        "against_kube_proxy::cluster_of_500_services_is_equal_in_mode_iptables",
        |lab| {
            let services = services(SERVICES);
            let manifests = manifests(lab, &services)?;
            iptables::load(lab, &services, |line| Some(line.to_owned()))?;
            // Rules of other programs are not compared.
            let other = "*filter\n:FORWARD DROP [0:0]\n-A INPUT -p udp -m limit --limit 1/s -j DROP\nCOMMIT\n";
            lab.node
                .exec_with_input(&["iptables-nft-restore", "--noflush"], other)?;
            expect_equal(&verify(lab, &manifests, &ALL_NODE_PORTS)?, "iptables");
            // Unless contiv is told so, none of them answers on loopback: that is one line.
            let run = verify(lab, &manifests, &ALL_NODE_PORTS[..2])?;
            assert_eq!(run.code, Some(1), "{run:#?}");
            let of_loopback: Vec<&str> = (run.out.lines())
                .filter(|line| line.contains("127.0.0.1:"))
                .collect();
            assert!(
                matches!(&of_loopback[..], [served, refused]
                    if served.contains("only kube-proxy serves it (see node-ports-on-loopback)")
                        || refused.contains("only kube-proxy serves it (see node-ports-on-loopback)")),
                "{run:#?}"
            );
            Ok(())
        },
    )
}

#[test]
fn each_planted_difference_is_named_and_nothing_else() -> Result<()> {
    isolated(
        "against_kube_proxy::each_planted_difference_is_named_and_nothing_else",
        |lab| {
            let services = services(SERVICES);
            let manifests = manifests(lab, &services)?;
            let planted = planted();
            for layout in [Layout::UpTo135, Layout::From136] {
                load(lab, &with_planted(&services, &planted)?, layout)?;
                planted::damage(lab, &services, layout)?;
                let run = verify(lab, &manifests, &["-o", "json"])?;
                assert_eq!(run.code, Some(1), "{run:#?}");
                let report = run.json()?;
                planted::expect_named(&planted, &report);
                let table = verify(lab, &manifests, &[])?;
                println!("{}", table.out);
                let names = verify(lab, &manifests, &["-o", "name"])?;
                assert_eq!(names.out.lines().count(), planted.len(), "{names:#?}");
                nftables::remove(lab)?;
            }
            Ok(())
        },
    )
}

#[test]
fn node_port_address_that_kube_proxy_lacks_is_one_line_of_the_table() -> Result<()> {
    isolated(
        "against_kube_proxy::node_port_address_that_kube_proxy_lacks_is_one_line_of_the_table",
        |lab| {
            let services = services(200);
            let manifests = manifests(lab, &services)?;
            load(lab, &services, Layout::From136)?;
            let (address, other) = ("172.31.0.1", "172.31.0.99");
            let change = format!(
                "delete element ip kube-proxy nodeport-ips {{ {address} }}
add element ip kube-proxy nodeport-ips {{ {other} }}\n"
            );
            lab.node.exec_with_input(&["nft", "-f", "-"], &change)?;
            let run = verify(lab, &manifests, &[])?;
            assert_eq!(run.code, Some(1), "{run:#?}");
            let lines: Vec<&str> = run.out.lines().collect();
            let has = |words: &[&str]| {
                (lines.iter()).any(|line| words.iter().all(|word| line.contains(word)))
            };
            assert!(
                has(&[
                    "services ",
                    address,
                    "(node port) and ",
                    "only contiv serves it"
                ]) && has(&[
                    "services ",
                    other,
                    "(node port) and ",
                    "only kube-proxy serves it"
                ]) && lines.len() < 20,
                "{run:#?}"
            );
            let wide = verify(lab, &manifests, &["-o", "wide"])?;
            assert!(
                wide.out.contains("KUBE-PROXY") && wide.out.contains("shop/service-001"),
                "{wide:#?}"
            );
            Ok(())
        },
    )
}

#[test]
fn node_without_kube_proxy_is_an_error_that_says_what_was_looked_for() -> Result<()> {
    isolated(
        "against_kube_proxy::node_without_kube_proxy_is_an_error_that_says_what_was_looked_for",
        |lab| {
            let run = verify(lab, &manifests(lab, &[])?, &[])?;
            assert_eq!(run.code, Some(1), "{run:#?}");
            assert!(
                run.err
                    .contains("neither a table ip kube-proxy nor ip6 kube-proxy")
                    && run.err.contains("chain KUBE-SERVICES"),
                "{run:#?}"
            );
            Ok(())
        },
    )
}

#[test]
fn rules_that_cannot_be_evaluated_are_named_and_not_guessed() -> Result<()> {
    isolated(
        "against_kube_proxy::rules_that_cannot_be_evaluated_are_named_and_not_guessed",
        |lab| {
            let services = services(2);
            let manifests = manifests(lab, &services)?;
            load(lab, &services, Layout::UpTo135)?;
            lab.node.exec(&[
                "nft",
                "insert rule ip kube-proxy services ip daddr 10.96.0.10 meta cpu 1 meta l4proto tcp dnat to 10.244.1.99:80",
            ])?;
            let run = verify(lab, &manifests, &[])?;
            assert_eq!(run.code, Some(1), "{run:#?}");
            assert!(
                run.out.contains("cannot be compared") && run.out.contains("meta cpu"),
                "{run:#?}"
            );
            Ok(())
        },
    )
}

#[test]
fn each_planted_difference_is_named_in_mode_iptables() -> Result<()> {
    isolated(
        "against_kube_proxy::each_planted_difference_is_named_in_mode_iptables",
        |lab| {
            let services = services(SERVICES);
            let manifests = manifests(lab, &services)?;
            let planted = planted::planted_in_iptables();
            let other = with_planted(&services, &planted)?;
            iptables::load(lab, &other, |line| planted::damaged_line(&services, line))?;
            let json = [&ALL_NODE_PORTS[..], &["-o", "json"]].concat();
            let run = verify(lab, &manifests, &json)?;
            assert_eq!(run.code, Some(1), "{run:#?}");
            planted::expect_named(&planted, &run.json()?);
            Ok(())
        },
    )
}

#[test]
fn pods_known_by_interface_or_by_range_make_no_difference() -> Result<()> {
    isolated(
        "against_kube_proxy::pods_known_by_interface_or_by_range_make_no_difference",
        |lab| {
            let services = services(SERVICES);
            let manifests = manifests(lab, &services)?;
            let by_interface = |piece: String| {
                let families = Family::BOTH.map(|family| ranges::PODS.cidr(family));
                ["ip", "ip6"]
                    .into_iter()
                    .zip(families)
                    .fold(piece, |piece, (ip, pods)| {
                        piece
                            .replace(&format!("{ip} saddr != {pods}"), "iifname != \"veth*\"")
                            .replace(&format!("{ip} saddr {pods}"), "iifname \"veth*\"")
                    })
            };
            nftables::load(lab, &services, Layout::UpTo135, by_interface)?;
            expect_equal(&verify(lab, &manifests, &[])?, "nftables");
            nftables::remove(lab)?;
            load(lab, &services, Layout::From136)?;
            let run = verify(lab, &manifests, &["--local-detect", "interfaces:veth*"])?;
            expect_equal(&run, "nftables");
            Ok(())
        },
    )
}

#[test]
fn unused_ports_and_addresses_of_services_are_compared() -> Result<()> {
    isolated(
        "against_kube_proxy::unused_ports_and_addresses_of_services_are_compared",
        |lab| {
            let services = services(20);
            let manifests = manifests(lab, &services)?;
            let summaries = |run: &Run| -> Result<Vec<String>> {
                let report = run.json()?;
                let differences = report["differences"].as_array().into_iter().flatten();
                let summary = |it: &Value| it["summary"].as_str().unwrap_or("-").to_owned();
                let mut summaries: Vec<String> = differences.map(summary).collect();
                summaries.sort();
                Ok(summaries)
            };
            load(lab, &services, Layout::From136)?;
            let run = verify_without_ranges(lab, &manifests, &["-o", "json"])?;
            assert_eq!(
                summaries(&run)?,
                ["only kube-proxy drops it (an unused address: see service-cidrs)"; 2],
                "{run:#?}"
            );
            for family in ["ip", "ip6"] {
                let flush = [
                    "nft",
                    "flush",
                    "chain",
                    family,
                    "kube-proxy",
                    "cluster-ips-check",
                ];
                lab.node.exec(&flush)?;
            }
            let run = verify(lab, &manifests, &["-o", "json"])?;
            let (port, address) = (
                "only contiv rejects it (an unused port)",
                "only contiv drops it (an unused address)",
            );
            assert_eq!(summaries(&run)?, [address, address, port, port], "{run:#?}");
            Ok(())
        },
    )
}

#[test]
fn chains_of_kube_proxy_in_iptables_legacy_are_an_error() -> Result<()> {
    isolated(
        "against_kube_proxy::chains_of_kube_proxy_in_iptables_legacy_are_an_error",
        |lab| {
            let services = services(20);
            let manifests = manifests(lab, &services)?;
            load(lab, &services, Layout::From136)?;
            let add = |chain| {
                lab.node
                    .exec(&["iptables-legacy", "-t", "nat", "-N", chain])
            };
            add("DOCKER")?;
            let run = verify(lab, &manifests, &[])?;
            assert_eq!((run.code, &*run.err), (Some(0), ""), "{run:#?}");
            add("KUBE-SVC-TCOU7JCQXEZGVUNU")?;
            let run = verify(lab, &manifests, &[])?;
            assert!(
                run.code == Some(1)
                    && run.err.contains("tables ip nat of iptables-legacy")
                    && run.err.contains("kube-proxy --cleanup"),
                "{run:#?}"
            );
            Ok(())
        },
    )
}

#[test]
fn api_server_and_running_agent_are_compared() -> Result<()> {
    isolated(
        "against_kube_proxy::api_server_and_running_agent_are_compared",
        |lab| {
            let web = WebService::new("web", 80, &[lab.pod1.host, lab.pod3.host]);
            let kubernetes = Kubernetes::start(lab)?;
            kubernetes.put(&web)?;
            load(lab, &[Service::of(lab, &web)], Layout::From136)?;
            let store = kubernetes.url()?;
            let flags = service_ranges();
            let of_store = ["--store", &store, "--node-name", lab.node.host.name, &flags];
            let options = AgentOptions {
                flags: vec![flags.clone()],
                ..AgentOptions::with_store(store.clone())
            };
            let _agent = Agent::start(lab, &options)?;
            for arguments in [&of_store[..], &[]] {
                let run = verify_with(lab, arguments)?;
                assert!(
                    run.code == Some(0) && run.out.contains("of 1 service compared"),
                    "{arguments:?}: {run:#?}"
                );
            }
            let address = web.address(lab, Frontend::ExternalIp, Family::V4);
            let (ip, port) = (address.ip(), address.port());
            let element = format!("{{ {ip} . tcp . {port} }}");
            lab.node.exec(&[
                "nft",
                "delete",
                "element",
                "ip",
                "kube-proxy",
                "service-ips",
                &element,
            ])?;
            for arguments in [&of_store[..], &[]] {
                let run = verify_with(lab, arguments)?;
                assert!(
                    run.code == Some(1)
                        && run.out.contains("only contiv serves it")
                        && run.out.contains(&format!("{address}/tcp")),
                    "{arguments:?}: {run:#?}"
                );
            }
            Ok(())
        },
    )
}
