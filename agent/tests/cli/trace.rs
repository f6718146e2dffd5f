use std::{
    fs,
    io::{Read, Write},
    net::TcpListener,
    thread,
};

use contiv_store_testing::ReservedPort;

use crate::{
    agent::{Agent, folder},
    contiv::{Run, run, run_with_input, text, web},
};

const FROM_OUTSIDE: [&str; 5] = [
    "trace",
    "--from",
    "198.51.100.7",
    "--to",
    "10.96.0.7:80/tcp",
];

fn traced(arguments: &[&str]) -> Run {
    run(&[&FROM_OUTSIDE, arguments].concat())
}

#[test]
fn agent_and_its_manifests_give_same_answer_in_both_forms() {
    let folder = folder();
    let manifests = folder.path().join("manifests");
    let agent = Agent::start(folder.path());
    let server = format!("http://{}", agent.address);
    for output in ["text", "json"] {
        let online = traced(&["--agent", &server, "-o", output]);
        assert_eq!((online.code, online.err.as_str()), (0, ""), "{output}");
        let offline = traced(&["-f", text(&manifests), "--node-name", "n1", "-o", output]);
        assert_eq!((offline.code, &offline.out), (0, &online.out), "{output}");
        let store = format!("dir:{}", text(&manifests));
        let stored = traced(&["--store", &store, "--node-name", "n1", "-o", output]);
        assert_eq!((stored.code, stored.out), (0, online.out), "{output}");
    }
    let text = traced(&["--agent", &server]).out;
    for part in [
        "service   shop/web, port 80/tcp (http), by its cluster IP",
        "backend   10.1.0.7:8080",
        "masqueraded",
    ] {
        assert!(text.contains(part), "{part} is not in:\n{text}");
    }
    let json: serde_json::Value =
        serde_json::from_str(&traced(&["--agent", &server, "-o", "json"]).out).unwrap();
    assert_eq!(json["hit"]["service"], "shop/web");
}

#[test]
fn view_is_that_of_node_that_is_named() {
    let node = "---\napiVersion: v1\nkind: Node\nmetadata: {name: n1}\nspec: {podCIDRs: [198.51.100.0/24]}\n";
    let input = web("web", 7) + node;
    let traced = |name| {
        let arguments = [&FROM_OUTSIDE[..], &["-f", "-", "--node-name", name]].concat();
        run_with_input(&arguments, &input)
    };
    let here = traced("n1");
    assert_eq!((here.code, here.err.as_str()), (0, ""));
    assert!(
        here.out.contains("a pod of this node") && here.out.contains("kept: "),
        "{}",
        here.out
    );
    let elsewhere = traced("n2");
    assert!(
        elsewhere.err.contains("has no object of this node"),
        "{}",
        elsewhere.err
    );
    assert!(
        elsewhere.out.contains("external: ") && elsewhere.out.contains("masqueraded: "),
        "{}",
        elsewhere.out
    );
}

#[test]
fn trace_without_agent_fails_with_a_hint() {
    // Nothing listens on it.
    let port = ReservedPort::new().unwrap();
    let address = port.address();
    let run = traced(&["--agent", &format!("http://{address}")]);
    assert_eq!((run.code, run.out.as_str()), (1, ""));
    for part in [
        &address.to_string(),
        "is the agent running?",
        "--agent",
        "-f",
    ] {
        assert!(run.err.contains(part), "{part} is not in: {}", run.err);
    }
}

#[test]
fn server_other_than_an_agent_is_recognized() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = format!("http://{}", listener.local_addr().unwrap());
    let answers = thread::spawn(move || {
        for answer in [
            "SSH-2.0-OpenSSH_9.2\r\n",
            "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n",
        ] {
            let (mut client, _) = listener.accept().unwrap();
            // An answer before the request would be another fault.
            assert_ne!(client.read(&mut [0; 1024]).unwrap(), 0);
            client.write_all(answer.as_bytes()).unwrap();
        }
    });
    for expected in ["does not answer as an agent does", "agent of this version"] {
        let run = traced(&["--agent", &server]);
        assert_eq!(run.code, 1);
        assert!(
            run.err.contains(expected),
            "{expected} is not in: {}",
            run.err
        );
    }
    answers.join().unwrap();
}

