//! Faults of backends, and of the way to them beyond this node.

use std::{
    net::{SocketAddr, TcpListener, UdpSocket},
    thread,
    time::Duration,
};

use contiv_tests::{
    cluster::TARGET_PORT,
    lab::{Family, LabError, Namespace, Protocol, Result, Server, isolated, wait_until},
};
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, SockaddrIn, bind, listen, socket,
};

use super::{
    fault::{Failure, Fault, Machine, fault},
    group::run_group,
    scene::{EVENT_TIMEOUT, Object, Scene},
};

const WEB: &str = "10.96.0.80:80/tcp";
const LOCAL: &str = "10.96.0.81:80/tcp";
const EXTERNAL: &str = "192.0.2.80:80/tcp";
const PAIR: &str = "10.96.0.83:80/tcp";
/// After this time a router reports that a host does not answer at the link layer.
const ROUTER_TIMEOUT: Duration = Duration::from_secs(4);

const LOOPBACK_PORT: u16 = 8091;
const FULL_PORT: u16 = 8092;
const HANGING_PORT: u16 = 8093;
const V4_PORT: u16 = 8094;

/// A firewall of a backend.
fn input(rules: &str) -> String {
    format!("table inet own {{ chain base {{ type filter hook input priority 0; {rules}; }}; }}")
}

fn unserve_pod3(scene: &mut Scene<'_>) -> Result<()> {
    scene.unserve(Machine::Pod3)
}

fn serve_pod3(scene: &mut Scene<'_>) -> Result<()> {
    scene.serve(Machine::Pod3)
}

fn unserve_pod4(scene: &mut Scene<'_>) -> Result<()> {
    scene.unserve(Machine::Pod4)
}

fn serve_pod4(scene: &mut Scene<'_>) -> Result<()> {
    scene.serve(Machine::Pod4)
}

/// The server of UDP answers from another address of its pod than it was asked at.
fn answer_from_elsewhere(scene: &mut Scene<'_>) -> Result<()> {
    scene.unserve(Machine::Pod3)?;
    let pod = &scene.lab.pod3;
    pod.exec(&["ip", "addr", "add", "10.244.2.12/32", "dev", "eth0"])?;
    let bound = |address: SocketAddr| {
        pod.run(|| UdpSocket::bind(address).map_err(|error| LabError::system("bind", error)))
    };
    let asked = bound(pod.host.socket(Family::V4, TARGET_PORT))?;
    let answering = bound(([10, 244, 2, 12], TARGET_PORT).into())?;
    // It ends with the lab.
    let timeout = asked.set_read_timeout(Some(Duration::from_secs(20)));
    timeout.map_err(|error| LabError::system("set a timeout", error))?;
    thread::spawn(move || {
        let mut buffer = [0; 64];
        while let Ok((_, peer)) = asked.recv_from(&mut buffer) {
            if buffer.starts_with(b"end") {
                return;
            }
            // A lost answer is what the fault is about.
            let _ = answering.send_to(b"pod3 10.244.1.11:1\n", peer);
        }
    });
    Ok(())
}

fn answer_from_the_right_address(scene: &mut Scene<'_>) -> Result<()> {
    let pod = &scene.lab.pod3;
    pod.run(|| {
        let socket = UdpSocket::bind((pod.host.v4, 0));
        let sent = socket.and_then(|socket| socket.send_to(b"end", (pod.host.v4, TARGET_PORT)));
        sent.map(drop)
            .map_err(|error| LabError::system("end the server", error))
    })?;
    wait_until("the port is free", EVENT_TIMEOUT, || {
        pod.run(|| Ok(UdpSocket::bind((pod.host.v4, TARGET_PORT)).is_ok()))
            .unwrap_or(false)
    })?;
    pod.exec(&["ip", "addr", "del", "10.244.2.12/32", "dev", "eth0"])?;
    scene.serve(Machine::Pod3)
}

/// A socket that listens, and from which nobody accepts.
fn listen_only(namespace: &Namespace, port: u16, backlog: i32) -> Result<std::os::fd::OwnedFd> {
    namespace.run(|| {
        let failed = |errno: nix::errno::Errno| LabError::system("listen", errno);
        let socket = socket(
            AddressFamily::Inet,
            SockType::Stream,
            SockFlag::empty(),
            None,
        )
        .map_err(failed)?;
        let any = SockaddrIn::new(0, 0, 0, 0, port);
        bind(std::os::fd::AsRawFd::as_raw_fd(&socket), &any).map_err(failed)?;
        listen(&socket, Backlog::new(backlog).map_err(failed)?).map_err(failed)?;
        Ok(socket)
    })
}

/// Connects to the backend until its queue is full.
fn fill_queue(scene: &mut Scene<'_>) -> Result<()> {
    let address = scene.lab.node.host.socket(Family::V4, FULL_PORT);
    scene
        .kept
        .push(Box::new(listen_only(&scene.lab.node, FULL_PORT, 1)?));
    for _ in 0..2 {
        let waiting = scene.lab.node.open(Protocol::Tcp, address)?;
        scene.kept.push(Box::new(waiting));
    }
    Ok(())
}

