//! The endpoints of the agent's debug HTTP.

/// Every endpoint, with its purpose. The page at `/` lists them.
pub const ENDPOINTS: [(&str, &str, &str); 38] = [
    ("GET", "/liveness", "200 while the node core answers"),
    (
        "GET",
        "/readiness",
        "200 once every renderer has applied its first snapshot",
    ),
    ("GET", "/metrics", "Prometheus metrics"),
    (
        "GET",
        "/status",
        "how the agent is: store, revision, mirror, quarantine",
    ),
    (
        "GET",
        "/sizes",
        "how many services, ports and backends there are",
    ),
    (
        "GET",
        "/counters",
        "attempts to connect by service, served and refused by reason, as the kernel has counted them: ?top=10",
    ),
    (
        "GET",
        "/refused",
        "refused attempts by service, frontend and reason, with clients of the last two minutes",
    ),
    (
        "GET",
        "/flows",
        "connections through services, a line each: ?namespace=, ?service=, ?client=, ?verdict=, ?follow=true",
    ),
    (
        "GET",
        "/balance",
        "new connections by backend beside the wanted share, counted from the first request on, or anew with ?restart=true: ?namespace=, ?service=",
    ),
    (
        "GET",
        "/services",
        "every service as renderers have it; with ?all=true also those that are not served, and why",
    ),
    ("GET", "/services/{namespace}/{name}", "one service"),
    (
        "GET",
        "/snapshot",
        "the input of renderers: services, and facts about this node",
    ),
    (
        "GET",
        "/objects",
        "all stored objects in their state in use, by key, at one revision",
    ),
    (
        "GET",
        "/objects/{kind}",
        "stored objects in their state in use, as in /objects/endpointslice",
    ),
    ("GET", "/nodes", "every node"),
    (
        "GET",
        "/pods",
        "the pods that are attached to this node's dataplane",
    ),
    (
        "POST",
        "/pods",
        "attach a pod: {namespace, name, interface}, and ?wait=5s for the result",
    ),
    ("DELETE", "/pods/{namespace}/{name}", "detach a pod"),
    ("GET", "/renderers", "how the renderers are"),
    (
        "GET",
        "/renderers/{name}/dump",
        "the applied state of a renderer: text, or ?format=json",
    ),
    (
        "GET",
        "/health-checks",
        "the health-check node ports of services, and where they cannot be served",
    ),
    ("GET", "/quarantine", "stored objects that cannot be used"),
    (
        "GET",
        "/warnings",
        "fields of stored objects that have no effect, or not the expected one",
    ),
    (
        "GET",
        "/trace",
        "the outcome of a connection, and why: ?from=, ?to=, ?port=, ?protocol=, ?format=text",
    ),
    (
        "GET",
        "/why",
        "why a connection fails on this node: as /trace, and &probe=true tries the backends",
    ),
    (
        "GET",
        "/controller/event-history",
        "the history of events: ?last=20, ?since=, ?until=, ?from=, ?to=, ?first=, ?seq-num=",
    ),
    (
        "GET",
        "/config",
        "the effective configuration, as a TOML file",
    ),
    ("GET", "/log/level", "the log level"),
    (
        "PUT",
        "/log/level",
        "log more or less from now on: info, or info,contiv_store=debug",
    ),
    (
        "POST",
        "/controller/resync",
        "read the store again and give every renderer everything again",
    ),
    (
        "POST",
        "/controller/confirm-deletions",
        "let deletions count that are held because they are too many",
    ),
    (
        "GET",
        "/",
        "the first page: ?q=, ?namespace=, ?show=problems, ?sort=refused, ?page=, ?hours=",
    ),
    (
        "GET",
        "/page/services/{namespace}/{name}",
        "the page of a service",
    ),
    (
        "GET",
        "/page/why",
        "why a connection fails, as a page: ?from=, ?to=, ?port=, ?protocol=",
    ),
    (
        "GET",
        "/page/flows",
        "the newest connections, as a page: ?namespace=, ?service=, ?client=, ?verdict=",
    ),
    (
        "GET",
        "/page/events",
        "server-sent events: the pages' state has changed",
    ),
    ("GET", "/page/style.css", "their style"),
    ("GET", "/page/script.js", "their script"),
];
