//! The cost of deleting flows: no delay where services are programmed, and no memory.

use std::{fs, net::UdpSocket, time::Instant};

use contiv_model::Protocol;
use contiv_tests::lab::{Family, LabError, Result, isolated};

use crate::gateway::{Gateway, address, service, unexpected};

/// 16 MB of netlink messages; half of them are stale.
const FLOWS: usize = 40_000;

#[test]
fn large_flow_table_is_searched_once_in_constant_memory() -> Result<()> {
    isolated(
        "conntrack::cost::large_flow_table_is_searched_once_in_constant_memory",
        |lab| {
            let mut gateway = Gateway::start(lab)?;
            gateway.program(&[&service("dns", 1, Protocol::Udp, &[&lab.pod2, &lab.pod3])])?;
            lab.pod1.run(|| send_from_many_ports(FLOWS))?;
            let flows = gateway.flows("udp")?;
            let pod3 = lab.pod3.host.address(Family::V4);
            let stale = flows
                .values()
                .filter(|flow| flow.backend.ip() == pod3)
                .count();
            assert!(
                flows.len() > FLOWS * 9 / 10 && stale > FLOWS / 3,
                "{stale} of {}",
                flows.len()
            );
            forget_peak_memory()?;
            let (memory, searches, start) = (peak_memory()?, gateway.searches(), Instant::now());

            gateway.program(&[&service("dns", 1, Protocol::Udp, &[&lab.pod2])])?;
            let (programmed, deleted) = (start.elapsed(), gateway.deletions());
            let waited = gateway.wait_for_deletions(stale)?;
            let grown = peak_memory()? - memory;
            println!(
                "{stale} of {} flows: programmed in {programmed:?}, deleted {waited:?} later, {grown} KiB",
                flows.len()
            );
            assert!(
                deleted < stale,
                "programming returned when everything had been deleted"
            );
            assert_eq!(
                gateway.searches() - searches,
                Family::BOTH.len(),
                "one dump for each family"
            );
            assert!(grown < 4096, "the search took {grown} KiB");
            assert_eq!(gateway.flows("udp")?.len(), flows.len() - stale);
            Ok(())
        },
    )
}

fn send_from_many_ports(count: usize) -> Result<()> {
    let failed = |error| LabError::system("send from many ports", error);
    let server = address(1, Family::V4);
    for port in (u16::MAX - u16::try_from(count).map_err(unexpected)?)..u16::MAX {
        let socket = UdpSocket::bind(("0.0.0.0", port)).map_err(failed)?;
        socket.send_to(b"who?\n", server).map_err(failed)?;
    }
    Ok(())
}

/// Resets the peak memory usage of this process.
fn forget_peak_memory() -> Result<()> {
    fs::write("/proc/self/clear_refs", "5").map_err(unexpected)
}

/// The peak memory usage of this process since then, in KiB.
fn peak_memory() -> Result<usize> {
    let status = fs::read_to_string("/proc/self/status").map_err(unexpected)?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .unwrap_or_default();
    line.trim()
        .trim_end_matches(" kB")
        .parse()
        .map_err(unexpected)
}
