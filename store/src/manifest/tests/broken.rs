//! Problems are named with the spelling of the manifest.

use super::*;

#[test]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn every_bad_field_of_service_is_named() {
    for (spec, expected) in [
        (
            "ports: [{port: 0}]",
            "spec.ports[0].port: 0 is not a number from 1 to 65535",
        ),
        (
            "ports: [{port: 65536}]",
            "spec.ports[0].port: 65536 is not a number from 1 to 65535",
        ),
        (
            "ports: [{name: a}]",
            "spec.ports[0].port: 0 is not a number from 1 to 65535",
        ),
        (
            "ports: [{port: \"80\"}]",
            "spec.ports[0].port: invalid type: string \"80\", expected a whole number",
        ),
        (
            "ports: {port: 80}",
            "spec.ports: invalid type: map, expected a sequence",
        ),
        ("ports: [null]", "spec.ports[0]: invalid type: null"),
        (
            "ports: [{port: 80, protocol: tcp}]",
            "spec.ports[0].protocol: \"tcp\" is not one of TCP, UDP, SCTP",
        ),
        (
            "ports: [{port: 80, nodePort: -1}]",
            "spec.ports[0].nodePort: -1 is not",
        ),
        (
            "ports: [{port: 80, targetPort: 70000}]",
            "spec.ports[0].targetPort: 70000 is not",
        ),
        (
            "ports: [{port: 80, targetPort: \"\"}]",
            "spec.ports[0].targetPort: empty",
        ),
        (
            "ports: [{port: 80, targetPort: [1]}]",
            "spec.ports[0].targetPort: invalid type: sequence, expected a port number or the name of a port",
        ),
        (
            "ports: [{port: 80}, {port: 81, name: b}]",
            "spec.ports[0].name: missing",
        ),
        (
            "ports: [{port: 80, name: a}, {port: 81, name: a}]",
            "spec.ports[1].name: \"a\" is the name of spec.ports[0] too",
        ),
        (
            "ports: [{port: 80, name: a}, {port: 80, name: b, protocol: TCP}]",
            "spec.ports[1].port: TCP port 80 is that of spec.ports[0] too",
        ),
        (
            "clusterIP: 10.0.0",
            "spec.clusterIP: \"10.0.0\" is not an IP address",
        ),
        (
            "clusterIP: 10.0.0.1, clusterIPs: [10.0.0.2]",
            "spec.clusterIPs[0]: \"10.0.0.2\" is not spec.clusterIP",
        ),
        (
            "clusterIP: 10.0.0.1, clusterIPs: [10.0.0.1, x]",
            "spec.clusterIPs[1]: \"x\" is not an IP address",
        ),
        (
            "clusterIPs: [x]",
            "spec.clusterIP: \"x\" is not an IP address",
        ),
        (
            "clusterIP: 127.0.0.1",
            "spec.clusterIP: \"127.0.0.1\" is not an address that other hosts can send to",
        ),
        (
            "clusterIP: 10.0.0.1, clusterIPs: [10.0.0.1, 10.0.0.2]",
            "spec.clusterIPs[1]: 10.0.0.2 is of the family of spec.clusterIPs[0]",
        ),
        (
            "externalIPs: [224.0.0.1]",
            "spec.externalIPs[0]: \"224.0.0.1\" is not an address that other hosts",
        ),
        (
            "ports: [{port: 80, name: 'a b'}]",
            "spec.ports[0].name: \"a b\" has characters other than letters",
        ),
        (
            "type: NodePort, ports: [{port: 80, name: a, nodePort: 300}, {port: 81, name: b, nodePort: 300}]",
            "spec.ports[1].nodePort: TCP port 300 is that of spec.ports[0] too",
        ),
        (
            "externalIPs: [1.2.3.4, 1.2.3.4.5]",
            "spec.externalIPs[1]: \"1.2.3.4.5\" is not an IP address",
        ),
        (
            "loadBalancerSourceRanges: [10.0.0.0]",
            "spec.loadBalancerSourceRanges[0]: \"10.0.0.0\" is not an address range",
        ),
        (
            "loadBalancerSourceRanges: [10.0.0.0/33]",
            "spec.loadBalancerSourceRanges[0]: \"10.0.0.0/33\" is not",
        ),
        (
            "externalTrafficPolicy: local",
            "spec.externalTrafficPolicy: \"local\" is not one of Cluster, Local",
        ),
        (
            "internalTrafficPolicy: None",
            "spec.internalTrafficPolicy: \"None\" is not one of Cluster, Local",
        ),
        (
            "sessionAffinity: Cookie",
            "spec.sessionAffinity: \"Cookie\" is not one of None, ClientIP",
        ),
        (
            "sessionAffinity: ClientIP, sessionAffinityConfig: {clientIP: {timeoutSeconds: 86401}}",
            "spec.sessionAffinityConfig.clientIP.timeoutSeconds: 86401 is not",
        ),
        (
            "type: Loadbalancer",
            "spec.type: \"Loadbalancer\" is not one of",
        ),
        (
            "healthCheckNodePort: 99999",
            "spec.healthCheckNodePort: 99999 is not",
        ),
        (
            "ipFamilies: [IPv4, ipv6]",
            "spec.ipFamilies[1]: \"ipv6\" is not one of IPv4, IPv6",
        ),
        (
            "ipFamilies: [IPv4, IPv4]",
            "spec.ipFamilies[1]: \"IPv4\" is named twice",
        ),
        (
            "selector: {app: 1}",
            "spec.selector.app: invalid type: integer `1`, expected a string",
        ),
    ] {
        let text = format!(
            "{{apiVersion: v1, kind: Service, metadata: {{name: web, namespace: prod}}, spec: {{{spec}}}}}"
        );
        let found = problems(&text);
        let expected = format!("web.yaml: Service prod/web: {expected}");
        assert_eq!(found.len(), 1, "{spec}: {found:?}");
        assert!(
            found[0].starts_with(&expected),
            "{spec}:\n{}\n{expected}",
            found[0]
        );
        assert_eq!(
            refused(&text)
                .broken
                .iter()
                .map(Key::to_string)
                .collect::<Vec<_>>(),
            ["service prod/web"]
        );
    }
}

