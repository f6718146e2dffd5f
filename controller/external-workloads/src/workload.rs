//! External workloads, as far as endpoints depend on them.

use std::net::IpAddr;

use contiv_controller::{BoxError, Labels, ResourceType};
use contiv_proto::{
    Key, Kind, address::without_leading_zeros, check::routable_address,
    message::externalworkload as wire,
};
use contiv_store::Entry;

use crate::service::{Service, or_tcp, read};

/// The label with a workload's zone.
const ZONE_LABEL: &str = "topology.kubernetes.io/zone";

/// An external workload. Equal workloads lead to the same endpoints.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workload {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Distinguishes it from an earlier workload of the same name: the revision of its creation.
    pub uid: i64,
    /// Its labels, including its zone, by which services select it.
    pub labels: Labels,
    /// Its addresses.
    pub ips: Vec<IpAddr>,
    /// Its ports, in order. Services can reach only these.
    pub ports: Vec<WorkloadPort>,
    /// Whether it is ready.
    pub is_ready: bool,
}

/// A port of a workload.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct WorkloadPort {
    /// Its name; may be empty.
    pub name: String,
    /// Its number.
    pub port: i32,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: String,
}

/// External workloads as they are stored.
pub fn workloads() -> ResourceType<Workload> {
    ResourceType::new(
        "externalworkload",
        &Key::prefix(Kind::ExternalWorkload),
        decode,
    )
}

pub(crate) fn decode(entry: &Entry) -> Result<Workload, BoxError> {
    Workload::from_message(read(entry)?, entry.create_revision)
}

impl Workload {
    /// A stored workload that was created at this revision. Addresses that no other host can send to are left out; agents report
    /// them.
    ///
    /// # Errors
    /// When none of its addresses is left.
    pub fn from_message(message: wire::ExternalWorkload, uid: i64) -> Result<Self, BoxError> {
        let (mut ips, mut problem) = (Vec::new(), None);
        for (i, ip) in message.workload_ips.iter().enumerate() {
            match routable_address(&without_leading_zeros(ip)) {
                Ok(ip) => ips.push(ip),
                Err(reason) => problem = Some(format!("field spec.workloadIPs[{i}].ip: {reason}")),
            }
        }
        if let Some(problem) = problem.filter(|_| ips.is_empty()) {
            return Err(problem.into());
        }
        let port = |port: wire::external_workload::Port| WorkloadPort {
            name: port.name,
            port: port.port,
            protocol: or_tcp(port.protocol),
        };
        let mut ports: Vec<WorkloadPort> = message.ports.into_iter().map(port).collect();
        ports.sort_unstable();
        Ok(Self {
            uid,
            is_ready: is_ready(&message.conditions),
            ips,
            ports,
            namespace: message.namespace,
            name: message.name,
            labels: message.labels,
        })
    }

    /// Whether it is a backend of this service.
    pub fn is_behind(&self, service: &Service) -> bool {
        service.is_ours()
            && service.namespace == self.namespace
            && service
                .selector
                .iter()
                .all(|(name, value)| self.labels.get(name) == Some(value))
    }

    /// Its zone; empty if unknown.
    pub fn zone(&self) -> &str {
        self.labels
            .get(ZONE_LABEL)
            .map(String::as_str)
            .unwrap_or_default()
    }
}

/// A workload is ready if the condition Ready is `True`. Without the condition, with `False` and with `Unknown` it is not.
fn is_ready(conditions: &[wire::external_workload::Condition]) -> bool {
    conditions
        .iter()
        .any(|condition| condition.r#type == "Ready" && condition.status == "True")
}

#[cfg(test)]
mod tests {
    use contiv_proto::value;

    use super::*;

    fn workload(json: &str) -> Result<Workload, BoxError> {
        Workload::from_message(value::decode(json.as_bytes()).unwrap(), 7)
    }

    #[test]
    fn workload_is_ready_when_any_ready_condition_is_true() {
        for (conditions, expected) in [
            ("", false),
            (r#"{"type":"Ready","status":"True"}"#, true),
            (r#"{"type":"Ready","status":"False"}"#, false),
            (r#"{"type":"Ready","status":"Unknown"}"#, false),
            (r#"{"type":"Other","status":"True"}"#, false),
            (
                r#"{"type":"Ready","status":"False"},{"type":"Ready","status":"True"}"#,
                true,
            ),
        ] {
            let workload = workload(&format!(r#"{{"conditions":[{conditions}]}}"#)).unwrap();
            assert_eq!(workload.is_ready, expected, "{conditions}");
        }
    }

    #[test]
    fn bad_address_of_workload_is_left_out_unless_it_is_the_last() {
        let ips = |json: &str| workload(json).unwrap().ips;
        for bad in ["10.0.0", "127.0.0.1", "fe80::1", "0.0.0.0", "224.0.0.1", ""] {
            let left = ips(&format!(r#"{{"workload_ips":["{bad}","10.0.0.1"]}}"#));
            assert_eq!(left, ["10.0.0.1".parse::<IpAddr>().unwrap()], "{bad}");
            let error = workload(&format!(r#"{{"workload_ips":["{bad}"]}}"#)).unwrap_err();
            assert!(
                error
                    .to_string()
                    .starts_with("field spec.workloadIPs[0].ip: "),
                "{bad}: {error}"
            );
        }
        let mapped = ips(r#"{"workload_ips":["::ffff:10.0.0.1","10.0.0.02"]}"#);
        assert_eq!(
            mapped,
            ["10.0.0.1", "10.0.0.2"].map(|ip| ip.parse::<IpAddr>().unwrap())
        );
        assert!(ips("{}").is_empty());
    }

    #[test]
    fn irrelevant_fields_make_no_difference() {
        let one = r#"{"name":"w","workload_ips":["10.0.0.1"],"ports":[{"port":2},{"port":1,"protocol":"TCP"}],
            "mesh_tls":{"identity":"a"},"conditions":[{"type":"Ready","status":"True","last_probe_time":"1"}]}"#;
        let other = r#"{"name":"w","workload_ips":["10.0.0.1"],"ports":[{"port":1},{"port":2}],
            "annotations":{"a":"b"},"conditions":[{"type":"Ready","status":"True","last_probe_time":"2"}]}"#;
        assert_eq!(workload(one).unwrap(), workload(other).unwrap());
    }
}
