//! `contiv verify --store`: compares the objects of an agent with those of its store.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::Write,
    thread,
    time::Duration,
};

use anyhow::{Context, bail};
use contiv_proto::{Key, key};
use contiv_store::{Snapshot, Store, StoreError, StoreUrl, etcd::EtcdAccess};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::cli::{
    Outcome, Terminal,
    output::{
        color::TextStyle,
        listing::{Item, Listing, Output},
        table::Cell,
        table_options::TableOptions,
        watch::width,
    },
    source::{agent_argument::AgentArgument, decoded::decode, store},
};

/// How many times an agent is compared with a store whose state of an earlier revision cannot be read: what differs each time is
/// reported.
const COMPARISONS: usize = 3;
/// The pause between them. A change needs milliseconds.
const PAUSE: Duration = Duration::from_millis(300);

/// An agent, and the store that it reads.
#[derive(Debug)]
pub(super) struct StoreComparison<'a> {
    pub(super) agent: &'a AgentArgument,
    pub(super) store: StoreUrl,
    pub(super) access: EtcdAccess,
    /// Its node.
    pub(super) node: String,
}

/// The objects of an agent.
#[derive(Debug, Deserialize)]
struct AgentObjects {
    revision: i64,
    /// By their keys.
    objects: BTreeMap<String, Value>,
}

/// The objects of a store.
#[derive(Debug)]
struct StoredObjects {
    objects: BTreeMap<String, Value>,
    /// What cannot be used, and why; the agent may have an earlier state of it.
    unusable: BTreeMap<String, String>,
    problems: Vec<String>,
    /// Whether it is of the same revision as those of the agent.
    is_same_revision: bool,
}

/// A field that differs, or an object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
struct Difference {
    object: String,
    deviation: Deviation,
    /// Its path, if only a field differs.
    #[serde(skip_serializing_if = "String::is_empty")]
    field: String,
    /// What the agent has there, as JSON.
    #[serde(skip_serializing_if = "String::is_empty")]
    agent: String,
    /// What the store has there, as JSON.
    #[serde(skip_serializing_if = "String::is_empty")]
    store: String,
}

/// How an object differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Deviation {
    /// The agent lacks it.
    Missing,
    /// The store does not have it.
    NotStored,
    Different,
}

impl Deviation {
    const fn word(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::NotStored => "not stored",
            Self::Different => "different",
        }
    }
}

/// The result.
#[derive(Debug, Serialize)]
struct StoreReport {
    store: String,
    /// The agent's revision.
    revision: i64,
    /// Whether the store was read at that revision too.
    is_same_revision: bool,
    /// The number of compared objects.
    checked: usize,
    differences: BTreeSet<Difference>,
}

