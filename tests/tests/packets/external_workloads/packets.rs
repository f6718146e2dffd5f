//! A workload outside all pod networks is reached by the services that select it while it is ready.

use std::{collections::BTreeSet, fs, net::SocketAddr};

use contiv_tests::{
    agent::{Agent, AgentOptions, binary},
    cluster::{Etcd, NAMESPACE, ROOT, State, TARGET_PORT},
    fleet::{ELECTION, EVENT_TIMEOUT, Instance},
    lab::{
        Family, Host, Lab, LabError, Namespace, Protocol, Responder, Result, isolated, ranges,
        scratch, wait_until,
    },
};
use serde_json::json;

/// As a user writes it.
const SERVICE: &str = r#"
apiVersion: v1
kind: Service
metadata: {name: legacy}
spec:
  clusterIP: 10.96.0.50
  clusterIPs: [10.96.0.50, "fd00:10:96::32"]
  ipFamilies: [IPv4, IPv6]
  selector: {app: legacy}
  ports: [{name: http, port: 80, targetPort: web}]
"#;

/// The service and the machines `client` and `node2` as workloads of these names with the given readiness.
fn manifests(lab: &Lab, client: &str, node2: &str) -> String {
    let workload = |(name, namespace, ready): (&str, &Namespace, &str)| {
        let Host { v4, v6, .. } = namespace.host;
        format!(
            "---
apiVersion: workload.linkerd.io/v1beta1
kind: ExternalWorkload
metadata: {{name: {name}, labels: {{app: legacy}}}}
spec:
  meshTLS: {{identity: 'spiffe://lab/{name}', serverName: {name}.lab}}
  workloadIPs: [{{ip: {v4}}}, {{ip: '{v6}'}}]
  ports: [{{name: web, port: 8080}}]
status:
  conditions: [{{type: Ready, status: '{ready}'}}]
"
        )
    };
    let workloads = [("vm-1", &lab.client, client), ("vm-2", &lab.node2, node2)].map(workload);
    format!("{SERVICE}{}", workloads.concat())
}

#[test]
fn external_workload_is_reached_while_it_is_ready() -> Result<()> {
    isolated(
        "external_workloads::packets::external_workload_is_reached_while_it_is_ready",
        |lab| {
            let etcd = Etcd::start(lab)?;
            let _servers = Responder::start_all([&lab.client, &lab.node2, &lab.pod2], TARGET_PORT)?;
            // The network of an external workload needs routes back to the pods.
            for family in Family::BOTH {
                let (pods, via) = (
                    ranges::PODS.cidr(family),
                    lab.node.host.address(family).to_string(),
                );
                lab.client
                    .exec(&["ip", "route", "add", &pods, "via", &via])?;
            }
            let controller = Instance::start(lab, &lab.node, &["--enable", "external-workloads"])?;
            let agent = Agent::start(lab, &AgentOptions::with_store(etcd.url()))?;
            let run = Run { lab, etcd: &etcd };

            run.contiv("apply", &manifests(lab, "True", "False"))?;
            run.is_served_by(&["client"])?;
            // The other one becomes ready too, and then the first one fails.
            run.contiv("apply", &manifests(lab, "True", "True"))?;
            run.is_served_by(&["client", "node2"])?;
            run.contiv("apply", &manifests(lab, "Unknown", "True"))?;
            run.is_served_by(&["node2"])?;
            // A pod of the same service, in a slice of another writer.
            let pod_slice = |family: Family, address_type: &str| {
                let name = format!("legacy-{}", address_type.to_lowercase());
                let value = json!({
                    "name": name, "namespace": NAMESPACE, "service_name": "legacy", "address_type": address_type,
                    "endpoints": [{"addresses": [lab.pod2.host.address(family)], "node_name": "node"}],
                    "ports": [{"name": "http", "port": TARGET_PORT, "protocol": "TCP"}],
                });
                (
                    format!("{ROOT}/endpointslice/{name}/namespace/{NAMESPACE}"),
                    value.to_string(),
                )
            };
            etcd.put_values(&[pod_slice(Family::V4, "IPv4"), pod_slice(Family::V6, "IPv6")])?;
            run.is_served_by(&["node2", "pod2"])?;
            etcd.delete_key(&format!(
                "{ROOT}/externalworkload/vm-2/namespace/{NAMESPACE}"
            ))?;
            run.is_served_by(&["pod2"])?;

            // The service is deleted with its slices; slices of others stay.
            etcd.delete_key(&format!("{ROOT}/service/legacy/namespace/{NAMESPACE}"))?;
            wait_until("our slices are gone", EVENT_TIMEOUT, || {
                run.slices().is_ok_and(|slices| {
                    slices.len() == 2 && slices.iter().all(|key| key.contains("/legacy-"))
                })
            })?;
            let (_, metrics) = controller.get("/metrics")?;
            for expected in [
                "workqueue_adds_total{name=\"external-workloads\"}",
                "contiv_controller_leader 1",
            ] {
                assert!(
                    metrics.contains(expected),
                    "{expected} is not in:\n{metrics}"
                );
            }
            assert!(controller.stop()?, "it ends well");
            let holder = etcd.etcdctl(&["get", ELECTION, "--print-value-only"])?;
            assert_eq!(holder.trim(), "", "the lease is released");
            agent.stop().map(drop)
        },
    )
}