fn hang(scene: &mut Scene<'_>) -> Result<()> {
    let socket = listen_only(&scene.lab.node, HANGING_PORT, 100)?;
    scene.kept.push(Box::new(socket));
    Ok(())
}

fn listen_on_loopback(scene: &mut Scene<'_>) -> Result<()> {
    let listener = scene.lab.node.run(|| {
        TcpListener::bind(("127.0.0.1", LOOPBACK_PORT))
            .map_err(|error| LabError::system("listen", error))
    })?;
    scene.kept.push(Box::new(listener));
    Ok(())
}

fn listen_on_ipv4(scene: &mut Scene<'_>) -> Result<()> {
    let pod = &scene.lab.pod3;
    let address = pod.host.socket(Family::V4, V4_PORT);
    let server = Server::start(pod, "pod3", Protocol::Tcp, address)?;
    scene.kept.push(Box::new(server));
    Ok(())
}

/// The backend to which the client's affinity leads it fails.
fn lose_the_remembered_one(scene: &mut Scene<'_>) -> Result<()> {
    let to = ([10, 96, 0, 86], 80).into();
    let answer = scene.lab.pod2.ask(Protocol::Tcp, to)?.answer()?;
    scene.unserve(if answer.by == "pod3" {
        Machine::Pod3
    } else {
        Machine::Pod4
    })
}

fn serve_both(scene: &mut Scene<'_>) -> Result<()> {
    scene.serve(Machine::Pod3)?;
    scene.serve(Machine::Pod4)
}

