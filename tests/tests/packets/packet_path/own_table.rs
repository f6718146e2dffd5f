//! Rules of other programs beside the agent's table, which leads connections to a backend.

use contiv_renderer::packet_path::OwnVerdict;
use contiv_tests::{
    agent::{Agent, AgentOptions},
    cluster::{Frontend, Manifests, Service, State, TARGET_PORT},
    lab::{Family, Lab, Protocol, Responder, Result, isolated},
};

use super::{
    cases::{
        Case,
        Flow::{NodeToVip, PodToVip},
        LOST, POD3, POD4,
        Rules::File,
        case,
    },
    compare, unexpected,
};

/// The only backend of the service is pod3.
const CASES: &[Case] = &[
    case(PodToVip, POD3, File("")),
    case(NodeToVip, POD3, File("")),
    case(
        PodToVip,
        LOST,
        File("chain c { type filter hook forward priority 0; {ip} daddr {pod3} drop; }"),
    ),
    case(
        PodToVip,
        POD3,
        File("chain c { type filter hook forward priority 0; {ip} daddr {services} drop; }"),
    ),
    case(
        PodToVip,
        LOST,
        File("chain c { type filter hook prerouting priority -150; {ip} daddr {services} drop; }"),
    ),
    case(
        PodToVip,
        LOST,
        File(
            "chain c { type filter hook forward priority 0; ct original {ip} daddr {services} drop; }",
        ),
    ),
    case(
        PodToVip,
        LOST,
        File(
            "chain c { type filter hook prerouting priority 0; {ip} saddr {pod3} ct state established drop; }",
        ),
    ),
    case(
        PodToVip,
        LOST,
        File(
            "chain c { type filter hook prerouting priority -300; {ip} daddr {services} notrack; }",
        ),
    ),
    case(
        PodToVip,
        LOST,
        File("chain c { type filter hook prerouting priority -300; {ip} saddr {pod3} notrack; }"),
    ),
    case(
        PodToVip,
        POD4,
        File(
            "chain c { type nat hook prerouting priority -150; {ip} daddr {services} tcp dport 80 dnat {ip} to {pod4:}:8080; }",
        ),
    ),
    case(
        PodToVip,
        POD3,
        File(
            "chain c { type nat hook prerouting priority -50; {ip} daddr {services} tcp dport 80 dnat {ip} to {pod4:}:8080; }",
        ),
    ),
    case(
        NodeToVip,
        POD4,
        File(
            "chain c { type nat hook output priority -150; {ip} daddr {services} tcp dport 80 dnat {ip} to {pod4:}:8080; }",
        ),
    ),
    case(
        NodeToVip,
        POD3,
        File(
            "chain c { type nat hook output priority -50; {ip} daddr {services} tcp dport 80 dnat {ip} to {pod4:}:8080; }",
        ),
    ),
    case(
        PodToVip,
        POD3,
        File("chain c { type nat hook postrouting priority 0; oifname \"eth0\" masquerade; }"),
    ),
    case(
        NodeToVip,
        POD3,
        File("chain c { type filter hook input priority 0; {ip} saddr {services} drop; }"),
    ),
    case(
        NodeToVip,
        POD3,
        File("chain c { type filter hook input priority 200; {ip} saddr {pod3} drop; }"),
    ),
    case(
        NodeToVip,
        LOST,
        File("chain c { type filter hook input priority 0; {ip} saddr {pod3} drop; }"),
    ),
    case(
        NodeToVip,
        LOST,
        File("chain c { type filter hook input priority 200; {ip} saddr {services} drop; }"),
    ),
];

#[test]
fn own_translation_is_applied_or_overruled_as_in_the_kernel() -> Result<()> {
    isolated(
        "packet_path::own_table::own_translation_is_applied_or_overruled_as_in_the_kernel",
        |lab| {
            let _responders = Responder::start_all([&lab.pod3, &lab.pod4], TARGET_PORT)?;
            let state = Manifests::new(lab)?;
            let service = Service::new("web", 80, &[lab.pod3.host]);
            state.put(&service)?;
            let _agent = Agent::start(lab, &AgentOptions::with_open_table(state.url()))?;
            let mut wrong = Vec::new();
            for case in CASES {
                for family in Family::BOTH {
                    if let Err(difference) = check_beside(lab, &service, case, family) {
                        wrong.push(format!("{case:?}, {family:?}: {difference}"));
                    }
                }
            }
            assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
            Ok(())
        },
    )
}

/// Adds the chains of a case in a table of its own.
fn check_beside(lab: &Lab, service: &Service, case: &Case, family: Family) -> Result<()> {
    let chains = case.text(lab, family, Protocol::Tcp);
    let table = "table inet foreign";
    let text = format!("add {table}\ndelete {table}\n{table} {{\n{chains}\n}}\n");
    lab.node.exec_with_input(&["nft", "-f", "-"], &text)?;
    let server = service.address(lab, Frontend::ClusterIp, family);
    let own = OwnVerdict::Translated {
        backend: lab.pod3.host.socket(family, TARGET_PORT),
        is_masqueraded: false,
    };
    compare(lab, case, server, Protocol::Tcp, own).map_err(unexpected)
}
