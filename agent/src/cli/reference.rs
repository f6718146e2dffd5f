//! `contiv reference`: pages of the documentation generated from the code.

use std::{fmt::Write as _, io::Write};

use clap::{Args, Command, ValueEnum};

use super::{Outcome, Terminal};
use crate::{
    config::{Config, Settings as _, controller::ControllerConfig},
    metrics::{Exposition, Metrics},
};

/// Print a page of the documentation that is generated from the code
///
/// Exit codes: 0 success; 1 it cannot be printed; 2 wrong usage.
#[derive(Debug, Args)]
#[command(hide = true)]
pub(super) struct Reference {
    page: Page,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Page {
    /// docs/metrics.md
    Metrics,
    /// docs/configuration.md
    Configuration,
}

impl Reference {
    pub(super) fn run(self, terminal: &mut Terminal) -> anyhow::Result<Outcome> {
        let text = match self.page {
            Page::Metrics => metrics(),
            Page::Configuration => configuration()?,
        };
        terminal.out.write_all(text.as_bytes())?;
        Ok(Outcome::Success)
    }
}

const WRITTEN: &str =
    "<!-- Written by scripts/reference from the code; a test fails when it is out of date. -->\n";

const PROGRAMMING: &str = "
`contiv_network_programming_duration_seconds` begins when the agent has read the message of the store, before it waits for anything
of the agent; of changes that one call applies together, the first one counts. With a folder of manifests it begins when the
files have been read. `contiv_network_programming_since_trigger_seconds` is what kube-proxy measures: it begins when the pod or
service changed that made an endpoint slice change. Kubernetes says so by the annotation
`endpoints.kubernetes.io/last-change-trigger-time`, which the reflector hands on; slices without it are not counted, nor those of
before the agent began. The clocks of two machines are in it.
";

const SCRAPES: &str = "
## Scrapes from other machines

The debug HTTP is for this machine. `metrics-listen` serves `/metrics` on an address of its own, and nothing else:

```toml
metrics-listen = \"0.0.0.0:10249\"
metrics-cert-file = \"/etc/contiv/metrics/tls.crt\"
metrics-key-file = \"/etc/contiv/metrics/tls.key\"
metrics-token-review = true
```

- Both files make it TLS. They are looked at with each connection and read again when they have changed, so a renewed certificate
  needs no restart; while they do not fit, the ones before stay in use, and the log says so.
- `metrics-token-file` names a file with bearer tokens, one a line: a scrape needs one of them. It is read each time.
- `metrics-token-review` asks the API server of a `kube:` store, as kube-rbac-proxy does: a TokenReview for whose the token is, a
  SubjectAccessReview for whether they may `get` the path `/metrics`. An answer counts for 10 s. The chart gives the agent the
  right to ask; Prometheus needs a ClusterRole with `nonResourceURLs: [/metrics]` and `verbs: [get]`.
- 401 means that no known token came, 403 that its owner may not (the answer names them), 503 that the API server or the file
  could not be asked. With both kinds of tokens one is enough.
- While another program has the address, as kube-proxy has 10249, it is tried until it is free.
";

const KUBE_PROXY: &str = "
## Under kube-proxy's names

With `kube-proxy-metrics` dashboards, alerts and recording rules for kube-proxy go on: these have the names, types, labels and
buckets that Kubernetes 1.34 to 1.36 documents, and the values of this agent. They are those of the renderer of this node's traffic,
which is `nftables` where it runs.

| metric | here |
|---|---|
| `kubeproxy_sync_proxy_rules_duration_seconds{ip_family}` | each call of the renderer that succeeded, in the families that it concerned: those of the services that changed, and both for a resync or a repair. One call programs both in one transaction |
| `kubeproxy_sync_full_proxy_rules_duration_seconds{ip_family}`, `…_partial_…` | a resync is full; changes and repairs are partial |
| `kubeproxy_network_programming_duration_seconds{ip_family}` | as `contiv_network_programming_since_trigger_seconds`: one value a call, of its oldest trigger time; kube-proxy has one for each slice. The first snapshot has none |
| `kubeproxy_sync_proxy_rules_last_timestamp_seconds{ip_family}` | when such a call last succeeded |
| `kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds{ip_family}` | when the renderer last got work. kube-proxy has a sync every 30 s even if nothing changes; here there is none then, so an alert on the age alone fires in a quiet cluster: compare the two |
| `kubeproxy_sync_proxy_rules_endpoint_changes_total`, `…_service_changes_total` | changes of endpoint slices (and endpoints), and of services, that the store has told of; each object of a list is one, as with kube-proxy |
| `kubeproxy_sync_proxy_rules_endpoint_changes_pending`, `…_service_changes_pending` | those of them that the renderer has not applied |
| `kubeproxy_sync_proxy_rules_no_local_endpoints_total{ip_family,traffic_policy}` | ports with endpoints, of which the policy Local (`internal`, `external`) leaves none to this node |
| `kubeproxy_sync_proxy_rules_nftables_sync_failures_total{ip_family}` | calls of the renderer that failed |
| `kubeproxy_conntrack_reconciler_sync_duration_seconds{ip_family}`, `…_deleted_entries_total` | searches for stale flows, and the flows that they deleted: also TCP and SCTP, where kube-proxy looks at UDP alone |
| `kubeproxy_proxy_healthz_total{code}`, `kubeproxy_proxy_livez_total{code}` | answers at `healthz-listen` |

Not here: `kubeproxy_sync_proxy_rules_iptables_*` and `kubeproxy_iptables_*`, since there is no iptables;
`kubeproxy_sync_proxy_rules_nftables_cleanup_failures_total`, since nothing is cleaned up later than in the same transaction;
`rest_client_*`, `workqueue_*`, `go_*` and `kubernetes_build_info`, which are of Kubernetes' own programs.
";

const TRACES: &str = "
## Traces

With `otlp-endpoint` (or the standard `OTEL_EXPORTER_OTLP_ENDPOINT`) the agent sends a trace of each change to an
OpenTelemetry collector, by OTLP over HTTP (`http://127.0.0.1:4318`, or `https://…`), within a second or two:

| span | from, until | attributes |
|---|---|---|
| the kind of event, as in `change` | the store's event was taken up, the last renderer was done | `contiv.event.seq_num`, `.description`; `contiv.store.revision`; `contiv.services.changed`, and `contiv.services`: the first 20 names; `contiv.pending`: renderers that are not done after 30 s |
| `combine` | the node core's work: decoding, the cache, which services are different now | `contiv.duration_ms` |
| `render nftables`, … | the call of a renderer. Its event `transaction` is when the kernel was given the change | `contiv.duration_ms`, `contiv.sent_after_ms`, `contiv.added`, `.removed`, `.transactions`, `.bytes`, `.rejected`; `contiv.applied_with`: the first event of the same call |

A renderer that failed makes its span and the whole trace an error. Spans are made afterwards, of the event history: a change is
not slower with them, and what the collector does not take is sent again as long as the history has it. Headers, as for a
token, are those of `OTEL_EXPORTER_OTLP_HEADERS`; `OTEL_RESOURCE_ATTRIBUTES` adds to `service.name`, `service.version`,
`service.instance.id` and `k8s.node.name`.
";

/// All metrics, with one value for each label.
fn metrics() -> String {
    let text = Metrics::with_examples().text(Exposition::OpenMetrics).unwrap_or_default();
    let mut page = format!(
        "# Metrics\n\nFor operators who collect metrics, and write alerts on them.\n\n{WRITTEN}\n`GET /metrics` of the [debug HTTP](debug-http.md) has these, and so has `metrics-listen` (below): in the text form of Prometheus, \
         or of OpenMetrics 1.0 for those who ask for it, compressed for those who take it. \
         Names are those of the field where they exist: the network-programming ones are kube-proxy's with our prefix, and labels \
         `namespace` and `service` are those of kube-state-metrics. \
         [examples/monitoring](../examples/monitoring/) has alerts and a dashboard on them.\n\n\
         | metric | type | what |\n|---|---|---|\n"
    );
    let words = |line: &str| line.splitn(4, ' ').map(str::to_owned).collect::<Vec<_>>();
    for help in text.lines().filter(|line| line.starts_with("# HELP ")).map(words) {
        let (name, what) = (&help[2], help[3].trim_end_matches('.'));
        let kind = text.lines().find_map(|line| line.strip_prefix(&format!("# TYPE {name} "))).unwrap_or("");
        let labels = labels(name, &text);
        if name.starts_with("kubeproxy_") {
            continue;
        }
        let suffix = if kind == "counter" { "_total" } else { "" };
        // Writing to text does not fail.
        let _ = writeln!(page, "| `{name}{suffix}{labels}` | {kind} | {what} |");
    }
    page.push_str(
        "\nA histogram `X` has the series `X_bucket`, `X_sum` and `X_count`. `contiv_service_connections_total` is there only \
         with `service-counters` above 0, and begins anew when the kernel does: where the number of backends of a service \
         changes, and where the table is made anew.\n",
    );
    page.push_str(PROGRAMMING);
    page.push_str(SCRAPES);
    page.push_str(KUBE_PROXY);
    page.push_str(TRACES);
    page
}

/// The labels of a metric, in braces, without those of histograms.
fn labels(name: &str, text: &str) -> String {
    let sample = text.lines().find(|line| {
        let rest = line
            .strip_prefix(name)
            .map(|rest| rest.trim_start_matches("_total").trim_start_matches("_bucket"));
        rest.is_some_and(|rest| rest.starts_with('{'))
    });
    let inner =
        sample.and_then(|line| line.split_once('{')?.1.split_once('}')).map_or("", |(inner, _)| inner);
    let names: Vec<&str> =
        inner.split(',').filter_map(|label| label.split_once('=')).map(|(name, _)| name).collect();
    let names: Vec<&str> = names.into_iter().filter(|name| *name != "le").collect();
    if names.is_empty() { String::new() } else { format!("{{{}}}", names.join(",")) }
}

/// All keys of both files.
fn configuration() -> anyhow::Result<String> {
    let mut page = format!(
        "# Configuration\n\nFor operators who change a setting: all keys, with their defaults.\n\n{WRITTEN}\nEach key of a file is a flag of the command too (`--KEY`), and an environment \
         variable, which counts as unset where it is empty. Flags win over the environment, the environment over the file, \
         the file over the defaults. Unknown keys are errors. `--check-config` prints what is in effect, or what is wrong.\n"
    );
    page.push_str(
        "\n## `contiv agent`\n\n`/etc/contiv/agent.toml`; [the same with comments](../systemd/agent.toml), to edit.\n\n",
    );
    keys::<Config>(&Config::default().to_toml()?, &mut page)?;
    page.push_str(
        "\n## `contiv controller`\n\n`/etc/contiv/controller.toml`; [the same with comments](../systemd/controller.toml), \
         to edit.\n\n",
    );
    keys::<ControllerConfig>(&ControllerConfig::default().to_toml()?, &mut page)?;
    Ok(page)
}

/// The keys in the order of the flags, with the defaults that this TOML has.
fn keys<T: Args>(defaults: &str, page: &mut String) -> anyhow::Result<()> {
    let defaults: toml::Table = toml::from_str(defaults)?;
    page.push_str("| key | default | environment | what |\n|---|---|---|---|\n");
    let command = T::augment_args_for_update(Command::new("keys"));
    for argument in command.get_arguments() {
        let Some(key) = argument.get_long() else { continue };
        let default = defaults.get(key).map(ToString::to_string).unwrap_or_default();
        let variable = argument.get_env().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
        let help = help.replace('|', "\\|").replace('\n', " ");
        // Writing to text does not fail.
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
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
        for (name, text) in [("metrics.md", metrics()), ("configuration.md", configuration().unwrap())] {
            let stored = fs::read_to_string(docs.join(name)).unwrap();
            assert!(
                stored == text,
                "docs/{name} is out of date: run scripts/reference. It should be:\n{text}"
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
                let is_known = ["`", "{"].iter().any(|end| known.contains(&format!("`{metric}{end}")));
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
