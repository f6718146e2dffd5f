//! Tests of the lab itself: what the other tests rely on.

use std::{
    collections::BTreeMap,
    fs,
    io::ErrorKind,
    net::{SocketAddr, TcpListener, TcpStream},
    panic::{self, AssertUnwindSafe},
    process::Command,
    time::Duration,
};

use contiv_store_testing::ReservedPort;
use contiv_tests::lab::{
    Family, LabError, Outcome, Process, Protocol, Responder, Result, Server, ServerReply, isolated,
    ranges, wait_until,
};
use nix::sys::signal::Signal;

const PORT: u16 = 8080;

#[test]
fn pods_reach_each_other_without_translation() -> Result<()> {
    isolated("lab::pods_reach_each_other_without_translation", |lab| {
        let pods = lab.pods();
        let _responders = Responder::start_all(pods, PORT)?;
        for (from, to) in pods.iter().flat_map(|from| pods.map(|to| (from, to))) {
            for (family, protocol) in Family::BOTH
                .into_iter()
                .flat_map(|f| Protocol::ALL.map(|p| (f, p)))
            {
                let ServerReply { by, seen_source } =
                    from.ask(protocol, to.host.socket(family, PORT))?.answer()?;
                assert_eq!(by, to.host.name);
                assert_eq!(seen_source.ip(), from.host.address(family));
            }
        }
        Ok(())
    })
}

#[test]
fn nodes_and_pods_reach_each_other() -> Result<()> {
    isolated("lab::nodes_and_pods_reach_each_other", |lab| {
        let hosts = [&lab.node, &lab.node2, &lab.pod1, &lab.pod3];
        let _responders = Responder::start_all(hosts, PORT)?;
        for (from, to) in hosts.iter().flat_map(|from| hosts.map(|to| (from, to))) {
            for family in Family::BOTH {
                let answer = from
                    .ask(Protocol::Tcp, to.host.socket(family, PORT))?
                    .answer()?;
                assert_eq!(answer.by, to.host.name);
            }
        }
        Ok(())
    })
}

#[test]
fn reserved_port_is_chosen_for_no_other_socket() -> Result<()> {
    isolated("lab::reserved_port_is_chosen_for_no_other_socket", |lab| {
        // The kernel can choose between four ports.
        lab.client
            .exec(&["sysctl", "-qw", "net.ipv4.ip_local_port_range=40000 40003"])?;
        let failed = |error| LabError::system("open a socket of four", error);
        lab.client.run(|| {
            let reserved = ReservedPort::new().map_err(failed)?;
            let connected = TcpStream::connect(reserved.address()).map_err(|error| error.kind());
            assert_eq!(connected.map(drop), Err(ErrorKind::ConnectionRefused));
            let choose = || TcpListener::bind("127.0.0.1:0");
            let _others = (0..3)
                .map(|_| choose().map_err(failed))
                .collect::<Result<Vec<_>>>()?;
            assert_eq!(
                choose().map(drop).map_err(|error| error.kind()),
                Err(ErrorKind::AddrInUse)
            );
            // Its own server can start, and start again.
            for _ in 0..2 {
                TcpListener::bind(reserved.address()).map_err(failed)?;
            }
            Ok(())
        })
    })
}

#[test]
fn process_has_stopped_when_stop_signal_returns() -> Result<()> {
    isolated("lab::process_has_stopped_when_stop_signal_returns", |lab| {
        let mut busy = Command::new("sh");
        busy.args(["-c", "while :; do :; done"]);
        let busy = Process::start(&lab.node, "busy", &mut busy)?;
        for round in 0..100 {
            busy.signal(Signal::SIGSTOP)?;
            let status = fs::read_to_string(format!("/proc/{}/stat", busy.id())).unwrap();
            assert_eq!(
                status
                    .split(") ")
                    .nth(1)
                    .and_then(|rest| rest.chars().next()),
                Some('T'),
                "{round}"
            );
            busy.signal(Signal::SIGCONT)?;
        }
        Ok(())
    })
}

#[test]
fn prober_ends_when_the_work_panics() -> Result<()> {
    isolated("lab::prober_ends_when_the_work_panics", |lab| {
        let _responder = Responder::start(&lab.pod1, PORT)?;
        let server = lab.pod1.host.socket(Family::V4, PORT);
        let work = || {
            lab.pod2
                .ask_while(Protocol::Udp, server, || panic!("the work panics"))
        };
        assert!(panic::catch_unwind(AssertUnwindSafe(work)).is_err());
        Ok(())
    })
}

#[test]
fn client_reaches_nodes_but_no_pod() -> Result<()> {
    isolated("lab::client_reaches_nodes_but_no_pod", |lab| {
        let _responders =
            Responder::start_all([&lab.node, &lab.node2, &lab.pod1, &lab.pod3], PORT)?;
        for family in Family::BOTH {
            for node in [&lab.node, &lab.node2] {
                let answer = lab
                    .client
                    .ask(Protocol::Tcp, node.host.socket(family, PORT))?
                    .answer()?;
                assert_eq!(
                    answer,
                    ServerReply {
                        by: node.host.name.to_owned(),
                        seen_source: SocketAddr::new(
                            lab.client.host.address(family),
                            answer.seen_source.port()
                        ),
                    }
                );
            }
            for pod in [&lab.pod1, &lab.pod3] {
                assert_eq!(
                    lab.client
                        .ask(Protocol::Tcp, pod.host.socket(family, PORT))?,
                    Outcome::Unreachable
                );
            }
        }
        Ok(())
    })
}

