//! A Service's `status`: the addresses of its load balancer.

use contiv_proto::message::service as wire;
use serde::{Deserialize, Serialize};

use super::Check;

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Status {
    load_balancer: LoadBalancer,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
struct LoadBalancer {
    ingress: Vec<Ingress>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
struct Ingress {
    #[serde(skip_serializing_if = "String::is_empty")]
    ip: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    hostname: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    ip_mode: String,
}

impl Status {
    pub(super) fn is_empty(&self) -> bool {
        self.load_balancer.ingress.is_empty()
    }

    pub(super) fn into_message(self, check: &mut Check) -> Vec<wire::service::LoadBalancerIngress> {
        let convert = |(i, ingress): (usize, Ingress)| {
            if !ingress.ip.is_empty() {
                check.routable_address(
                    format_args!("status.loadBalancer.ingress[{i}].ip"),
                    &ingress.ip,
                );
            }
            let field = format_args!("status.loadBalancer.ingress[{i}].ipMode");
            check.known_value_or_empty(field, &ingress.ip_mode, &["VIP", "Proxy"]);
            let Ingress {
                ip,
                hostname,
                ip_mode,
            } = ingress;
            wire::service::LoadBalancerIngress {
                ip,
                hostname,
                ip_mode,
            }
        };
        self.load_balancer
            .ingress
            .into_iter()
            .enumerate()
            .map(convert)
            .collect()
    }

    /// Contiv's list of addresses is used if there is no other.
    pub(super) fn from_message(message: &wire::Service) -> Self {
        let ingress = if message.load_balancer_ingress.is_empty() {
            let from_address = |ip: &String| Ingress {
                ip: ip.clone(),
                ..Ingress::default()
            };
            // Contiv writes an empty address for a load balancer with only a host name.
            message
                .lb_ingress_ips
                .iter()
                .filter(|ip| !ip.is_empty())
                .map(from_address)
                .collect()
        } else {
            let from_ingress = |ingress: &wire::service::LoadBalancerIngress| Ingress {
                ip: ingress.ip.clone(),
                hostname: ingress.hostname.clone(),
                ip_mode: ingress.ip_mode.clone(),
            };
            message
                .load_balancer_ingress
                .iter()
                .map(from_ingress)
                .collect()
        };
        Self {
            load_balancer: LoadBalancer { ingress },
        }
    }
}
