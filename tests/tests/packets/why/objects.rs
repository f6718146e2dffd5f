//! Faults of services and endpoint slices, and of clients that use them wrongly.

use contiv_tests::lab::{Result, isolated, wait_until};

use super::{
    fault::{Fault, Machine, fault},
    group::run_group,
    scene::{EVENT_TIMEOUT, Object, Scene},
};

/// The services, each with its own fault.
fn put_objects(scene: &Scene<'_>) -> Result<()> {
    let remote = |name, number| Object::new(name, number, &["pod3"]);
    let objects = [
        Object {
            spec: "  externalTrafficPolicy: Local\n",
            ..remote("external-local", 1)
        },
        Object {
            spec: "  internalTrafficPolicy: Local\n",
            ..remote("internal-local", 2)
        },
        Object {
            spec: "  loadBalancerSourceRanges: [10.0.0.0/8]\n",
            ..remote("ranges", 3)
        },
        Object {
            metadata: "  labels: {service.kubernetes.io/service-proxy-name: other}\n",
            ..remote("other-proxy", 4)
        },
        Object {
            slices_of: "wbe",
            ..remote("mislabelled", 6)
        },
        Object {
            port_name: "http",
            ..remote("misnamed-port", 7)
        },
        Object {
            conditions: "ready: false",
            ..remote("unready", 8)
        },
        Object {
            conditions: "ready: false, serving: false, terminating: true",
            ..remote("terminating", 9)
        },
        Object {
            families: &["IPv4"],
            ..remote("v4-only", 10)
        },
        Object {
            slice_namespace: "prod",
            ..remote("other-namespace", 11)
        },
        Object {
            ip_mode: "Proxy",
            ..remote("proxied", 12)
        },
        Object::new("no-endpoints", 13, &[]),
        Object {
            metadata: "  creationTimestamp: '2026-01-01T00:00:00Z'\n",
            ..Object::new("older", 14, &[])
        },
        Object {
            address: Some("10.244.2.99"),
            families: &["IPv4"],
            ..remote("nobody", 16)
        },
        Object {
            target_port: 9999,
            ..remote("wrong-target", 17)
        },
        remote("former", 18),
        remote("deleted", 20),
    ];
    objects.iter().try_for_each(|object| scene.put(object))?;
    // Without slices.
    let no_slice = remote("no-slice", 5).service();
    scene.manifests.write("no-slice.yaml", &no_slice)?;
    // The younger one claims the external IP of the older one.
    let younger = Object {
        metadata: "  creationTimestamp: '2026-02-01T00:00:00Z'\n",
        ..remote("younger", 15)
    };
    let claims = younger.service().replace("192.0.2.15", "192.0.2.14");
    let text = format!("{claims}---\n{}", younger.slices());
    scene.manifests.write("younger.yaml", &text)?;
    let of_type = |name: &str, number: u8, kind: &str| {
        format!(
            "apiVersion: v1\nkind: Service\nmetadata: {{name: {name}, namespace: default}}\nspec:\n  {kind}\n  \
             externalIPs: [192.0.2.{number}]\n  ports:\n  - {{name: web, protocol: TCP, port: 80, targetPort: 8080}}\n"
        )
    };
    let headless = format!(
        "{}---\n{}",
        of_type("headless", 21, "clusterIP: None"),
        remote("headless", 21).slices()
    );
    scene.manifests.write("headless.yaml", &headless)?;
    let alias = of_type(
        "alias",
        22,
        "type: ExternalName\n  externalName: db.example.org",
    );
    scene.manifests.write("alias.yaml", &alias)?;
    let internal = format!(
        "{}---\n{}",
        of_type("internal", 23, "clusterIP: 10.96.0.23"),
        remote("internal", 23).slices()
    );
    scene.manifests.write("internal.yaml", &internal)?;
    let named = remote("named", 24);
    let hosts = format!(
        "{}---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata:\n  name: named-fqdn\n  namespace: default\n  \
         labels: {{kubernetes.io/service-name: named}}\naddressType: FQDN\nports:\n- {{name: web, protocol: TCP, port: \
         8080}}\nendpoints:\n- {{addresses: [db.example.org], conditions: {{ready: true}}}}\n",
        named.service()
    );
    scene.manifests.write("named.yaml", &hosts)?;
    let other_port = remote("other-port", 25);
    let slices = other_port.slices().replace(
        "- {name: web, protocol: TCP, port: 8080}",
        "- {name: metrics, protocol: TCP, port: 9090}",
    );
    scene.manifests.write(
        "other-port.yaml",
        &format!("{}---\n{slices}", other_port.service()),
    )
}

