//! Settings of the agent that keep clients out.

use contiv_tests::lab::{Result, isolated};

use super::{
    fault::{Fault, Machine, fault},
    group::run_group,
    scene::{Object, Scene},
};

const NO_FLAGS: fn(&mut Scene<'_>) -> Result<()> = |scene| scene.restart_with(&[]);

fn faults_of_settings() -> Vec<Fault> {
    use Machine::{Client, Node, Pod2};
    vec![
        fault(
            "services answer at interfaces of pods only",
            Client,
            "192.0.2.80:80/tcp",
            &["interface-closed"],
            "service-interfaces does not have eth0, by which the client comes in",
        )
        .call(|scene| scene.restart_with(&["--service-interfaces=pods"]), NO_FLAGS),
        fault(
            "services answer at eth0 only",
            Pod2,
            "10.96.0.80:80/tcp",
            &["interface-closed"],
            "service-interfaces does not have pod2, by which the client comes in",
        )
        .call(|scene| scene.restart_with(&["--service-interfaces=eth0"]), NO_FLAGS),
        fault(
            "node ports answer in another range",
            Client,
            "172.31.0.1:30080/tcp",
            &["node-port-elsewhere"],
            "node-port-addresses has 10.0.0.0/8 only",
        )
        .call(|scene| scene.restart_with(&["--node-port-addresses=10.0.0.0/8"]), NO_FLAGS),
        fault(
            "node-ips is not an address of the node",
            Client,
            "172.31.0.1:30080/tcp",
            &["node-port-elsewhere"],
            "node-ips is 172.31.0.51, so node ports do not answer at 172.31.0.1",
        )
        .call(|scene| scene.restart_with(&["--node-ips=172.31.0.51"]), NO_FLAGS),
        fault(
            "the agent serves services of another proxy",
            Pod2,
            "10.96.0.80:80/tcp",
            &["other-proxy"],
            "service-proxy-name is other, and the service has no such label",
        )
        .call(|scene| scene.restart_with(&["--service-proxy-name=other"]), NO_FLAGS),
        fault(
            "source ranges restrict node ports too",
            Client,
            "172.31.0.1:30003/tcp",
            &["source-ranges"],
            "source-ranges-on-node-ports is set, and the service allows 10.0.0.0/8 only",
        )
        .call(
            |scene| scene.restart_with(&["--source-ranges-on-node-ports=true"]),
            NO_FLAGS,
        ),
        fault(
            "external policy Local restricts cluster IPs too",
            Pod2,
            "10.96.0.1:80/tcp",
            &["policy-local"],
            "contiv-local-policy is set, and the backend is on node2",
        )
        .call(|scene| scene.restart_with(&["--contiv-local-policy=true"]), NO_FLAGS),
        fault(
            "pods of the node are not known as such",
            Pod2,
            "192.0.2.1:80/tcp",
            &["policy-local"],
            "pod-cidrs does not have 10.244.1.11, so policy Local holds for it as for external clients",
        )
        .call(|scene| scene.restart_with(&["--pod-cidrs=10.99.0.0/16"]), NO_FLAGS),
        fault(
            "route_localnet is off again",
            Node,
            "127.0.0.1:30080/tcp",
            &["loopback-not-routed"],
            "net.ipv4.conf.all.route_localnet is 0, which node-ports-on-loopback needs",
        )
        .permanent()
        .call(
            |scene| scene.restart_with(&["--node-ports-on-loopback=true"]),
            NO_FLAGS,
        )
        .shell(
            Node,
            "for i in /proc/sys/net/ipv4/conf/*/route_localnet; do echo 0 >$i; done",
            "true",
        ),
    ]
}

#[test]
fn settings_that_keep_clients_out_are_named() -> Result<()> {
    isolated(
        "why::settings::settings_that_keep_clients_out_are_named",
        |lab| {
            let mut scene = Scene::start(lab, &[])?;
            scene.put(&Object {
                spec: "  externalTrafficPolicy: Local\n",
                ..Object::new("external-local", 1, &["pod3"])
            })?;
            scene.put(&Object {
                spec: "  loadBalancerSourceRanges: [10.0.0.0/8]\n",
                ..Object::new("ranges", 3, &["pod3"])
            })?;
            run_group("settings", &mut scene, &faults_of_settings())
        },
    )
}