#[test]
fn service_is_traced_by_its_name() {
    let folder = folder();
    let manifests = folder.path().join("manifests");
    fs::write(
        manifests.join("dns.yaml"),
        web("dns", 8).replace(
            "{name: http, port: 80,",
            "{name: dns, port: 53, protocol: UDP}, {name: http, port: 80,",
        ),
    )
    .unwrap();
    let agent = Agent::start(folder.path());
    for source in [
        &["--agent", agent.address.as_str()][..],
        &["-f", text(&manifests), "--node-name", "n1"],
    ] {
        let traced =
            |to: &str| run(&[&["trace", "--from", "198.51.100.7", "--to", to], source].concat());
        for to in ["shop/web", "shop/web:80", "shop/web:http/tcp"] {
            let run = traced(to);
            assert_eq!(run.code, 0, "{to}: {}", run.err);
            assert!(
                run.out
                    .starts_with("flow      198.51.100.7 to 10.96.0.7:80/tcp"),
                "{}",
                run.out
            );
        }
        assert!(traced("shop/dns:dns").out.contains("10.96.0.8:53/udp"));
        for (to, code, expected) in [
            ("shop/wbe", 1, "did you mean shop/web?"),
            ("web", 1, "there is no service default/web"),
            ("shop/dns", 2, "name one of 53/UDP (dns), 80/TCP (http)"),
            (
                "shop/web:81",
                2,
                "has no such port; name one of 80/TCP (http)",
            ),
        ] {
            let run = traced(to);
            assert_eq!(
                (run.code, run.out.as_str()),
                (code, ""),
                "{to}: {}",
                run.err
            );
            assert!(run.err.contains(expected), "{to}: {}", run.err);
        }
        let other = run(&[&["trace", "--from", "fd00::7", "--to", "shop/web"], source].concat());
        assert!(
            other.code == 1 && other.err.contains("shop/web has no IPv6 address"),
            "{other:?}"
        );
    }
}

#[test]
fn wrong_usage_and_failure_have_different_exit_codes() {
    for wrong in [
        &["trace", "--from", "fd00::1", "--to", "10.96.0.7:80/tcp"][..],
        &["trace", "--from", "10.1.0.9", "--to", "10.96.0.7/tcp"],
        &["trace", "--from", "10.1.0.9"],
        &[
            "trace",
            "--from",
            "10.1.0.9%veth*",
            "--to",
            "10.96.0.7:80/tcp",
        ],
        &[
            "trace",
            "--from",
            "10.1.0.9",
            "--to",
            "10.96.0.7:80",
            "--agent",
            "https://node1",
        ],
    ] {
        let run = run(wrong);
        assert_eq!(
            (run.code, run.out.as_str()),
            (2, ""),
            "{wrong:?}: {}",
            run.err
        );
    }
}

#[test]
fn interface_of_client_is_part_of_question() {
    let folder = folder();
    let manifests = folder.path().join("manifests");
    let agent = Agent::start(folder.path());
    let server = format!("http://{}", agent.address);
    let from = ["trace", "--from", "10.1.0.9%veth-1", "--to", "10.96.0.7:80"];
    let online = run(&[&from[..], &["--agent", &server]].concat());
    assert_eq!((online.code, online.err.as_str()), (0, ""));
    assert!(
        online
            .out
            .starts_with("flow      10.1.0.9%veth-1 to 10.96.0.7:80/tcp"),
        "{}",
        online.out
    );
    let offline = run(&[&from[..], &["-f", text(&manifests), "--node-name", "n1"]].concat());
    assert_eq!(offline.out, online.out);
}

#[test]
fn broken_manifests_are_named_and_rest_is_traced() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("good.yaml"), web("web", 7)).unwrap();
    fs::write(
        folder.path().join("bad.yaml"),
        web("bad", 8).replace("port: 80,", "port: 99999,"),
    )
    .unwrap();
    let run = traced(&["-f", text(folder.path())]);
    assert_eq!(run.code, 1);
    assert!(
        run.err.contains("99999") && run.out.contains("shop/web"),
        "{}{}",
        run.err,
        run.out
    );
}

