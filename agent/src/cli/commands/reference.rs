//! `contiv reference`: pages of the documentation generated from the code.

use std::{fmt::Write as _, io::Write};

use clap::{Args, Command, ValueEnum};

use crate::cli::{Outcome, Terminal};
use crate::{
    config::{Config, Settings as _, controller::ControllerConfig},
    metrics::{Exposition, Metrics},
};

/// Print a page of the documentation that is generated from the code
///
/// Exit codes: 0 success; 1 it cannot be printed; 2 wrong usage.
#[derive(Debug, Args)]
#[command(hide = true)]
pub(crate) struct Reference {
    page: Page,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Page {
    /// docs/users/metrics.md
    Metrics,
    /// docs/users/configuration.md
    Configuration,
}

impl Reference {
    pub(crate) fn run(self, terminal: &mut Terminal) -> anyhow::Result<Outcome> {
        let text = match self.page {
            Page::Metrics => metrics(),
            Page::Configuration => configuration()?,
        };
        terminal.out.write_all(text.as_bytes())?;
        Ok(Outcome::Success)
    }
}

const GENERATED_NOTICE: &str =
    "<!-- Written by scripts/reference from the code; a test fails when it is out of date. -->\n";

const PROGRAMMING_LATENCY_TEXT: &str = "
`contiv_network_programming_duration_seconds` begins with the receipt of the store's message, before any waiting in the agent; if
one call applies several changes, the oldest one counts. With a folder of manifests it begins when the files have been read.
`contiv_network_programming_since_trigger_seconds` is the metric of kube-proxy: it begins with the change of a pod or service that
changed an endpoint slice, which Kubernetes records in the annotation `endpoints.kubernetes.io/last-change-trigger-time`, and the
reflector copies. Slices without it do not count, nor changes before the start of the agent. It depends on the clocks of two
machines.
";

const SCRAPES_TEXT: &str = "
## Scrapes from other machines

The debug HTTP is only for this machine. `metrics-listen` serves `/metrics` at a separate address, and nothing else of it:

```toml
metrics-listen = \"0.0.0.0:10249\"
metrics-cert-file = \"/etc/contiv/metrics/tls.crt\"
metrics-key-file = \"/etc/contiv/metrics/tls.key\"
metrics-token-review = true
```

- With both files it uses TLS. They are checked at each connection, so a renewed certificate needs no restart; while they are
  invalid, the previous ones stay in use, and the log says so.
- `metrics-token-file` has bearer tokens, one a line: a scrape needs one of them. It is read at each scrape.
- `metrics-token-review` asks the API server of a `kube:` store, as kube-rbac-proxy does: by a TokenReview for the user of the
  token, and by a SubjectAccessReview whether the user may `get` the path `/metrics`. An answer is used for 10 s. The chart gives
  the agent the permission for reviews; Prometheus needs a ClusterRole with `nonResourceURLs: [/metrics]` and `verbs: [get]`.
- Errors: 401 without a known token, 403 if its user (in the response) has no permission, 503 if the API server or the file
  cannot be read. Of both kinds of tokens one suffices.
- While another program, as kube-proxy, uses the address, the agent retries.
";

const KUBE_PROXY_TEXT: &str = "
## Under kube-proxy's names

With `kube-proxy-metrics` dashboards, alerts and recording rules for kube-proxy keep working: these metrics have the names, types,
labels and buckets that Kubernetes 1.34 to 1.36 documents. Their values are of the renderer `nftables`, or without it of the first
renderer.

They are served where kube-proxy serves them, at `127.0.0.1:10249`, or at `metrics-listen` if that is set. As there, `/healthz` answers
`ok`, and `/proxyMode` the name of that renderer: `nftables`, as kube-proxy in that mode. These two need no token.

| metric | value |
|---|---|
| `kubeproxy_sync_proxy_rules_duration_seconds{ip_family}` | each successful call of the renderer, for the families of the changed services, and for both at a resync or a repair. One call programs both in one transaction |
| `kubeproxy_sync_full_proxy_rules_duration_seconds{ip_family}`, `…_partial_…` | a resync is full; changes and repairs are partial |
| `kubeproxy_network_programming_duration_seconds{ip_family}` | as `contiv_network_programming_since_trigger_seconds`: one value for each call, of its oldest trigger time; kube-proxy has one for each slice. The first snapshot has none |
| `kubeproxy_sync_proxy_rules_last_timestamp_seconds{ip_family}` | time of the last such call |
| `kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds{ip_family}` | time when the renderer last got work. kube-proxy syncs every 30 s even if nothing changes; contiv does not, so an alert on the age alone fires in a quiet cluster: compare the two |
| `kubeproxy_sync_proxy_rules_endpoint_changes_total`, `…_service_changes_total` | received changes of endpoint slices (and endpoints), and of services; each object of a list is one, as with kube-proxy |
| `kubeproxy_sync_proxy_rules_endpoint_changes_pending`, `…_service_changes_pending` | the part of them that the renderer has not applied yet |
| `kubeproxy_sync_proxy_rules_no_local_endpoints_total{ip_family,traffic_policy}` | ports with endpoints, but none on this node, with policy Local (`internal`, `external`) |
| `kubeproxy_sync_proxy_rules_nftables_sync_failures_total{ip_family}` | failed calls of the renderer |
| `kubeproxy_conntrack_reconciler_sync_duration_seconds{ip_family}`, `…_deleted_entries_total` | searches for stale flows, and the deleted flows: also of TCP and SCTP, while kube-proxy searches UDP only |
| `kubeproxy_proxy_healthz_total{code}`, `kubeproxy_proxy_livez_total{code}` | responses at `healthz-listen` |

Not exported: `kubeproxy_sync_proxy_rules_iptables_*` and `kubeproxy_iptables_*`, since there is no iptables;
`kubeproxy_sync_proxy_rules_nftables_cleanup_failures_total`, since the same transaction cleans up;
`rest_client_*`, `workqueue_*`, `go_*` and `kubernetes_build_info`, metrics of Kubernetes' own programs.
";

const TRACES_TEXT: &str = "
## Traces

With `otlp-endpoint` (or the standard `OTEL_EXPORTER_OTLP_ENDPOINT`) the agent sends a trace of each change to an
OpenTelemetry collector, by OTLP over HTTP (`http://127.0.0.1:4318`, or `https://…`), within two seconds:

| span | from, until | attributes |
|---|---|---|
| the kind of event, as in `change` | receipt of the store's event, end of the last renderer call | `contiv.event.seq_num`, `.description`; `contiv.store.revision`; `contiv.services.changed`, and `contiv.services`: the first 20 names; `contiv.pending`: renderers unfinished after 30 s |
| `combine` | the work of the node core: decoding, cache, changed services | `contiv.duration_ms` |
| `render nftables`, … | the call of a renderer. Its event `transaction` is the time when the change was sent to the kernel | `contiv.duration_ms`, `contiv.sent_after_ms`, `contiv.added`, `.removed`, `.transactions`, `.bytes`, `.rejected`; `contiv.applied_with`: the first event of the same call |

If a renderer fails, its span and the trace are errors. Spans that the collector does not accept are sent again as long as the
event history has them. `OTEL_EXPORTER_OTLP_HEADERS` sets headers, such as a token; `OTEL_RESOURCE_ATTRIBUTES` adds to `service.name`, `service.version`, `service.instance.id` and `k8s.node.name`.

With `otlp-flows` what `contiv flows -w` tells from then on is sent each second as log records `contiv.flow`: `client.*`, `server.*`,
`network.peer.*` (the backend), `network.local.*` (the source that it sees), `network.transport`, `k8s.namespace.name`,
`k8s.service.name`, `contiv.flow.*`. A refused connection is an ERROR, an unanswered one a WARN, with `error.type`. Of over 1,000 a
second a sample is sent; those to the collector are not. `contiv.flow.notice` says what is a sample or missing, as what the collector
has not accepted within 20 s.
";

/// All metrics, with one value for each label.
fn metrics() -> String {
    let text = Metrics::with_examples()
        .text(Exposition::OpenMetrics)
        .unwrap_or_default();
    let mut page = format!(
        "# Metrics\n\nFor operators who collect metrics and write alerts.\n\n{GENERATED_NOTICE}\n`GET /metrics` of the [debug HTTP](debug-http.md) has these metrics, and so has `metrics-listen` (below): in Prometheus' text format, \
         or OpenMetrics 1.0 if requested, compressed if the client accepts it. \
         The network-programming metrics have kube-proxy's names with the prefix `contiv_`, and the labels \
         `namespace` and `service` are those of kube-state-metrics. \
         [examples/monitoring](../../examples/monitoring/) has alerts and a dashboard for them.\n\n\
         | metric | type | meaning |\n|---|---|---|\n"
    );
    let words = |line: &str| line.splitn(4, ' ').map(str::to_owned).collect::<Vec<_>>();
    for help in text
        .lines()
        .filter(|line| line.starts_with("# HELP "))
        .map(words)
    {
        let (name, what) = (&help[2], help[3].trim_end_matches('.'));
        let kind = text
            .lines()
            .find_map(|line| line.strip_prefix(&format!("# TYPE {name} ")))
            .unwrap_or("");
        let labels = labels(name, &text);
        if name.starts_with("kubeproxy_") {
            continue;
        }
        let suffix = if kind == "counter" { "_total" } else { "" };
        // Writing to a `String` cannot fail.
        let _ = writeln!(page, "| `{name}{suffix}{labels}` | {kind} | {what} |");
    }
    page.push_str(
        "\nA histogram `X` has the series `X_bucket`, `X_sum` and `X_count`. `contiv_service_connections_total` and \
         `contiv_service_refused_connections_total` exist only with `service-counters` above 0. Their sum are the attempts to \
         connect ([what counts](debug-http.md#attempts)); they restart at zero with the kernel's counters: the first when the \
         number of backends of a service changes, the second after a day without a refused attempt, both when the table is \
         created again.\n",
    );
    page.push_str(PROGRAMMING_LATENCY_TEXT);
    page.push_str(SCRAPES_TEXT);
    page.push_str(KUBE_PROXY_TEXT);
    page.push_str(TRACES_TEXT);
    page
}

/// The labels of a metric, in braces, without those of histograms.
fn labels(name: &str, text: &str) -> String {
    let sample = text.lines().find(|line| {
        let rest = line.strip_prefix(name).map(|rest| {
            rest.trim_start_matches("_total")
                .trim_start_matches("_bucket")
        });
        rest.is_some_and(|rest| rest.starts_with('{'))
    });
    let inner = sample
        .and_then(|line| line.split_once('{')?.1.split_once('}'))
        .map_or("", |(inner, _)| inner);
    let names: Vec<&str> = inner
        .split(',')
        .filter_map(|label| label.split_once('='))
        .map(|(name, _)| name)
        .collect();
    let names: Vec<&str> = names.into_iter().filter(|name| *name != "le").collect();
    if names.is_empty() {
        String::new()
    } else {
        format!("{{{}}}", names.join(","))
    }
}

/// All keys of both files.
fn configuration() -> anyhow::Result<String> {
    let mut page = format!(
        "# Configuration\n\nFor operators: all settings with their defaults.\n\n{GENERATED_NOTICE}\nEach key of a file is a flag of the command too (`--KEY`), and an environment \
         variable, which counts as unset if it is empty. Flags override the environment, the environment overrides the file, \
         and the file the defaults. Unknown keys are errors. `--check-config` prints the effective configuration, or its errors.\n"
    );
    page.push_str(
        "\n## `contiv agent`\n\n`/etc/contiv/agent.toml`; [the same with comments](../../systemd/agent.toml), to edit.\n\n",
    );
    keys::<Config>(&Config::default().to_toml()?, &mut page)?;
    page.push_str(
        "\n## `contiv controller`\n\n`/etc/contiv/controller.toml`; [the same with comments](../../systemd/controller.toml), \
         to edit.\n\n",
    );
    keys::<ControllerConfig>(&ControllerConfig::default().to_toml()?, &mut page)?;
    Ok(page)
}

/// The keys in the order of the flags, with the defaults that this TOML has.
fn keys<T: Args>(defaults: &str, page: &mut String) -> anyhow::Result<()> {
    let defaults: toml::Table = toml::from_str(defaults)?;
    page.push_str("| key | default | environment | meaning |\n|---|---|---|---|\n");
    let command = T::augment_args_for_update(Command::new("keys"));
    for argument in command.get_arguments() {
        let Some(key) = argument.get_long() else {
            continue;
        };
        let default = defaults
            .get(key)
            .map(ToString::to_string)
            .unwrap_or_default();
        let variable = argument
            .get_env()
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default();
        let help = argument
            .get_help()
            .map(ToString::to_string)
            .unwrap_or_default();
        let help = help.replace('|', "\\|").replace('\n', " ");
        // Writing to a `String` cannot fail.
        let _ = writeln!(page, "| `{key}` | `{default}` | `{variable}` | {help} |");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;

    #[test]
    fn reference_pages_match_the_code() {
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/users");
        for (name, text) in [
            ("metrics.md", metrics()),
            ("configuration.md", configuration().unwrap()),
        ] {
            let stored = fs::read_to_string(docs.join(name)).unwrap();
            assert!(
                stored == text,
                "docs/users/{name} is out of date: run scripts/reference. It should be:\n{text}"
            );
        }
    }

    #[test]
    fn alerts_and_dashboard_use_metrics_that_exist() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/monitoring");
        let known = metrics();
        let mut used = 0;
        for name in ["alerts.yml", "alerts-test.yml", "dashboard.json"] {
            let text = fs::read_to_string(folder.join(name)).unwrap();
            let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
            for word in words.filter(|word| word.starts_with("contiv_")) {
                used += 1;
                let metric = word.trim_end_matches("_bucket");
                let is_known = ["`", "{"]
                    .iter()
                    .any(|end| known.contains(&format!("`{metric}{end}")));
                assert!(is_known, "{name} uses {word}");
            }
        }
        assert!(used > 20, "{used}");
        let dashboard = fs::read_to_string(folder.join("dashboard.json")).unwrap();
        let dashboard: serde_json::Value = serde_json::from_str(&dashboard).unwrap();
        let mut panels = dashboard["panels"].as_array().unwrap().iter();
        assert!(panels.all(|panel| panel["targets"][0]["expr"].is_string()));
    }
}