#[test]
fn all_problems_of_an_object_are_reported_at_once() {
    let text = "{apiVersion: v1, kind: Service, metadata: {name: a}, \
                spec: {clusterIP: x, ports: [{port: 0, protocol: y}]}, \
                status: {loadBalancer: {ingress: [{ip: z}, {ip: 1.2.3.4, ipMode: vip}]}}}";
    let fields: Vec<_> = refused(text)
        .problems
        .into_iter()
        .filter_map(|problem| problem.field)
        .collect();
    let expected = [
        "spec.clusterIP",
        "spec.ports[0].protocol",
        "spec.ports[0].port",
        "status.loadBalancer.ingress[0].ip",
        "status.loadBalancer.ingress[1].ipMode",
    ];
    assert_eq!(fields, expected);
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn bad_fields_of_other_kinds_are_named() {
    for (manifest, expected) in [
        (
            "v1, kind: Endpoints, subsets: [{addresses: [{ip: 1.1.1.1}, {ip: x}]}]",
            "subsets[0].addresses[1].ip",
        ),
        (
            "v1, kind: Endpoints, subsets: [{notReadyAddresses: [{}]}]",
            "subsets[0].notReadyAddresses[0].ip",
        ),
        (
            "v1, kind: Endpoints, subsets: [{ports: [{port: 0}]}]",
            "subsets[0].ports[0].port",
        ),
        (
            "v1, kind: Endpoints, subsets: [{ports: [{port: 1, protocol: IP}]}]",
            "subsets[0].ports[0].protocol",
        ),
        (
            "discovery.k8s.io/v1, kind: EndpointSlice, addressType: ipv4",
            "addressType",
        ),
        (
            "discovery.k8s.io/v1, kind: EndpointSlice, addressType: IPv4, endpoints: [{}]",
            "endpoints[0].addresses",
        ),
        (
            "discovery.k8s.io/v1, kind: EndpointSlice, addressType: IPv4, endpoints: [{addresses: ['::1']}]",
            "endpoints[0].addresses[0]",
        ),
        (
            "discovery.k8s.io/v1, kind: EndpointSlice, addressType: IPv6, endpoints: [{addresses: [1.1.1.1]}]",
            "endpoints[0].addresses[0]",
        ),
        (
            "discovery.k8s.io/v1, kind: EndpointSlice, addressType: IPv4, ports: [{port: -1}]",
            "ports[0].port",
        ),
        (
            "discovery.k8s.io/v1, kind: EndpointSlice, addressType: IPv4, endpoints: [{addresses: [1.1.1.1], conditions: {ready: 1}}]",
            "endpoints[0].conditions.ready",
        ),
        (
            "discovery.k8s.io/v1beta1, kind: EndpointSlice",
            "apiVersion",
        ),
        ("v2, kind: Pod", "apiVersion"),
        ("v1, kind: Pod, status: {podIP: x}", "status.podIP"),
        (
            "v1, kind: Pod, status: {podIP: 1.1.1.1, podIPs: [{ip: 1.1.1.2}]}",
            "status.podIPs[0].ip",
        ),
        (
            "v1, kind: Pod, status: {podIPs: [{ip: 1.1.1.1}, {ip: y}]}",
            "status.podIPs[1].ip",
        ),
        ("v1, kind: Pod, status: {hostIP: x}", "status.hostIP"),
        (
            "v1, kind: Pod, spec: {containers: [{ports: [{containerPort: 0}]}]}",
            "spec.containers[0].ports[0].containerPort",
        ),
        (
            "v1, kind: Pod, metadata: {name: a, annotations: {contiv.io/weight: '0'}}",
            "metadata.annotations[contiv.io/weight]",
        ),
        (
            "v1, kind: Service, metadata: {name: a, annotations: {contiv.io/balance: least-conn}}",
            "metadata.annotations[contiv.io/balance]",
        ),
        (
            "v1, kind: Service, metadata: {name: a, annotations: {contiv.io/session-affinity-scope: ''}}",
            "metadata.annotations[contiv.io/session-affinity-scope]",
        ),
        (
            "v1, kind: Service, metadata: {name: a, annotations: {contiv.io/prefer-local: yes}}",
            "metadata.annotations[contiv.io/prefer-local]",
        ),
        (
            "v1, kind: Service, metadata: {name: a, annotations: {contiv.io/reset-connections: 'True'}}",
            "metadata.annotations[contiv.io/reset-connections]",
        ),
        (
            "v1, kind: Service, metadata: {name: a, annotations: {contiv.io/failover: enabled}}",
            "metadata.annotations[contiv.io/failover]",
        ),
        ("v1, kind: Node, spec: {podCIDR: 10.0.0.1}", "spec.podCIDR"),
        (
            "v1, kind: Node, spec: {podCIDR: 10.0.0.0/24, podCIDRs: [10.0.1.0/24]}",
            "spec.podCIDRs[0]",
        ),
        (
            "v1, kind: Node, spec: {podCIDRs: [10.0.0.0/24, x]}",
            "spec.podCIDRs[1]",
        ),
        (
            "v1, kind: Node, status: {addresses: [{type: InternalIP, address: n1}]}",
            "status.addresses[0].address",
        ),
        ("contiv.io/v1, kind: VppNode", "spec"),
        ("contiv.io/v1, kind: VppNode, spec: {}", "spec.id"),
        ("contiv.io/v1, kind: VppNode, spec: {id: -1}", "spec.id"),
        (
            "contiv.io/v1, kind: VppNode, spec: {id: 1, ip_addresses: [x]}",
            "spec.ip_addresses[0]",
        ),
        (
            "contiv.io/v1, kind: CustomIPAllocation, spec: {pod_name: other}",
            "spec.pod_name",
        ),
        (
            "contiv.io/v1, kind: CustomIPAllocation, spec: {custom_interfaces: [{name: e, ip_address: x}]}",
            "spec.custom_interfaces[0].ip_address",
        ),
        (
            "contiv.io/v1, kind: CustomIPAllocation, spec: {custom_interfaces: [{service_endpoint: 7}]}",
            "spec.custom_interfaces[0].service_endpoint",
        ),
        ("v1, kind: Namespace, metadata: {name: 1}", "metadata.name"),
        (
            "v1, kind: Namespace, metadata: {labels: {a: b}}",
            "metadata.name",
        ),
        (
            "v1, kind: Namespace, metadata: {name: a/b}",
            "metadata.name",
        ),
        (
            "v1, kind: Service, metadata: {name: a, creationTimestamp: yesterday}",
            "metadata.creationTimestamp",
        ),
    ] {
        let metadata = if manifest.contains("metadata") {
            ""
        } else {
            ", metadata: {name: a}"
        };
        let text = format!("{{apiVersion: {manifest}{metadata}}}");
        let parsed = refused(&text);
        let fields: Vec<_> = parsed
            .problems
            .iter()
            .filter_map(|problem| problem.field.as_deref())
            .collect();
        assert_eq!(fields, [expected], "{manifest}: {:?}", parsed.problems);
        assert_eq!(parsed.objects, vec![], "{manifest}");
        assert!(
            parsed.is_incomplete || !parsed.broken.is_empty(),
            "{manifest} could be taken for a deletion"
        );
    }
}

#[test]
fn unknown_version_names_the_known_one() {
    let found = problems(
        "{apiVersion: discovery.k8s.io/v1beta1, kind: EndpointSlice, metadata: {name: a}}",
    );
    let expected = "web.yaml: EndpointSlice default/a: apiVersion: \"discovery.k8s.io/v1beta1\" is not known for \
                    this kind; use discovery.k8s.io/v1";
    assert_eq!(found, [expected]);
}

#[test]
fn document_without_object_is_reported_as_any_object() {
    for text in [
        "just text",
        "[1, 2]",
        "{a: b}",
        "{apiVersion: v1}",
        "{kind: 7}",
        "a: [",
        "\tx: 1",
    ] {
        let parsed = parse(text);
        assert_eq!(parsed.problems.len(), 1, "{text}");
        assert!(parsed.is_incomplete, "{text}");
    }
}

#[test]
fn broken_object_does_not_stop_others() {
    let text = format!(
        "{SERVICE}\n---\nkind: Service\n  x: [\n---\n{}\n---\n{NODE}",
        SERVICE.replace("web", "bad").replace("80", "0")
    );
    let parsed = parse(&text);
    let keys: Vec<_> = parsed.objects.iter().map(|o| o.key.to_string()).collect();
    assert_eq!(keys, ["service default/web", "node n1"]);
    let sources: Vec<_> = parsed.problems.iter().map(|p| p.source.as_str()).collect();
    assert_eq!(sources, ["web.yaml:2", "web.yaml:3"]);
}

proptest::proptest! {
    #[test]
    fn no_text_makes_it_panic(text in "(\\PC|[\\n\\t:{}\\[\\],&*-]|apiVersion: v1\\n|kind: (Service|Node|List)\\n|items:\\n|spec:\\n){0,40}") {
        parse(&text);
    }
}

#[test]
fn every_bad_field_of_external_workload_is_named() {
    let tls = "meshTLS: {identity: a, serverName: b}";
    let long = "x".repeat(254);
    for (spec, expected) in [
        ("", "spec.meshTLS: missing"),
        ("meshTLS: {identity: a}", "spec.meshTLS.serverName: missing"),
        (
            &format!("meshTLS: {{identity: {long}, serverName: b}}"),
            "spec.meshTLS.identity: 254 characters long",
        ),
        (
            &format!("{tls}, ports: [{{name: a}}]"),
            "spec.ports[0].port: 0 is not a number from 1 to 65535",
        ),
        (
            &format!("{tls}, ports: [{{port: 1, protocol: tcp}}]"),
            "spec.ports[0].protocol: \"tcp\" is not one of",
        ),
        (
            &format!("{tls}, ports: [{{port: 1, name: Http}}]"),
            "spec.ports[0].name: \"Http\" is not the name of a port",
        ),
        (
            &format!("{tls}, ports: [{{port: 1, name: '80'}}]"),
            "spec.ports[0].name: \"80\" is not the name",
        ),
        (
            &format!("{tls}, ports: [{{port: 1, name: abcdefghijklmnop}}]"),
            "spec.ports[0].name: ",
        ),
        (
            &format!("{tls}, ports: [{{port: 1, name: a--b}}]"),
            "spec.ports[0].name: ",
        ),
        (
            &format!("{tls}, ports: [{{port: 1, name: a}}, {{port: 2, name: a}}]"),
            "spec.ports[1].name: \"a\" is the name of spec.ports[0] too",
        ),
        (
            &format!("{tls}, workloadIPs: [{{ip: 10.0.0}}]"),
            "spec.workloadIPs[0].ip: \"10.0.0\" is not an IP address",
        ),
        (
            &format!("{tls}, workloadIPs: [{{ip: 127.0.0.1}}]"),
            "spec.workloadIPs[0].ip: \"127.0.0.1\" is not an address",
        ),
        (
            &format!("{tls}, workloadIPs: [{{ip: 1.1.1.1}}, {{ip: 1.1.1.2}}, {{ip: 1.1.1.3}}]"),
            "spec.workloadIPs: 3 addresses; 2 are allowed",
        ),
        (
            &format!("{tls}}}, status: {{conditions: [{{status: 'True'}}]"),
            "status.conditions[0].type: missing",
        ),
        (
            &format!("{tls}}}, status: {{conditions: [{{type: Ready, status: yes}}]"),
            "status.conditions[0].status: \"yes\" is not one of True, False, Unknown",
        ),
        (
            &format!(
                "{tls}}}, status: {{conditions: [{{type: Ready, status: 'True', lastProbeTime: now}}]"
            ),
            "status.conditions[0].lastProbeTime: \"now\" is not a time",
        ),
    ] {
        let text = format!(
            "{{apiVersion: workload.linkerd.io/v1beta1, kind: ExternalWorkload, metadata: {{name: vm, namespace: prod}}, \
             spec: {{{spec}}}}}"
        );
        let found = problems(&text);
        let expected = format!("web.yaml: ExternalWorkload prod/vm: {expected}");
        assert_eq!(found.len(), 1, "{spec}: {found:?}");
        assert!(
            found[0].starts_with(&expected),
            "{spec}:\n{}\n{expected}",
            found[0]
        );
    }
}

#[test]
fn object_with_unknown_value_is_used_without_it() {
    let service = "{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {type: Balancer, \
                   externalTrafficPolicy: Near, ipFamilies: [IPv5], \
                   ports: [{name: a, port: 80, protocol: MPTCP}, {name: b, port: 81}]}, \
                   status: {loadBalancer: {ingress: [{ip: 203.0.113.1, ipMode: Tunnel}]}}}";
    let slice = "{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: web-1}, addressType: IPv5, \
                 endpoints: [{addresses: [x]}]}";
    for (text, expected) in [(service, 5), (slice, 1)] {
        let parsed = parse(text);
        assert_eq!(
            (parsed.problems.len(), parsed.objects.len()),
            (0, 1),
            "{:?}",
            parsed.problems
        );
        assert_eq!(
            parsed.objects[0].unknown_values.len(),
            expected,
            "{:?}",
            parsed.objects[0].unknown_values
        );
        let refused = refused(text);
        assert_eq!(
            (
                refused.problems.len(),
                refused.objects.len(),
                refused.broken.len()
            ),
            (expected, 0, 1)
        );
    }
}

#[test]
fn object_with_bad_address_is_used_without_it() {
    for (text, expected) in [
        (
            "{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {clusterIP: 10.96.0.1, \
             clusterIPs: [10.96.0.1, 10.96.0.2], externalIPs: [x, 192.0.2.1], loadBalancerSourceRanges: [x], \
             ports: [{port: 80}]}, status: {loadBalancer: {ingress: [{ip: 127.0.0.1}]}}}",
            4,
        ),
        (
            "{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {clusterIP: x, type: NodePort, \
             ports: [{port: 80, nodePort: 30080}]}}",
            1,
        ),
        (
            "{apiVersion: v1, kind: Endpoints, metadata: {name: web}, subsets: [{addresses: [{ip: x}, {ip: 10.1.1.3}], \
             notReadyAddresses: [{ip: y}]}]}",
            2,
        ),
        (
            "{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: web-1}, addressType: IPv4, \
             endpoints: [{addresses: [x]}, {addresses: ['fd00::1']}, {addresses: []}, {addresses: [10.1.1.3]}]}",
            3,
        ),
        (
            "{apiVersion: v1, kind: Node, metadata: {name: n1}, spec: {podCIDR: x}, \
             status: {addresses: [{type: InternalIP, address: y}, {type: ExternalIP, address: 192.168.1.1}]}}",
            2,
        ),
        (
            "{apiVersion: v1, kind: Pod, metadata: {name: p1}, \
             status: {hostIP: x, podIP: 10.1.1.3, podIPs: [{ip: 10.1.1.3}, {ip: y}]}}",
            2,
        ),
        (
            "{apiVersion: contiv.io/v1, kind: VppNode, metadata: {name: w}, \
             spec: {id: 2, ip_addresses: [x, 192.168.16.3/24]}}",
            1,
        ),
        (
            "{apiVersion: workload.linkerd.io/v1beta1, kind: ExternalWorkload, metadata: {name: vm}, \
             spec: {meshTLS: {identity: a, serverName: a}, workloadIPs: [{ip: x}, {ip: 10.0.0.1}]}}",
            1,
        ),
    ] {
        let parsed = parse(text);
        assert_eq!(
            (parsed.problems.len(), parsed.objects.len()),
            (0, 1),
            "{text}: {:?}",
            parsed.problems
        );
        let unknown = &parsed.objects[0].unknown_values;
        assert_eq!(unknown.len(), expected, "{unknown:?}");
        let refused = refused(text);
        assert_eq!(
            (refused.problems.len(), refused.objects.len()),
            (expected, 0),
            "in place of an API server"
        );
        let without = text
            .replace("192.168.1.1", "z")
            .replace("192.168.16.3/24", "z")
            .replace("192.0.2.1", "z");
        let without = without
            .replace("10.96.0.", "z")
            .replace("10.1.1.3", "z")
            .replace("10.0.0.1", "z");
        let nothing_left = parse(&without.replace("nodePort: 30080", "nodePort: 0"));
        assert_eq!(
            (nothing_left.objects.len(), nothing_left.broken.len()),
            (0, 1),
            "{without}"
        );
    }
}

#[test]
fn addresses_with_leading_zeros_are_accepted() {
    for text in [
        "{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {clusterIP: 172.30.0.041, \
         clusterIPs: [172.30.0.041, 'fd00::00010'], externalIPs: [192.0.02.1], \
         loadBalancerSourceRanges: [203.0.113.000/025], ports: [{port: 80}]}}",
        "{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: web-1}, addressType: IPv4, \
         endpoints: [{addresses: [10.01.0.09]}]}",
        "{apiVersion: v1, kind: Node, metadata: {name: n1}, spec: {podCIDR: 10.01.0.0/024}, \
         status: {addresses: [{type: InternalIP, address: 192.168.01.1}]}}",
    ] {
        object(text);
        assert_eq!(problems(text), Vec::<String>::new());
    }
}
