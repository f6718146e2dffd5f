//! The rules for a Service's `spec` (Kubernetes `pkg/apis/core/validation`, `ValidateService`), as far as contiv uses it.

use std::{collections::BTreeMap, net::IpAddr};

use contiv_proto::address::without_leading_zeros;

use super::{Check, Spec};

/// The `clusterIP` of a service that has none.
const NONE: &str = "None";

impl Spec {
    /// Sets the API server's defaults.
    pub(super) fn fill_in(&mut self) {
        if self.service_type.is_empty() {
            "ClusterIP".clone_into(&mut self.service_type);
        }
        if self.session_affinity.is_empty() {
            NONE.clone_into(&mut self.session_affinity);
        }
        match self.cluster_ips.first() {
            None if !self.cluster_ip.is_empty() => self.cluster_ips.push(self.cluster_ip.clone()),
            Some(first) if self.cluster_ip.is_empty() => self.cluster_ip.clone_from(first),
            _ => {}
        }
        for range in &mut self.load_balancer_source_ranges {
            // Blanks are allowed, as in the API server.
            *range = range.trim().to_owned();
        }
    }

    /// Collects what the API server would refuse, except problems of a single port.
    pub(super) fn check(&self, check: &mut Check) {
        let types = ["ClusterIP", "NodePort", "LoadBalancer", "ExternalName"];
        check.known_value(format_args!("spec.type"), &self.service_type, &types);
        check.known_value(
            format_args!("spec.sessionAffinity"),
            &self.session_affinity,
            &[NONE, "ClientIP"],
        );
        let policies = ["Cluster", "Local"];
        let (external, internal) = (&self.external_traffic_policy, &self.internal_traffic_policy);
        check.known_value_or_empty(
            format_args!("spec.externalTrafficPolicy"),
            external,
            &policies,
        );
        check.known_value_or_empty(
            format_args!("spec.internalTrafficPolicy"),
            internal,
            &policies,
        );
        for (i, family) in self.ip_families.iter().enumerate() {
            let field = format_args!("spec.ipFamilies[{i}]");
            check.known_value(field, family, &["IPv4", "IPv6"]);
            if self.ip_families[..i].contains(family) {
                check.refuse(field, format!("{family:?} is named twice"));
            }
        }
        self.check_addresses(check);
        self.check_ports(check);
    }

    fn check_addresses(&self, check: &mut Check) {
        if !self.cluster_ip.is_empty() && self.cluster_ip != NONE {
            check.routable_address(format_args!("spec.clusterIP"), &self.cluster_ip);
        }
        match self.cluster_ips.as_slice() {
            // The default set above; it is checked already.
            [only] if *only == self.cluster_ip => {}
            [first, ..] if *first != self.cluster_ip => {
                let reason = format!("{first:?} is not spec.clusterIP, {:?}", self.cluster_ip);
                check.refuse(format_args!("spec.clusterIPs[0]"), reason);
            }
            addresses => {
                for (i, address) in addresses.iter().enumerate().skip(1) {
                    check.routable_address(format_args!("spec.clusterIPs[{i}]"), address);
                }
                self.check_families(check);
            }
        }
        for (i, address) in self.external_ips.iter().enumerate() {
            check.routable_address(format_args!("spec.externalIPs[{i}]"), address);
        }
        for (i, range) in self.load_balancer_source_ranges.iter().enumerate() {
            check.client_network(format_args!("spec.loadBalancerSourceRanges[{i}]"), range);
        }
    }

    /// One address per family.
    fn check_families(&self, check: &mut Check) {
        let mut families = BTreeMap::new();
        for (i, address) in self.cluster_ips.iter().enumerate() {
            let Ok(address) = without_leading_zeros(address).parse::<IpAddr>() else {
                continue;
            };
            if let Some(first) = families.insert(address.to_canonical().is_ipv4(), i) {
                let reason = format!(
                    "{address} is of the family of spec.clusterIPs[{first}]; one of each is allowed"
                );
                check.leave_out(format_args!("spec.clusterIPs[{i}]"), reason);
            }
        }
    }

    /// Endpoints match the port's name, and packets its number and protocol: both must be unique.
    fn check_ports(&self, check: &mut Check) {
        let mut names = BTreeMap::new();
        let mut numbers = BTreeMap::new();
        let mut node_ports = BTreeMap::new();
        for (i, port) in self.ports.iter().enumerate() {
            if port.name.is_empty() && self.ports.len() > 1 {
                let reason = "missing; with more than one port each needs a name";
                check.refuse(format_args!("spec.ports[{i}].name"), reason);
            } else if let Some(first) = names.insert(port.name.as_str(), i) {
                let reason = format!("{:?} is the name of spec.ports[{first}] too", port.name);
                check.refuse(format_args!("spec.ports[{i}].name"), reason);
            }
            let protocol = if port.protocol.is_empty() {
                "TCP"
            } else {
                &port.protocol
            };
            if let Some(first) = numbers.insert((port.port, protocol), i) {
                let reason = format!(
                    "{protocol} port {} is that of spec.ports[{first}] too",
                    port.port
                );
                check.refuse(format_args!("spec.ports[{i}].port"), reason);
            }
            check.name_characters(format_args!("spec.ports[{i}].name"), &port.name);
            // Those of a former type do not count.
            if port.node_port == 0
                || !matches!(self.service_type.as_str(), "NodePort" | "LoadBalancer")
            {
                continue;
            }
            check.mark_reachable();
            if let Some(first) = node_ports.insert((port.node_port, protocol), i) {
                let reason = format!(
                    "{protocol} port {} is that of spec.ports[{first}] too",
                    port.node_port
                );
                check.refuse(format_args!("spec.ports[{i}].nodePort"), reason);
            }
        }
    }
}