impl StoreComparison<'_> {
    pub(super) fn run(
        self,
        output: &Output,
        options: &TableOptions,
        terminal: &mut Terminal,
    ) -> anyhow::Result<Outcome> {
        if matches!(self.store, StoreUrl::Kube(_)) {
            bail!(
                "verify --store: of a Kubernetes API server the agent reads only what its node needs, and the server has no \
                 earlier revisions to compare with; `contiv resync` has the agent list it again"
            );
        }
        let (report, stored) = self.compare()?;
        for problem in stored.unusable.values().chain(&stored.problems) {
            writeln!(
                terminal.err,
                "{problem}; the agent may still use an earlier state of it, which is not compared"
            )?;
        }
        let is_good = stored.unusable.is_empty() && stored.problems.is_empty();
        let is_equal = report.differences.is_empty();
        print(&report, output, options, terminal)?;
        if !is_equal {
            writeln!(
                terminal.err,
                "Deletions may be held (see `contiv status`), or the agent has missed changes: `contiv resync` has it list the \
                 store again."
            )?;
        }
        Ok(Outcome::success_if(is_good && is_equal))
    }

    fn compare(&self) -> anyhow::Result<(StoreReport, StoredObjects)> {
        let mut confirmed: Option<BTreeSet<Difference>> = None;
        let mut number = 0;
        loop {
            number += 1;
            let agent: AgentObjects = self.agent.get("/objects")?;
            let stored = self.read_store(agent.revision)?;
            let found = differences(&agent.objects, &stored);
            let differences = match confirmed {
                Some(before) if !stored.is_same_revision => &before & &found,
                _ => found,
            };
            if differences.is_empty() || stored.is_same_revision || number == COMPARISONS {
                let report = StoreReport {
                    store: self.store.to_string(),
                    revision: agent.revision,
                    is_same_revision: stored.is_same_revision,
                    checked: stored.objects.len(),
                    differences,
                };
                return Ok((report, stored));
            }
            confirmed = Some(differences);
            thread::sleep(PAUSE);
        }
    }

    /// The store at this revision; as it is now if it cannot be read there.
    fn read_store(&self, revision: i64) -> anyhow::Result<StoredObjects> {
        let access = Ok(self.access.clone());
        let listed = store::run_with(&self.store, access, Some(&self.node), async |store| {
            list(&*store, revision).await.context("the store")
        })?;
        let (snapshot, is_same_revision) = listed;
        let problems = snapshot.problems.iter();
        let problems = problems
            .filter(|problem| !problem.is_warning)
            .map(ToString::to_string);
        let problems = problems.collect();
        let (objects, unusable) = decode(&self.store, snapshot);
        let as_json = |(key, object)| Ok((key, serde_json::to_value(object)?));
        Ok(StoredObjects {
            objects: objects
                .into_iter()
                .map(as_json)
                .collect::<serde_json::Result<_>>()?,
            unusable,
            problems,
            is_same_revision,
        })
    }
}

async fn list(store: &dyn Store, revision: i64) -> Result<(Snapshot, bool), StoreError> {
    match store.list_at(key::ROOT, revision).await {
        Ok(snapshot) => Ok((snapshot, true)),
        Err(
            StoreError::Compacted { .. } | StoreError::Rewound { .. } | StoreError::Refused { .. },
        ) => Ok((store.list(key::ROOT).await?, false)),
        Err(error) => Err(error),
    }
}

/// Compares objects by their keys. Those that cannot be used are left out.
fn differences(agent: &BTreeMap<String, Value>, stored: &StoredObjects) -> BTreeSet<Difference> {
    let keys: BTreeSet<&String> = agent.keys().chain(stored.objects.keys()).collect();
    let mut all = BTreeSet::new();
    for key in keys {
        let whole = |deviation| Difference {
            object: title(key),
            deviation,
            field: String::new(),
            agent: String::new(),
            store: String::new(),
        };
        match (agent.get(key), stored.objects.get(key)) {
            (Some(used), Some(stored)) => compare_fields(used, stored, "", &mut |field, pair| {
                all.insert(Difference {
                    field: field.to_owned(),
                    agent: text(pair.0),
                    store: text(pair.1),
                    ..whole(Deviation::Different)
                });
            }),
            (Some(_), None) if !stored.unusable.contains_key(key) => {
                all.insert(whole(Deviation::NotStored));
            }
            (None, Some(_)) => {
                all.insert(whole(Deviation::Missing));
            }
            _ => {}
        }
    }
    all
}

/// Calls `report` with the path of each value that differs, and both values.
fn compare_fields<'a>(
    agent: &'a Value,
    stored: &'a Value,
    path: &str,
    report: &mut dyn FnMut(&str, (&'a Value, &'a Value)),
) {
    match (agent, stored) {
        (Value::Object(used), Value::Object(stored)) => {
            let names: BTreeSet<&String> = used.keys().chain(stored.keys()).collect();
            for name in names {
                let of = |fields: &'a serde_json::Map<String, Value>| {
                    fields.get(name).unwrap_or(&Value::Null)
                };
                let separator = if path.is_empty() { "" } else { "." };
                compare_fields(
                    of(used),
                    of(stored),
                    &format!("{path}{separator}{name}"),
                    report,
                );
            }
        }
        (Value::Array(used), Value::Array(stored)) if used.len() == stored.len() => {
            for (number, (used, stored)) in used.iter().zip(stored).enumerate() {
                compare_fields(used, stored, &format!("{path}[{number}]"), report);
            }
        }
        _ if agent != stored => report(path, (agent, stored)),
        _ => {}
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        value => value.to_string(),
    }
}

