//! Several proxies on one node: each serves the services that name it.

use std::time::Duration;

use contiv_tests::{
    agent::{Agent, AgentOptions},
    cluster::{Frontend, Manifests, PORT, Service, ServiceManifest, State, TARGET_PORT},
    lab::{Family, Outcome, Protocol, Responder, Result, isolated},
};

/// The time without an answer after which a packet counts as dropped.
const NO_ANSWER_TIMEOUT: Duration = Duration::from_millis(500);

#[test]
fn two_proxies_share_node_by_name() -> Result<()> {
    isolated("shared_node::two_proxies_share_node_by_name", |lab| {
        let _responders = Responder::start_all(lab.pods(), TARGET_PORT)?;
        let state = Manifests::new(lab)?;
        let services = [
            ("ours", 1, Some("contiv")),
            ("theirs", 2, Some("other")),
            ("nobodys", 3, None),
        ];
        let [ours, theirs, nobodys] = services.map(|(name, number, proxy_name)| ServiceManifest {
            proxy_name,
            ..ServiceManifest::new(Service::new(name, number, &[lab.pod1.host]))
        });
        for manifest in [&ours, &theirs, &nobodys] {
            state.put_manifest(manifest)?;
        }
        // The other proxy is a single rule that sends its service elsewhere, which shows that it served it.
        let at = theirs
            .service
            .address(lab, Frontend::ClusterIp, Family::V4)
            .ip();
        let to = lab.pod3.host.socket(Family::V4, TARGET_PORT);
        let rules = format!(
            "add table ip other
add chain ip other nat {{ type nat hook prerouting priority dstnat; }}
add rule ip other nat ip daddr {at} tcp dport {PORT} dnat to {to}\n"
        );
        lab.node.exec_with_input(&["nft", "-f", "-"], &rules)?;
        let served_by = |manifest: &ServiceManifest| -> Result<Option<String>> {
            let address = manifest
                .service
                .address(lab, Frontend::ClusterIp, Family::V4);
            Ok(
                match lab
                    .pod2
                    .ask_within(Protocol::Tcp, address, NO_ANSWER_TIMEOUT)?
                {
                    Outcome::Answered { answer, .. } => Some(answer.by),
                    _ => None,
                },
            )
        };
        let named = vec!["--service-proxy-name=contiv".to_owned()];
        for (flags, expected) in [
            (named, [Some("pod1"), Some("pod3"), None]),
            (vec![], [None, Some("pod3"), Some("pod1")]),
        ] {
            let agent = Agent::start(
                lab,
                &AgentOptions {
                    flags,
                    ..AgentOptions::with_store(state.url())
                },
            )?;
            for (manifest, expected) in [&ours, &theirs, &nobodys].into_iter().zip(expected) {
                assert_eq!(
                    served_by(manifest)?.as_deref(),
                    expected,
                    "{}",
                    manifest.service.name
                );
            }
            agent.stop()?;
        }
        Ok(())
    })
}