#[test]
fn external_workloads_join_pods_of_endpoints() -> Result<()> {
    isolated(
        "external_workloads::packets::external_workloads_join_pods_of_endpoints",
        |lab| {
            let etcd = Etcd::start(lab)?;
            let _servers = Responder::start_all([&lab.client, &lab.pod2], TARGET_PORT)?;
            for family in Family::BOTH {
                let (pods, via) = (
                    ranges::PODS.cidr(family),
                    lab.node.host.address(family).to_string(),
                );
                lab.client
                    .exec(&["ip", "route", "add", &pods, "via", &via])?;
            }
            let _controller = Instance::start(lab, &lab.node, &["--enable", "external-workloads"])?;
            let agent = Agent::start(lab, &AgentOptions::with_store(etcd.url()))?;
            let run = Run { lab, etcd: &etcd };

            // The pods as Contiv's reflector writes them: without any slice.
            let subsets = Family::BOTH.map(|family| {
                json!({
                    "addresses": [{"ip": lab.pod2.host.address(family), "node_name": "node"}],
                    "ports": [{"name": "http", "port": TARGET_PORT, "protocol": "TCP"}],
                })
            });
            let pods =
                json!({"name": "legacy", "namespace": NAMESPACE, "endpoint_subsets": subsets});
            etcd.put_values(&[(
                format!("{ROOT}/endpoints/legacy/namespace/{NAMESPACE}"),
                pods.to_string(),
            )])?;
            run.contiv("apply", SERVICE)?;
            run.is_served_by(&["pod2"])?;

            run.contiv("apply", &manifests(lab, "False", "False"))?;
            wait_until("there are slices of both families", EVENT_TIMEOUT, || {
                run.slices().is_ok_and(|slices| slices.len() == 2)
            })?;
            run.is_served_by(&["pod2"])?;
            run.contiv("apply", &manifests(lab, "True", "False"))?;
            run.is_served_by(&["client", "pod2"])?;
            run.contiv("apply", &manifests(lab, "False", "False"))?;
            run.is_served_by(&["pod2"])?;
            agent.stop().map(drop)
        },
    )
}

/// The first workload of the store: the agent has kept nothing of the services before.
#[test]
fn workload_without_controller_has_a_warning_until_one_runs() -> Result<()> {
    let test =
        "external_workloads::packets::workload_without_controller_has_a_warning_until_one_runs";
    isolated(test, |lab| {
        let etcd = Etcd::start(lab)?;
        let _servers = Responder::start_all([&lab.client], TARGET_PORT)?;
        for family in Family::BOTH {
            let (pods, via) = (
                ranges::PODS.cidr(family),
                lab.node.host.address(family).to_string(),
            );
            lab.client
                .exec(&["ip", "route", "add", &pods, "via", &via])?;
        }
        let agent = Agent::start(lab, &AgentOptions::with_store(etcd.url()))?;
        let run = Run { lab, etcd: &etcd };
        let binary = binary()?.display().to_string();
        let is_warned_of = || -> Result<bool> {
            let status = lab.node.exec(&[&binary, "status"])?;
            Ok(
                status.contains("no controller has made endpoint slices of it")
                    && status.contains("vm-1"),
            )
        };
        run.contiv("apply", SERVICE)?;
        assert!(!is_warned_of()?);
        run.contiv("apply", &manifests(lab, "True", "False"))?;
        wait_until("the workload is warned of", EVENT_TIMEOUT, || {
            is_warned_of().unwrap_or(false)
        })?;

        let controller = Instance::start(lab, &lab.node, &["--enable", "external-workloads"])?;
        run.is_served_by(&["client"])?;
        wait_until("the warning is gone", EVENT_TIMEOUT, || {
            !is_warned_of().unwrap_or(true)
        })?;
        assert!(controller.stop()?, "it ends well");
        agent.stop().map(drop)
    })
}

struct Run<'lab> {
    lab: &'lab Lab,
    etcd: &'lab Etcd<'lab>,
}

impl Run<'_> {
    /// Runs `contiv` with manifests.
    fn contiv(&self, command: &str, manifests: &str) -> Result<()> {
        let path = scratch("workloads.yaml")?;
        fs::write(&path, manifests).map_err(|error| LabError::system("write manifests", error))?;
        let (binary, path) = (binary()?.display().to_string(), path.display().to_string());
        self.lab
            .node
            .exec(&[&binary, command, "-f", &path, "--store", &self.etcd.url()])
            .map(drop)
    }

    /// Waits until a pod gets answers from exactly these, by IPv4 and by IPv6.
    fn is_served_by(&self, expected: &[&str]) -> Result<()> {
        let expected: BTreeSet<&str> = expected.iter().copied().collect();
        for address in
            Family::BOTH.map(|family| SocketAddr::new(ranges::SERVICES.address(family, 50), 80))
        {
            let mut seen = String::new();
            wait_until(
                &format!("{expected:?} serve {address}"),
                EVENT_TIMEOUT,
                || {
                    let counts = self.lab.pod1.distribution(Protocol::Tcp, address, 30);
                    seen = format!("{counts:?}");
                    counts.is_ok_and(|counts| {
                        counts
                            .keys()
                            .map(String::as_str)
                            .eq(expected.iter().copied())
                    })
                },
            )
            .map_err(|error| LabError::Unexpected(format!("{error}; last seen: {seen}")))?;
        }
        Ok(())
    }

    /// The keys of all endpoint slices.
    fn slices(&self) -> Result<Vec<String>> {
        let keys = self.etcd.etcdctl(&[
            "get",
            "--prefix",
            &format!("{ROOT}/endpointslice/"),
            "--keys-only",
        ])?;
        Ok(keys
            .lines()
            .filter(|line| !line.is_empty())
            .map(str::to_owned)
            .collect())
    }
}
