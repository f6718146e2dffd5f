//! `contiv verify --against kube-proxy`: with the rules that a kube-proxy writes for a cluster of 500 different services, and with
//! differences that are planted in them.

#![expect(clippy::print_stdout, reason = "the times are part of the result")]

mod cluster;
mod iptables;
mod nftables;
mod planted;

use std::process::Command;

use contiv_tests::{
    agent::binary,
    cluster::{Manifests, NodeManifest},
    lab::{self, Lab, LabError, Result, isolated, ranges},
};
use serde_json::Value;

use self::{
    cluster::{Service, ZONE, services},
    nftables::Layout,
    planted::{Planted, planted},
};

/// The services of the cluster.
const SERVICES: u32 = 500;

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

/// Runs the command on the node, without an agent.
fn verify(lab: &Lab, manifests: &Manifests, arguments: &[&str]) -> Result<Run> {
    let binary = binary()?;
    let store = format!("dir:{}", manifests.folder());
    let output = lab.node.run(|| {
        Command::new(&binary)
            .args(["verify", "--against", "kube-proxy", "--store", &store])
            .args(["--node-name", lab.node.host.name])
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
    for piece in nftables::rules(services, layout) {
        lab::load_ruleset(&lab.node, &piece)?;
    }
    Ok(())
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
                for family in ["ip", "ip6"] {
                    lab.node
                        .exec(&["nft", "delete", "table", family, "kube-proxy"])?;
                }
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
            iptables::load(lab, &services)?;
            // Rules of other programs are not compared.
            let other = "*filter\n:FORWARD DROP [0:0]\n-A INPUT -p udp -m limit --limit 1/s -j DROP\nCOMMIT\n";
            lab.node
                .exec_with_input(&["iptables-nft-restore", "--noflush"], other)?;
            // In this mode node ports answer on all addresses.
            let run = verify(lab, &manifests, &["--node-port-addresses", "all"])?;
            expect_equal(&run, "iptables");
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
                let mut other = services.clone();
                for Planted {
                    service, change, ..
                } in &planted
                {
                    let found = other.iter_mut().find(|it| it.name == *service);
                    change(found.ok_or_else(|| LabError::Unexpected((*service).to_owned()))?);
                }
                load(lab, &other, layout)?;
                planted::damage(lab, &services, layout)?;
                let run = verify(lab, &manifests, &["-o", "json"])?;
                assert_eq!(run.code, Some(1), "{run:#?}");
                let report = run.json()?;
                planted::expect_named(&planted, &report);
                let table = verify(lab, &manifests, &[])?;
                println!("{}", table.out);
                let names = verify(lab, &manifests, &["-o", "name"])?;
                assert_eq!(names.out.lines().count(), planted.len(), "{names:#?}");
                for family in ["ip", "ip6"] {
                    lab.node
                        .exec(&["nft", "delete", "table", family, "kube-proxy"])?;
                }
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