/// Services that are not served, and one with a node port.
const DESTINATIONS: &str = "
apiVersion: v1
kind: Service
metadata: {name: db, namespace: shop}
spec: {clusterIP: None, ports: [{port: 5432}]}
---
apiVersion: v1
kind: Service
metadata: {name: mail, namespace: shop}
spec: {type: ExternalName, externalName: mail.example}
---
apiVersion: v1
kind: Service
metadata: {name: bare, namespace: shop}
spec: {ports: [{port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: other, namespace: shop, labels: {service.kubernetes.io/service-proxy-name: cilium}}
spec: {clusterIP: 10.96.0.8, ports: [{port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: np, namespace: shop}
spec: {type: NodePort, clusterIP: 10.96.0.9, ports: [{port: 80, nodePort: 30080}]}
---
apiVersion: v1
kind: Node
metadata: {name: n1}
status: {addresses: [{type: InternalIP, address: 192.0.2.1}]}
";

#[test]
fn destination_that_is_not_served_is_explained() {
    let folder = folder();
    let manifests = folder.path().join("manifests");
    fs::write(manifests.join("more.yaml"), DESTINATIONS).unwrap();
    let agent = Agent::start(folder.path());
    for source in [
        &["--agent", agent.address.as_str()][..],
        &["-f", text(&manifests), "--node-name", "n1"],
    ] {
        let traced =
            |to: &str| run(&[&["trace", "--from", "198.51.100.7", "--to", to], source].concat());
        for (to, expected) in [
            ("shop/db", "service shop/db is not served: it is headless"),
            (
                "shop/mail",
                "service shop/mail is not served: of type ExternalName it is an alias in DNS",
            ),
            (
                "shop/bare",
                "service shop/bare is not served: it has neither an address nor a node port",
            ),
            ("shop/other", "service shop/other is not served: its label"),
        ] {
            let run = traced(to);
            assert!(run.code == 1 && run.err.contains(expected), "{to}: {run:?}");
        }
        for (to, expected) in [
            (
                "10.96.0.8:80",
                "why       the address is that of shop/other, which is not served here: its label",
            ),
            (
                "127.0.0.1:30080",
                "why       it is the node port of shop/np, which this node serves at 192.0.2.1 only",
            ),
            (
                "10.96.0.7:81",
                "why       shop/web has this address, but only with 80/tcp (http)",
            ),
        ] {
            let run = traced(to);
            assert!(run.code == 0 && run.out.contains(expected), "{to}: {run:?}");
        }
    }
}

#[test]
fn former_address_of_service_is_remembered() {
    let folder = folder();
    let agent = Agent::start(folder.path());
    let file = folder.path().join("manifests/web.yaml");
    fs::write(&file, web("web", 7).replace("10.96.0.7", "10.96.0.8")).unwrap();
    agent.wait_for("/services", |services| services.contains("10.96.0.8"));
    let run = traced(&["--agent", &agent.address]);
    assert!(
        run.out
            .contains("why       10.96.0.7:80/tcp was shop/web until ")
            && run.out.contains("has 10.96.0.8 now"),
        "{run:?}"
    );
    fs::remove_file(&file).unwrap();
    agent.wait_for("/services", |services| services == "[]");
    let run = traced(&["--agent", &agent.address]);
    assert!(
        run.out.contains("10.96.0.7:80/tcp was shop/web until ")
            && run.out.contains("is not served any more"),
        "{run:?}"
    );
}

#[test]
fn missing_backends_are_explained() {
    let folder = folder();
    let file = folder.path().join("manifests/web.yaml");
    let agent = Agent::start(folder.path());
    for (from, to, seen, expected) in [
        (
            "{name: http, port: 8080}",
            "{name: https, port: 8443}",
            "8443",
            "no endpoint slice has the port http (tcp); they have https (tcp)",
        ),
        (
            "kubernetes.io/service-name: web",
            "app: web",
            "",
            "service-name: web; shop/web-1 has none or another",
        ),
        (
            "addresses: [10.1.0.7]",
            "addresses: [10.1.0.7], conditions: {ready: false}",
            "\"ready\":false",
            "no endpoint is ready, of 1; look at their readiness probes",
        ),
        (
            "addresses: [10.1.0.7]",
            "addresses: [10.1.0.7], conditions: {ready: false, serving: false, terminating: true}",
            "\"terminating\":true",
            "all endpoints are terminating",
        ),
        (
            "endpoints: [{addresses: [10.1.0.7]}]",
            "endpoints: []",
            "",
            "its 1 endpoint slice has no endpoints",
        ),
    ] {
        fs::write(&file, web("web", 7).replace(from, to)).unwrap();
        agent.wait_for("/services/shop/web", |web| !web.contains("10.1.0.7"));
        agent.wait_for("/objects/eps", |slices| slices.contains(seen));
        let mut run = traced(&["--agent", &agent.address]);
        // The manifest may be read in between.
        for _ in 0..50 {
            if run.out.contains(expected) {
                break;
            }
            thread::sleep(std::time::Duration::from_millis(100));
            run = traced(&["--agent", &agent.address]);
        }
        assert!(
            run.out.contains("REJECTED") && run.out.contains(expected),
            "{expected}: {run:?}"
        );
        let offline = traced(&[
            "-f",
            text(&folder.path().join("manifests")),
            "--node-name",
            "n1",
        ]);
        assert_eq!(offline.out, run.out);
    }
}

#[test]
fn quarantined_and_stale_state_is_said() {
    let folder = folder();
    let manifests = folder.path().join("manifests");
    let agent = Agent::start(folder.path());
    let sound = web("web", 7);
    for (broken, part) in [
        (
            sound.replace("10.96.0.7", "10.96.0.777"),
            "state     service shop/web is in quarantine since",
        ),
        (
            sound.replace("port: 8080}]", "port: 99999}]"),
            "state     endpointslice shop/web-1 is in quarantine since",
        ),
    ] {
        fs::write(manifests.join("web.yaml"), &broken).unwrap();
        let object = part.split_whitespace().nth(2).unwrap();
        agent.wait_for("/quarantine", |quarantine| quarantine.contains(object));
        let run = traced(&["--agent", &agent.address]);
        assert!(
            run.code == 0 && run.out.contains("SERVED by one backend"),
            "{run:?}"
        );
        let out = run.out.to_lowercase();
        assert!(
            out.contains(part) && out.contains("; its last good state is in use"),
            "{run:?}"
        );
    }
    fs::write(manifests.join("web.yaml"), &sound).unwrap();
    agent.wait_for("/quarantine", |quarantine| quarantine == "[]");
    assert!(!traced(&["--agent", &agent.address]).out.contains("state "));
    // A new service that cannot be used at all.
    let bad = web("bad", 9).replace("10.96.0.9", "10.96.0.999");
    fs::write(manifests.join("bad.yaml"), bad).unwrap();
    agent.wait_for("/quarantine", |quarantine| quarantine.contains("shop/bad"));
    let named = run(&[
        "trace",
        "--from",
        "198.51.100.7",
        "--to",
        "shop/bad",
        "--agent",
        &agent.address,
    ]);
    assert!(
        named.code == 1
            && named.err.contains("service shop/bad is in quarantine: ")
            && named.err.contains("10.96.0.999"),
        "{named:?}"
    );
    let elsewhere = run(&[
        "trace",
        "--from",
        "198.51.100.7",
        "--to",
        "10.96.0.9:80",
        "--agent",
        &agent.address,
    ]);
    assert!(
        elsewhere
            .out
            .to_lowercase()
            .contains("state     service shop/bad is in quarantine since")
            && elsewhere.out.contains("nothing of it is in use"),
        "{elsewhere:?}"
    );

    fs::remove_file(manifests.join("bad.yaml")).unwrap();
    fs::rename(&manifests, folder.path().join("away")).unwrap();
    agent.wait_for("/quarantine", |quarantine| {
        quarantine.contains("cannot be read")
    });
    let run = traced(&["--agent", &agent.address]);
    let expected = format!(
        "state     what {} holds may be missing or outdated here, since ",
        text(&manifests)
    );
    assert!(
        run.out.contains("SERVED by one backend") && run.out.contains(&expected),
        "{run:?}"
    );
}
