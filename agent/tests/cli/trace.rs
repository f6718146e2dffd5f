use std::{
    fs,
    io::{Read, Write},
    net::TcpListener,
    thread,
};

use crate::{
    agent::{Agent, folder},
    contiv::{Run, run, run_with_input, text, web},
};

const FROM_OUTSIDE: [&str; 5] = ["trace", "--from", "198.51.100.7", "--to", "10.96.0.7:80/tcp"];

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
        assert_eq!((offline.code, offline.out), (0, online.out), "{output}");
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
    assert!(here.out.contains("a pod of this node") && here.out.contains("kept: "), "{}", here.out);
    let elsewhere = traced("n2");
    assert!(elsewhere.err.contains("has no object of this node"), "{}", elsewhere.err);
    assert!(
        elsewhere.out.contains("external: ") && elsewhere.out.contains("masqueraded: "),
        "{}",
        elsewhere.out
    );
}

#[test]
fn trace_without_agent_fails_with_a_hint() {
    // Nothing listens on a port that was just released.
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let run = traced(&["--agent", &format!("http://{address}")]);
    assert_eq!((run.code, run.out.as_str()), (1, ""));
    for part in [&address.to_string(), "is the agent running?", "--agent", "-f"] {
        assert!(run.err.contains(part), "{part} is not in: {}", run.err);
    }
}

#[test]
fn server_other_than_an_agent_is_recognized() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = format!("http://{}", listener.local_addr().unwrap());
    let answers = thread::spawn(move || {
        for answer in ["SSH-2.0-OpenSSH_9.2\r\n", "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n"] {
            let (mut client, _) = listener.accept().unwrap();
            // An answer before the request would be another fault.
            assert_ne!(client.read(&mut [0; 1024]).unwrap(), 0);
            client.write_all(answer.as_bytes()).unwrap();
        }
    });
    for expected in ["does not answer as an agent does", "agent of this version"] {
        let run = traced(&["--agent", &server]);
        assert_eq!(run.code, 1);
        assert!(run.err.contains(expected), "{expected} is not in: {}", run.err);
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
    for source in [&["--agent", agent.address.as_str()][..], &["-f", text(&manifests), "--node-name", "n1"]] {
        let traced = |to: &str| run(&[&["trace", "--from", "198.51.100.7", "--to", to], source].concat());
        for to in ["shop/web", "shop/web:80", "shop/web:http/tcp"] {
            let run = traced(to);
            assert_eq!(run.code, 0, "{to}: {}", run.err);
            assert!(run.out.starts_with("flow      198.51.100.7 to 10.96.0.7:80/tcp"), "{}", run.out);
        }
        assert!(traced("shop/dns:dns").out.contains("10.96.0.8:53/udp"));
        for (to, code, expected) in [
            ("shop/wbe", 1, "did you mean shop/web?"),
            ("web", 1, "there is no service default/web"),
            ("shop/dns", 2, "name one of 53/UDP (dns), 80/TCP (http)"),
            ("shop/web:81", 2, "has no such port; name one of 80/TCP (http)"),
        ] {
            let run = traced(to);
            assert_eq!((run.code, run.out.as_str()), (code, ""), "{to}: {}", run.err);
            assert!(run.err.contains(expected), "{to}: {}", run.err);
        }
        let other = run(&[&["trace", "--from", "fd00::7", "--to", "shop/web"], source].concat());
        assert!(other.code == 1 && other.err.contains("shop/web has no IPv6 address"), "{other:?}");
    }
}

#[test]
fn wrong_usage_and_failure_have_different_exit_codes() {
    for wrong in [
        &["trace", "--from", "fd00::1", "--to", "10.96.0.7:80/tcp"][..],
        &["trace", "--from", "10.1.0.9", "--to", "10.96.0.7/tcp"],
        &["trace", "--from", "10.1.0.9"],
        &["trace", "--from", "10.1.0.9%veth*", "--to", "10.96.0.7:80/tcp"],
        &["trace", "--from", "10.1.0.9", "--to", "10.96.0.7:80", "--agent", "https://node1"],
    ] {
        let run = run(wrong);
        assert_eq!((run.code, run.out.as_str()), (2, ""), "{wrong:?}: {}", run.err);
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
    assert!(online.out.starts_with("flow      10.1.0.9%veth-1 to 10.96.0.7:80/tcp"), "{}", online.out);
    let offline = run(&[&from[..], &["-f", text(&manifests), "--node-name", "n1"]].concat());
    assert_eq!(offline.out, online.out);
}

#[test]
fn broken_manifests_are_named_and_rest_is_traced() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("good.yaml"), web("web", 7)).unwrap();
    fs::write(folder.path().join("bad.yaml"), web("bad", 8).replace("port: 80,", "port: 99999,")).unwrap();
    let run = traced(&["-f", text(folder.path())]);
    assert_eq!(run.code, 1);
    assert!(run.err.contains("99999") && run.out.contains("shop/web"), "{}{}", run.err, run.out);
}
