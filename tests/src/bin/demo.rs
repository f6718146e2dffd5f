//! `scripts/demo`: shows in a few seconds what contiv does, on any machine and without root.
#![expect(clippy::print_stdout, reason = "to print is what a demo is for")]

use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

use contiv_tests::{
    agent::{Agent, AgentOptions, binary},
    cluster::{Frontend, Manifests, Service, State, TARGET_PORT},
    lab::{
        Family, Host, Lab, Namespace, Outcome, Protocol, Responder, Result, isolated_program,
        wait_for,
    },
};

const PICTURE: &str = "
     pod1  pod2            pod3  pod4
       └─┬──┘                └─┬──┘
       node ──── network ─── node2         the agent runs on `node`
                    │
                 client                    outside: it knows no pod
";
/// Connections per line of the table.
const CONNECTIONS: usize = 240;
/// The number of connections for one character of a bar.
const PER_CHARACTER: usize = 16;
const TIME_LIMIT: Duration = Duration::from_secs(10);

fn main() -> ExitCode {
    match isolated_program(show) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("\nThe demo failed: {error}");
            ExitCode::FAILURE
        }
    }
}

fn show(lab: &Lab) -> Result<()> {
    let _responders = Responder::start_all(lab.pods(), TARGET_PORT)?;
    let [first, second, third, fourth] = lab.pods().map(|pod| pod.host);

    println!(
        "A lab of network namespaces stands in for a cluster. Nothing on this machine is changed.\n{PICTURE}"
    );
    let mut web = Service::new("web", 80, &[first, second, third]);
    let manifests = Manifests::new(lab)?;
    manifests.put(&web)?;
    let start = Instant::now();
    let agent = Agent::start(lab, &AgentOptions::with_store(manifests.url()))?;
    println!(
        "The agent read a folder of Kubernetes manifests; {} after its start the kernel",
        format_duration(start.elapsed())
    );
    println!("serves what they describe.\n");

    println!(
        "1. Service `web` has the backends pod1, pod2 and pod3. Who answers {CONNECTIONS} connections?\n"
    );
    table(lab, &web)?;

    web.backends.push(fourth);
    let client = |outcome: &dyn Fn(&Outcome) -> bool| {
        let address = web.address(lab, Frontend::ExternalIp, Family::V4);
        wait_for("the change reaches the kernel", TIME_LIMIT, || {
            match lab.client.ask(Protocol::Tcp, address) {
                Ok(answer) if outcome(&answer) => Some(answer),
                _ => None,
            }
        })
    };
    let start = Instant::now();
    manifests.put(&web)?;
    client(
        &|outcome| matches!(outcome, Outcome::Answered { answer, .. } if answer.by == fourth.name),
    )?;
    println!(
        "\n2. pod4 is added to web.yaml. {} after the file was written it answers a client.\n",
        format_duration(start.elapsed())
    );
    table(lab, &web)?;

    let start = Instant::now();
    manifests.put(&Service {
        backends: Vec::new(),
        ..web.clone()
    })?;
    client(&|outcome| matches!(outcome, Outcome::Refused { .. }))?;
    let change = format_duration(start.elapsed());
    let refusal = lab
        .client
        .ask(
            Protocol::Tcp,
            web.address(lab, Frontend::ExternalIp, Family::V4),
        )?
        .refusal()?;
    println!(
        "\n3. All backends are removed from web.yaml. {change} later connections are refused at once,"
    );
    println!(
        "   after {}: no client waits for a timeout.",
        format_duration(refusal)
    );

    agent.stop()?;
    let contiv = binary()?;
    lab.node.exec(&[&contiv.to_string_lossy(), "cleanup"])?;
    let left = lab.node.exec(&["nft", "list", "ruleset"])?;
    println!(
        "\n4. The agent is stopped; `contiv cleanup` leaves {} rules in the kernel.",
        left.lines().count()
    );
    Ok(())
}

/// One line for each frontend of the service: how many connections each backend answered.
fn table(lab: &Lab, service: &Service) -> Result<()> {
    let ways: [(&Namespace, Frontend, &str, Family); 5] = [
        (&lab.pod1, Frontend::ClusterIp, "cluster IP", Family::V4),
        (&lab.pod1, Frontend::ClusterIp, "cluster IP", Family::V6),
        (&lab.node, Frontend::ClusterIp, "cluster IP", Family::V4),
        (&lab.client, Frontend::ExternalIp, "external IP", Family::V4),
        (&lab.client, Frontend::NodePort, "node port", Family::V6),
    ];
    let cells = |cell: &dyn Fn(&Host) -> String| {
        let padded = service
            .backends
            .iter()
            .map(|host| format!("{:<13}", cell(host)));
        padded.collect::<Vec<_>>().concat()
    };
    println!(
        "   {:<6}   {:<39}{}",
        "from",
        "to",
        cells(&|host| format!("{:>4}", host.name)).trim_end()
    );
    for (from, frontend, name, family) in ways {
        let address = service.address(lab, frontend, family);
        let answered = from.distribution(Protocol::Tcp, address, CONNECTIONS)?;
        let bars = cells(&|host| {
            let count = answered.get(host.name).copied().unwrap_or_default();
            format!("{count:>4} {}", "▇".repeat(count.div_ceil(PER_CHARACTER)))
        });
        println!(
            "   {:<6} → {name:<12}{:<27}{}",
            from.host.name,
            address.to_string(),
            bars.trim_end()
        );
    }
    Ok(())
}

fn format_duration(duration: Duration) -> String {
    let milliseconds = duration.as_secs_f64() * 1000.0;
    if milliseconds < 1.0 {
        format!("{milliseconds:.2} ms")
    } else {
        format!("{milliseconds:.0} ms")
    }
}