#[test]
fn untranslated_service_address_gets_no_answer() -> Result<()> {
    isolated("lab::untranslated_service_address_gets_no_answer", |lab| {
        let _responder = Responder::start(&lab.pod1, PORT)?;
        for (family, range) in Family::BOTH.into_iter().flat_map(|f| {
            [
                ranges::SERVICES,
                ranges::EXTERNAL_IPS,
                ranges::LOAD_BALANCERS,
            ]
            .map(|r| (f, r))
        }) {
            let address = SocketAddr::new(range.address(family, 10), PORT);
            for from in [&lab.client, &lab.pod1, &lab.node] {
                let outcome = from.ask_within(Protocol::Tcp, address, Duration::from_millis(50))?;
                assert_eq!(
                    outcome,
                    Outcome::TimedOut,
                    "{address} from {}",
                    from.host.name
                );
            }
        }
        Ok(())
    })
}

#[test]
fn closed_port_is_refused_and_does_not_time_out() -> Result<()> {
    isolated("lab::closed_port_is_refused_and_does_not_time_out", |lab| {
        // SCTP is left out, because the kernel may not support it.
        let protocols = [Protocol::Tcp, Protocol::Udp];
        for (family, protocol) in Family::BOTH
            .into_iter()
            .flat_map(|f| protocols.map(|p| (f, p)))
        {
            lab.pod1
                .ask(protocol, lab.pod3.host.socket(family, PORT))?
                .refusal()?;
        }
        Ok(())
    })
}

#[test]
fn stopped_server_frees_its_port_and_ends_its_sessions() -> Result<()> {
    isolated(
        "lab::stopped_server_frees_its_port_and_ends_its_sessions",
        |lab| {
            let address = lab.pod1.host.socket(Family::V4, PORT);
            let server = Server::start(&lab.pod1, "first", Protocol::Tcp, address)?;
            let mut session = lab.pod2.open(Protocol::Tcp, address)?;
            assert_eq!(session.ask()?.by, "first");
            assert_eq!(session.ask()?.seen_source, session.local_address()?);
            drop(server);
            assert!(session.ask().is_err());
            lab.pod2.ask(Protocol::Tcp, address)?.refusal()?;
            let _second = Server::start(&lab.pod1, "second", Protocol::Tcp, address)?;
            assert_eq!(
                lab.pod2.distribution(Protocol::Tcp, address, 20)?,
                BTreeMap::from([("second".to_owned(), 20)])
            );
            Ok(())
        },
    )
}

#[test]
fn nodes_nftables_are_empty_and_writable() -> Result<()> {
    isolated("lab::nodes_nftables_are_empty_and_writable", |lab| {
        assert_eq!(lab.node.exec(&["nft", "list", "ruleset"])?, "");
        lab.node.exec(&["nft", "add", "table", "inet", "mine"])?;
        assert_eq!(
            lab.node.exec(&["nft", "list", "tables"])?,
            "table inet mine\n"
        );
        assert_eq!(
            lab.node2.exec(&["nft", "list", "ruleset"])?,
            "",
            "each namespace has its own tables"
        );
        Ok(())
    })
}

#[test]
fn failing_command_is_reported_with_its_output() -> Result<()> {
    isolated("lab::failing_command_is_reported_with_its_output", |lab| {
        let error = lab
            .node
            .exec(&["sh", "-c", "echo before; echo cause >&2; exit 3"])
            .expect_err("exit 3");
        let text = error.to_string();
        assert!(
            text.contains("before\ncause") && text.contains("exit status: 3"),
            "{text}"
        );
        Ok(())
    })
}

#[test]
fn process_is_stopped_and_its_output_is_kept() -> Result<()> {
    isolated("lab::process_is_stopped_and_its_output_is_kept", |lab| {
        let mut command = Command::new("sh");
        command.args([
            "-c",
            "trap 'echo stopping; exit 7' TERM; echo started; while :; do sleep 0.01; done",
        ]);
        let mut process = Process::start(&lab.node, "trap", &mut command)?;
        wait_until("the process has started", Duration::from_secs(5), || {
            process.log() == "started\n"
        })?;
        let status = process.terminate(Duration::from_secs(5))?;
        assert_eq!(
            (status.code(), process.log().as_str()),
            (Some(7), "started\nstopping\n")
        );
        Ok(())
    })
}

#[test]
fn lab_is_process_1_and_sees_no_other() -> Result<()> {
    isolated("lab::lab_is_process_1_and_sees_no_other", |_| {
        let processes = fs::read_dir("/proc")
            .into_iter()
            .flatten()
            .flatten()
            .filter(|entry| entry.file_name().to_string_lossy().parse::<u32>().is_ok())
            .count();
        assert_eq!((std::process::id(), processes), (1, 1));
        Ok(())
    })
}