/// The addresses of one service change, and another is deleted.
fn change_objects(scene: &Scene<'_>) -> Result<()> {
    let agent = scene.agent()?;
    let has = |name: &str| {
        agent
            .http("GET", &format!("/services/default/{name}"))
            .is_ok_and(|response| response.status == 200)
    };
    wait_until("the services are known", EVENT_TIMEOUT, || {
        has("former") && has("deleted") && has("other-port") && agent.is_in_sync()
    })?;
    let former = Object::new("former", 18, &["pod3"]);
    let moved = Object::new("former", 19, &["pod3"]);
    let text = format!("{}---\n{}", moved.service(), former.slices());
    scene.manifests.write("former.yaml", &text)?;
    scene.delete("deleted")?;
    wait_until("the changes are applied", EVENT_TIMEOUT, || {
        !has("deleted") && agent.is_in_sync()
    })
    .map(drop)
}

/// A fault: what is wrong, who connects to what, the codes, and what an expert says.
type Declared = (
    &'static str,
    Machine,
    &'static str,
    &'static [&'static str],
    &'static str,
);

const FAULTS: [Declared; 34] = [
    (
        "no service has the cluster IP",
        Machine::Pod2,
        "10.96.0.250:80/tcp",
        &["unallocated-address"],
        "no service has 10.96.0.250",
    ),
    (
        "no service has the cluster IP (IPv6)",
        Machine::Pod2,
        "[fd00:10:96::250]:80/tcp",
        &["unallocated-address"],
        "no service has fd00:10:96::250",
    ),
    (
        "no service has the external IP",
        Machine::Client,
        "192.0.2.231:80/tcp",
        &["not-a-service"],
        "no service has 192.0.2.231",
    ),
    (
        "the cluster IP has no such port",
        Machine::Pod2,
        "10.96.0.80:81/tcp",
        &["unknown-port"],
        "default/web has no port 81, but 80",
    ),
    (
        "the external IP has no such port",
        Machine::Client,
        "192.0.2.80:8080/tcp",
        &["unknown-port"],
        "default/web has no port 8080, but 80",
    ),
    (
        "the cluster IP does not have the port for UDP",
        Machine::Pod2,
        "10.96.0.23:80/udp",
        &["other-protocol"],
        "default/internal has port 80 for TCP only",
    ),
    (
        "the service changed its cluster IP",
        Machine::Pod2,
        "10.96.0.18:80/tcp",
        &["former-address"],
        "10.96.0.18 was the address of default/former, which has 10.96.0.19 now",
    ),
    (
        "the service was deleted",
        Machine::Pod2,
        "10.96.0.20:80/tcp",
        &["former-address"],
        "10.96.0.20 was the address of default/deleted, which was deleted",
    ),
    (
        "the service has no slice",
        Machine::Pod2,
        "10.96.0.5:80/tcp",
        &["no-slice"],
        "default/no-slice has no endpoint slice",
    ),
    (
        "the slice names another service",
        Machine::Pod2,
        "10.96.0.6:80/tcp",
        &["no-slice"],
        "the slice mislabelled-ipv4 names the service wbe in its label",
    ),
    (
        "the slice names the port otherwise",
        Machine::Pod2,
        "10.96.0.7:80/tcp",
        &["no-endpoint-port"],
        "the port of the service is named web, that of its slices http",
    ),
    (
        "the slice does not have the port",
        Machine::Pod2,
        "10.96.0.25:80/tcp",
        &["no-endpoint-port"],
        "the slices of default/other-port have metrics and web-udp, and no web",
    ),
    (
        "the backend is not ready",
        Machine::Pod2,
        "10.96.0.8:80/tcp",
        &["not-ready"],
        "the only endpoint of default/unready is not ready",
    ),
    (
        "the backend is terminating",
        Machine::Pod2,
        "10.96.0.9:80/tcp",
        &["not-ready"],
        "the only endpoint of default/terminating is terminating and does not serve any more",
    ),
    (
        "the slice has no endpoints",
        Machine::Pod2,
        "10.96.0.13:80/tcp",
        &["no-endpoints"],
        "the slices of default/no-endpoints are empty: its selector matches no pod",
    ),
    (
        "there are only endpoints of IPv4",
        Machine::Pod2,
        "[fd00:10:96::10]:80/tcp",
        &["other-family"],
        "default/v4-only has endpoints of IPv4 only",
    ),
    (
        "the slice is in another namespace",
        Machine::Pod2,
        "10.96.0.11:80/tcp",
        &["no-slice"],
        "the slices are in the namespace prod, the service in default",
    ),
    (
        "the slice has host names",
        Machine::Pod2,
        "10.96.0.24:80/tcp",
        &["host-names"],
        "the slice of default/named has host names, which no proxy can use",
    ),
    (
        "another proxy serves the service",
        Machine::Pod2,
        "10.96.0.4:80/tcp",
        &["other-proxy"],
        "the label service-proxy-name says that another proxy serves it",
    ),
    (
        "the service is headless",
        Machine::Client,
        "192.0.2.21:80/tcp",
        &["headless"],
        "default/headless is headless: no proxy serves its addresses",
    ),
    (
        "the service is an ExternalName",
        Machine::Client,
        "192.0.2.22:80/tcp",
        &["external-name"],
        "default/alias is an ExternalName: no proxy serves its addresses",
    ),
    (
        "the client is not in the source ranges",
        Machine::Client,
        "198.51.100.3:80/tcp",
        &["source-ranges"],
        "loadBalancerSourceRanges allow 10.0.0.0/8 only",
    ),
    (
        "external policy Local, by node port",
        Machine::Client,
        "172.31.0.1:30001/tcp",
        &["policy-local"],
        "externalTrafficPolicy is Local, and the backend is on node2",
    ),
    (
        "external policy Local, by load balancer",
        Machine::Client,
        "198.51.100.1:80/tcp",
        &["policy-local"],
        "externalTrafficPolicy is Local, and the backend is on node2",
    ),
    (
        "external policy Local, IPv6",
        Machine::Client,
        "[2001:db8:1::1]:80/tcp",
        &["policy-local"],
        "externalTrafficPolicy is Local, and the backend is on node2",
    ),
    (
        "internal policy Local",
        Machine::Pod2,
        "10.96.0.2:80/tcp",
        &["policy-local"],
        "internalTrafficPolicy is Local, and the backend is on node2",
    ),
    (
        "internal policy Local, from the node",
        Machine::Node,
        "10.96.0.2:80/tcp",
        &["policy-local"],
        "internalTrafficPolicy is Local, and the backend is on node2",
    ),
    (
        "the load balancer is a proxy",
        Machine::Client,
        "198.51.100.12:80/tcp",
        &["not-a-service", "no-address"],
        "ipMode is Proxy: this node leaves packets to that address to the load balancer",
    ),
    (
        "node port of another node",
        Machine::Node,
        "172.31.0.2:30080/tcp",
        &["node-port-of-other-node"],
        "172.31.0.2 is another node; whether its agent runs has to be seen there",
    ),
    (
        "node port that no service has",
        Machine::Client,
        "172.31.0.1:30222/tcp",
        &["not-a-service", "unknown-port"],
        "no service has node port 30222, and no process listens there",
    ),
    (
        "node port of a service that has none",
        Machine::Client,
        "172.31.0.1:30023/tcp",
        &["not-a-service", "unknown-port"],
        "default/internal is of type ClusterIP: it has no node port",
    ),
    (
        "node port at 127.0.0.1",
        Machine::Node,
        "127.0.0.1:30080/tcp",
        &["node-port-elsewhere"],
        "node ports do not answer at 127.0.0.1 (node-ports-on-loopback)",
    ),
    (
        "node port at the node's address of the pods",
        Machine::Pod2,
        "10.244.1.1:30080/tcp",
        &["node-port-elsewhere"],
        "node ports answer at 172.31.0.1 only (node-port-addresses)",
    ),
    (
        "two services claim the address",
        Machine::Client,
        "192.0.2.14:80/tcp",
        &["no-endpoints"],
        "192.0.2.14 belongs to the older service default/older, which has no endpoints",
    ),
];

