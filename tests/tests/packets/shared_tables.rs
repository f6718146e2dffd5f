//! The kernel's tables that all connections share: read as other programs read them, and full.

use std::{
    net::{Ipv4Addr, SocketAddr, UdpSocket},
    time::Duration,
};

use contiv_renderer::shared_tables::{self, Loss, SharedTable, TableUse};
use contiv_tests::{
    agent::{Agent, AgentOptions, binary},
    cluster::{Manifests, Service, State},
    lab::{Lab, LabError, Result, isolated, wait_until},
};

/// The agent reads the tables every ten seconds.
const EVENT_TIMEOUT: Duration = Duration::from_secs(40);

#[test]
fn full_table_of_connections_is_named() -> Result<()> {
    isolated("shared_tables::full_table_of_connections_is_named", |lab| {
        let manifests = Manifests::new(lab)?;
        manifests.put(&Service::new("web", 80, &[lab.pod1.host]))?;
        let agent = Agent::start(lab, &AgentOptions::with_store(manifests.url()))?;
        assert_same_as_other_programs(lab)?;
        let problems = || -> Result<String> {
            let status = agent.http("GET", "/status")?.json()?;
            Ok(status["table_problems"].to_string())
        };
        assert_eq!(problems()?, "null");

        // A busy machine may take longer than an entry remains.
        let remain = "echo 600 >/proc/sys/net/netfilter/nf_conntrack_udp_timeout";
        lab.node.exec(&["sh", "-c", remain])?;
        let limit = table(lab, SharedTable::Conntrack)?.limit;
        lab.node.run(|| send_datagrams(limit + limit / 10))?;
        assert_same_as_other_programs(lab)?;
        let mut found = String::new();
        wait_until("the full table is a problem", EVENT_TIMEOUT, || {
            found = problems().unwrap_or_default();
            found.contains("evicted")
        })?;
        assert!(found.contains("\"table\":\"conntrack\""), "{found}");
        // Its exit code is 1.
        let program = binary()?.display().to_string();
        let status = lab.node.exec(&[&program, "status"]).err();
        let status = status.map(|error| error.to_string()).unwrap_or_default();
        assert!(
            status.contains(" were forgotten to make room; when there is no room new"),
            "{status}"
        );
        let metrics = agent.http("GET", "/metrics")?.body;
        let limit_line = format!("contiv_shared_table_limit{{table=\"conntrack\"}} {limit}");
        assert!(metrics.contains(&limit_line), "{metrics}");
        agent.stop().map(drop)
    })
}

/// Sends so many datagrams to ports where nobody listens, each from another port or to another one.
fn send_datagrams(count: u64) -> Result<()> {
    let failed = |error| LabError::system("send datagrams", error);
    let mut left = count;
    while left > 0 {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed)?;
        for port in (1..=u16::MAX).take(usize::try_from(left).unwrap_or(usize::MAX)) {
            let target = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
            // What is dropped is what the test wants.
            let _ = socket.send_to(b"x", target);
        }
        left = left.saturating_sub(u16::MAX.into());
    }
    Ok(())
}

fn table(lab: &Lab, table: SharedTable) -> Result<TableUse> {
    let tables = lab.node.run(|| Ok(shared_tables::read()))?;
    let found = tables.into_iter().find(|used| used.table == table);
    found.ok_or_else(|| LabError::Unexpected(format!("{table:?} cannot be read")))
}

/// Compares the tables with what `conntrack` and `ip` print.
fn assert_same_as_other_programs(lab: &Lab) -> Result<()> {
    let number = |text: &str| text.trim().parse::<u64>().ok();
    let conntrack = table(lab, SharedTable::Conntrack)?;
    let counted = number(&lab.node.exec(&["conntrack", "-C"])?);
    let differs = |count: u64| count.abs_diff(conntrack.entries) > 50;
    assert!(!counted.is_none_or(differs), "{counted:?} {conntrack:?}");
    let statistics = lab.node.exec(&["conntrack", "-S"])?;
    let sum = |name: &str| -> u64 {
        let words = statistics.split_whitespace();
        words
            .filter_map(|word| number(word.strip_prefix(name)?.strip_prefix('=')?))
            .sum()
    };
    let losses = [
        (Loss::Full, "drop"),
        (Loss::Evicted, "early_drop"),
        (Loss::Clash, "insert_failed"),
    ];
    for (loss, name) in losses {
        let clashes = if loss == Loss::Full {
            sum("insert_failed")
        } else {
            0
        };
        let read = conntrack.losses.iter().find(|(other, _)| *other == loss);
        assert_eq!(read, Some(&(loss, sum(name) - clashes)), "{statistics}");
    }
    // All namespaces of the machine share these, so other tests change them meanwhile.
    for (family, shared) in [("-4", SharedTable::Arp), ("-6", SharedTable::Ndisc)] {
        let read_both = || -> Result<_> {
            let text = lab.node.exec(&["ip", family, "-s", "ntable", "show"])?;
            let after = |word: &str| {
                let mut words = text.split_whitespace().skip_while(|other| *other != word);
                words.nth(1).and_then(number)
            };
            let printed = ["thresh3", "entries", "table_fulls"].map(after);
            let read = table(lab, shared)?;
            let full = read.losses.first().map(|(_, count)| *count);
            Ok((printed, [Some(read.limit), Some(read.entries), full]))
        };
        wait_until("neighbours are as `ip` prints them", EVENT_TIMEOUT, || {
            read_both().is_ok_and(|(printed, read)| printed == read)
        })
        .map_err(|error| LabError::Unexpected(format!("{error}: {:?}", read_both())))?;
    }
    Ok(())
}