fn faults_of_backends() -> Vec<Fault> {
    use Machine::{Client, Node, Node2, Pod1, Pod2, Pod3};
    let nothing: fn(&mut Scene<'_>) -> Result<()> = |_| Ok(());
    let faults = vec![
        fault("the port is closed", Pod2, WEB, &["backend-refuses"], "10.244.2.10 refuses: nothing listens on port 8080").call(unserve_pod3, serve_pod3),
        fault("the port is closed, from outside", Client, EXTERNAL, &["backend-refuses"], "10.244.2.10 refuses: nothing listens on port 8080").call(unserve_pod3, serve_pod3),
        fault("the port is closed for UDP", Pod2, "10.96.0.80:80/udp", &["backend-refuses", "backend-unreachable"], "10.244.2.10 refuses: nothing listens on UDP port 8080").call(unserve_pod3, serve_pod3),
        fault("its own firewall drops", Pod2, WEB, &["backend-silent"], "10.244.2.10 does not answer: packets reach node2, and nothing comes back").rules_on(Pod3, &input("tcp dport 8080 drop")),
        fault("its own firewall drops UDP", Pod2, "10.96.0.80:80/udp", &["backend-silent"], "10.244.2.10 does not answer datagrams").rules_on(Pod3, &input("udp dport 8080 drop")),
        fault("its own firewall drops, on this node", Pod2, LOCAL, &["backend-silent"], "10.244.1.10 does not answer, though it is there at the link layer").rules_on(Pod1, &input("tcp dport 8080 drop")),
        fault("its own firewall resets", Pod2, WEB, &["backend-refuses"], "10.244.2.10 refuses with a reset").rules_on(Pod3, &input("tcp dport 8080 reject with tcp reset")),
        fault("its own firewall prohibits", Pod2, WEB, &["backend-unreachable", "backend-refuses"], "10.244.2.10 answers with ICMP admin-prohibited").rules_on(Pod3, &input("tcp dport 8080 reject with icmpx admin-prohibited")),
        fault("the other node has no route to it", Pod2, WEB, &["backend-unreachable"], "node2 answers with ICMP host-unreachable").shell(Node2, "ip route replace unreachable 10.244.2.10", "ip route del unreachable 10.244.2.10; ip route replace 10.244.2.10 dev pod3"),
        fault("the other node discards", Pod2, WEB, &["backend-silent"], "packets leave by eth0, and nothing comes back").shell(Node2, "ip route replace blackhole 10.244.2.10", "ip route del blackhole 10.244.2.10; ip route replace 10.244.2.10 dev pod3"),
        fault("the other node does not forward", Pod2, WEB, &["backend-silent", "backend-unreachable"], "packets leave by eth0, and node2 does not forward them").shell(Node2, "echo 0 >/proc/sys/net/ipv4/ip_forward", "echo 1 >/proc/sys/net/ipv4/ip_forward"),
        fault("the firewall of the other node drops", Client, EXTERNAL, &["backend-silent"], "packets leave by eth0, and nothing comes back").rules_on(Node2, "table inet own { chain base { type filter hook forward priority 0; tcp dport 8080 drop; }; }"),
        fault("the firewall of the other node drops answers", Pod2, WEB, &["backend-silent"], "packets leave by eth0, and nothing comes back").rules_on(Node2, "table inet own { chain base { type filter hook forward priority 0; tcp sport 8080 drop; }; }"),
        fault("it has no route back", Pod2, WEB, &["backend-silent"], "10.244.2.10 gets the packets, and its answers go nowhere").shell(Pod3, "ip route del default", "ip route add default via 10.244.2.1"),
        fault("it lost its address", Pod2, WEB, &["backend-unreachable", "backend-silent"], "10.244.2.10 does not answer; after three seconds node2 reports that it is not there").patient(ROUTER_TIMEOUT).shell(Pod3, "ip addr del 10.244.2.10/32 dev eth0", "ip addr add 10.244.2.10/32 dev eth0; ip route replace 10.244.2.1/32 dev eth0; ip route replace default via 10.244.2.1"),
        fault("it answers from another address", Pod2, "10.96.0.80:80/udp", &["answers-from-elsewhere"], "answers come from 10.244.2.12, so they are not translated back").call(answer_from_elsewhere, answer_from_the_right_address),
        fault("it listens at 127.0.0.1 only", Pod2, "10.96.0.85:80/tcp", &["listens-elsewhere"], "the process of this node listens at 127.0.0.1 only").permanent().call(listen_on_loopback, nothing),
        fault("its accept queue is full", Pod2, "10.96.0.87:80/tcp", &["accept-queue-full"], "the process does not accept: 2 connections wait, and 1 may").permanent().call(fill_queue, nothing),
        fault("its process hangs", Pod2, "10.96.0.88:80/tcp", &["accept-queue-full", "backend-silent"], "connections are established, but the process accepts none of them").permanent().call(hang, nothing),
        fault("no process listens on this node", Pod2, "10.96.0.89:80/tcp", &["backend-refuses", "listens-elsewhere"], "no process of this node listens on port 8099").permanent(),
        fault("no process listens on this node, for its own connections", Node, "10.96.0.89:80/tcp", &["backend-refuses", "listens-elsewhere"], "no process of this node listens on port 8099").permanent(),
        fault("it listens for IPv4 only", Pod2, "[fd00:10:96::90]:80/tcp", &["backend-refuses"], "fd00:10:244:2::10 refuses: the process listens for IPv4 only").permanent().call(listen_on_ipv4, nothing),
        fault("one of two refuses", Pod2, PAIR, &["backend-refuses"], "10.244.2.11, one of two backends, refuses").failing(Failure::Some).call(unserve_pod4, serve_pod4),
        fault("one of two is silent", Pod2, PAIR, &["backend-silent"], "10.244.2.11, one of two backends, does not answer").failing(Failure::Some).rules_on(Machine::Pod4, &input("tcp dport 8080 drop")),
        fault("the client is bound to one that refuses", Pod2, "10.96.0.86:80/tcp", &["backend-refuses"], "the affinity of the client leads it to one of two backends, which refuses").call(lose_the_remembered_one, serve_both),
    ];
    faults.into_iter().map(Fault::probing).collect()
}

#[test]
fn faults_of_backends_are_named() -> Result<()> {
    isolated("why::backends::faults_of_backends_are_named", |lab| {
        let mut scene = Scene::start(lab, &[])?;
        for (name, number, backend, target_port) in [
            ("loopback", 85, "node", LOOPBACK_PORT),
            ("full", 87, "node", FULL_PORT),
            ("hanging", 88, "node", HANGING_PORT),
            ("absent", 89, "node", 8099),
            ("v4", 90, "pod3", V4_PORT),
        ] {
            scene.put(&Object {
                target_port,
                ..Object::new(name, number, &[backend])
            })?;
        }
        scene.put(&Object {
            spec: "  sessionAffinity: ClientIP\n",
            ..Object::new("sticky", 86, &["pod3", "pod4"])
        })?;
        run_group("backends", &mut scene, &faults_of_backends())
    })
}

fn faults_with_failover() -> Vec<Fault> {
    use Machine::{Client, Pod2, Pod4};
    let faults = vec![
        fault(
            "the only backend refuses",
            Pod2,
            WEB,
            &["backend-refuses"],
            "10.244.2.10 refuses, and there is no other backend",
        )
        .call(unserve_pod3, serve_pod3),
        fault(
            "all backends refuse",
            Pod2,
            PAIR,
            &["backend-refuses"],
            "both backends refuse, so none can leave the choice",
        )
        .call(unserve_pod3, serve_pod3)
        .call(unserve_pod4, serve_pod4),
        fault(
            "all backends are silent",
            Client,
            "192.0.2.83:80/tcp",
            &["backend-silent"],
            "neither backend answers: perhaps this node is cut off",
        )
        .rules_on(Machine::Pod3, &input("tcp dport 8080 drop"))
        .rules_on(Pod4, &input("tcp dport 8080 drop")),
    ];
    faults.into_iter().map(Fault::probing).collect()
}

#[test]
fn faults_with_failover_are_named() -> Result<()> {
    isolated("why::backends::faults_with_failover_are_named", |lab| {
        let mut scene = Scene::start(lab, &["--failover=on"])?;
        run_group("failover", &mut scene, &faults_with_failover())
    })
}