fn faults_of_objects() -> Vec<Fault> {
    use Machine::{Client, Node, Pod2};
    let declared = |(name, from, to, codes, expert): Declared| fault(name, from, to, codes, expert);
    let mut faults: Vec<Fault> = FAULTS.into_iter().map(declared).collect();
    faults.extend([
        fault(
            "node port at a second address",
            Client,
            "172.31.0.51:30080/tcp",
            &["node-port-elsewhere"],
            "node ports answer at 172.31.0.1 only (node-port-addresses)",
        )
        .shell(
            Node,
            "ip addr add 172.31.0.51/24 dev eth0",
            "ip addr del 172.31.0.51/24 dev eth0",
        ),
        fault(
            "the address in the slice is nobody's",
            Pod2,
            "10.96.0.16:80/tcp",
            &["backend-unreachable"],
            "10.244.2.99 does not answer; after three seconds node2 reports that it is not there",
        )
        .patient(std::time::Duration::from_secs(4))
        .probing(),
        fault(
            "the target port is not the backend's",
            Pod2,
            "10.96.0.17:80/tcp",
            &["backend-refuses"],
            "10.244.2.10 refuses port 9999: nothing listens there",
        )
        .probing(),
    ]);
    faults.into_iter().map(Fault::permanent).collect()
}

#[test]
fn faults_of_services_are_named() -> Result<()> {
    isolated("why::objects::faults_of_services_are_named", |lab| {
        let flags = ["--service-cidrs=10.96.0.0/16,fd00:10:96::/112"];
        let mut scene = Scene::start(lab, &flags)?;
        put_objects(&scene)?;
        change_objects(&scene)?;
        run_group("services", &mut scene, &faults_of_objects())
    })
}