/// The object of a key, for people.
fn title(path: &str) -> String {
    match Key::parse(path) {
        Ok(Some(key)) => key.to_string(),
        _ => path.to_owned(),
    }
}

fn print(
    report: &StoreReport,
    output: &Output,
    options: &TableOptions,
    terminal: &mut Terminal,
) -> anyhow::Result<()> {
    match output {
        Output::Data(format) => {
            let text = format.print(serde_json::to_value(report)?, options.no_headers)?;
            write!(terminal.out, "{text}")?;
        }
        Output::Name => {
            let names: BTreeSet<&String> =
                report.differences.iter().map(|one| &one.object).collect();
            for name in names {
                writeln!(terminal.out, "{name}")?;
            }
        }
        Output::Table | Output::Wide => {
            let header = ["WHAT", "OBJECT", "FIELD", "AGENT", "STORE"].to_vec();
            let listing = Listing {
                header: (header, Vec::new()),
                items: report.differences.iter().map(item).collect(),
            };
            let table = listing.print(output, options, width(), false)?;
            write!(terminal.out, "{table}")?;
            let StoreReport {
                revision, checked, ..
            } = report;
            let at = if report.is_same_revision {
                format!("at revision {revision}")
            } else {
                "with the store as it is now".to_owned()
            };
            let result = match report.differences.len() {
                0 => "all equal".to_owned(),
                count => format!("{count} different"),
            };
            writeln!(terminal.out, "store: {checked} compared {at}, {result}")?;
        }
    }
    Ok(())
}

fn item(difference: &Difference) -> Item {
    let or_none = |text: &str| {
        if text.is_empty() {
            "-".to_owned()
        } else {
            text.to_owned()
        }
    };
    let cells = vec![
        Cell::styled(difference.deviation.word(), TextStyle::Bad),
        difference.object.clone().into(),
        or_none(&difference.field).into(),
        or_none(&difference.agent).into(),
        or_none(&difference.store).into(),
    ];
    Item {
        name: difference.object.clone(),
        value: Value::Null,
        cells: (cells, Vec::new()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const WEB: &str = "/vnf-agent/contiv-ksr/k8s/service/web/namespace/default";

    fn objects(all: &[(&str, Value)]) -> BTreeMap<String, Value> {
        all.iter()
            .map(|(key, value)| ((*key).to_owned(), value.clone()))
            .collect()
    }

    fn stored(all: &[(&str, Value)]) -> StoredObjects {
        StoredObjects {
            objects: objects(all),
            unusable: BTreeMap::from([("/bad".to_owned(), "no JSON".to_owned())]),
            problems: Vec::new(),
            is_same_revision: true,
        }
    }

    #[test]
    fn each_field_that_differs_is_named_with_both_values() {
        let service = |port: u16, ip: &str, more: &[u16]| json!({ "ports": [{ "port": port }], "ip": ip, "more": more });
        let agent = objects(&[(WEB, service(80, "10.0.0.1", &[1]))]);
        let found = differences(&agent, &stored(&[(WEB, service(81, "10.0.0.1", &[1, 2]))]));
        let found: Vec<_> = found
            .iter()
            .map(|one| (&*one.object, &*one.field, &*one.agent, &*one.store))
            .collect();
        assert_eq!(
            found,
            [
                ("service default/web", "more", "[1]", "[1,2]"),
                ("service default/web", "ports[0].port", "80", "81")
            ]
        );
    }

    #[test]
    fn missing_and_unstored_objects_differ_and_unusable_ones_do_not() {
        let agent = objects(&[("/gone", json!(1)), ("/bad", json!(1)), ("/same", json!(1))]);
        let found = differences(&agent, &stored(&[("/new", json!(1)), ("/same", json!(1))]));
        let found: Vec<_> = found
            .iter()
            .map(|one| (&*one.object, one.deviation))
            .collect();
        assert_eq!(
            found,
            [
                ("/gone", Deviation::NotStored),
                ("/new", Deviation::Missing)
            ]
        );
    }
}
