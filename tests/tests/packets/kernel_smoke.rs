//! The life of an agent in the shortest form: `scripts/test-kernels` runs this first on another kernel.

use contiv_tests::{
    agent::{Agent, AgentOptions, binary},
    cluster::{Frontend, Manifests, Service, State, TARGET_PORT},
    lab::{Family, Lab, Protocol, Responder, Result, isolated},
};

/// Every way to the service, from outside and from a pod, leads to this backend.
fn is_served_by(lab: &Lab, service: &Service, backend: &str) -> Result<()> {
    for family in Family::BOTH {
        for (frontend, protocol) in Frontend::ALL
            .into_iter()
            .flat_map(|f| Protocol::ALL.map(|p| (f, p)))
        {
            for client in [&lab.client, &lab.pod2] {
                let address = service.address(lab, frontend, family);
                let answer = client.ask(protocol, address)?.answer()?;
                assert_eq!(
                    answer.by, backend,
                    "{protocol:?} to {address} from {}",
                    client.host.name
                );
            }
        }
    }
    Ok(())
}

#[test]
fn service_is_served_from_cold_start_to_cleanup() -> Result<()> {
    isolated(
        "kernel_smoke::service_is_served_from_cold_start_to_cleanup",
        |lab| {
            let _responders = Responder::start_all(lab.pods(), TARGET_PORT)?;
            let manifests = Manifests::new(lab)?;
            let web = Service::new("web", 80, &[lab.pod1.host]);
            manifests.put(&web)?;
            let options = AgentOptions::with_store(manifests.url());

            let agent = Agent::start(lab, &options)?;
            is_served_by(lab, &web, "pod1")?;

            let web = Service {
                backends: vec![lab.pod3.host],
                ..web
            };
            manifests.put(&web)?;
            agent.wait_until_applied(&web)?;
            is_served_by(lab, &web, "pod3")?;

            assert!(agent.stop()?.success());
            is_served_by(lab, &web, "pod3")?;
            let agent = Agent::start(lab, &options)?;
            is_served_by(lab, &web, "pod3")?;

            agent.stop()?;
            lab.node.exec(&[&binary()?.to_string_lossy(), "cleanup"])?;
            assert_eq!(lab.node.exec(&["nft", "list", "ruleset"])?, "");
            Ok(())
        },
    )
}
