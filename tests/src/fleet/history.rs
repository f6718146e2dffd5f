//! etcd's history of all writes, and who held the lease at each.

use std::{
    collections::{BTreeMap, BTreeSet},
    process::Command,
};

use serde_json::Value;

use super::{ELECTION, EVENT_TIMEOUT};
use crate::{
    cluster::EtcdClient,
    lab::{Lab, LabError, Process, Result, wait_for},
};

/// The annotation with the term in which a slice was written.
const TERM: &str = "contiv.io/term";
/// The key that ends the history.
const END: &str = "/end-of-test";

/// All changes of an etcd.
#[derive(Debug)]
pub struct History(Vec<Change>);

/// One change in etcd, as `etcdctl watch --write-out=fields` prints it.
#[derive(Debug, Clone, Default)]
struct Change {
    is_put: bool,
    key: String,
    create_revision: i64,
    value: String,
}

/// The number of writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteStats {
    /// Puts and deletions.
    pub writes: usize,
    /// The number of terms.
    pub terms: usize,
}

impl History {
    /// Reads the history.
    pub fn read(lab: &Lab, etcd: &EtcdClient<'_>) -> Result<Self> {
        etcd.put_value(END, "end")?;
        let mut command = Command::new("env");
        command.args([
            "ETCDCTL_API=3",
            "etcdctl",
            "watch",
            "--prefix",
            "/",
            "--rev=1",
            "--write-out=fields",
        ]);
        let watch = Process::start(&lab.node, "etcd-history", &mut command)?;
        let text = wait_for("the record has been read", EVENT_TIMEOUT, || {
            let text = watch.log();
            // The whole change, not only its key.
            let (_, after) = text.split_once(&format!("\"Key\" : \"{END}\""))?;
            after.contains("\"Lease\"").then_some(text)
        })?;
        parse(&text).map(Self)
    }

    /// Checks that each change below these prefixes was made while an instance held the lease.
    ///
    /// # Errors
    /// When one was not.
    pub fn is_of_holders(&self, prefixes: &[&str]) -> Result<WriteStats> {
        self.verify(prefixes, |_, holder| holder)
    }

    /// The same, and that each value was written by the holder: endpoint slices of external workloads contain the term in which
    /// they were written.
    ///
    /// # Errors
    /// When one was not.
    pub fn is_of_its_terms(&self, prefixes: &[&str]) -> Result<WriteStats> {
        // A deletion does not show its writer, so only that the lease was held is checked.
        self.verify(prefixes, |change, holder| {
            if change.is_put {
                term(&change.value)
            } else {
                holder
            }
        })
    }

    fn verify(
        &self,
        prefixes: &[&str],
        written_by: impl Fn(&Change, Option<i64>) -> Option<i64>,
    ) -> Result<WriteStats> {
        let mut holder = None;
        let (mut count, mut terms) = (0, BTreeSet::new());
        for change in &self.0 {
            if change.key == ELECTION {
                if change.is_put && holder.is_some() {
                    return Err(LabError::Unexpected(format!(
                        "won while another one held it: {change:?}"
                    )));
                }
                holder = change.is_put.then_some(change.create_revision);
            } else if prefixes.iter().any(|prefix| change.key.starts_with(prefix)) {
                let writer = written_by(change, holder);
                if writer.is_none() || writer != holder {
                    return Err(LabError::Unexpected(format!(
                        "written in no term or another one: {change:?}"
                    )));
                }
                count += 1;
                terms.extend(holder);
            }
        }
        Ok(WriteStats {
            writes: count,
            terms: terms.len(),
        })
    }

    /// Checks that the numbers in the values of each key below these prefixes only grow, so that outdated and repeated writes
    /// are detected. `number` reads the number of a value.
    ///
    /// # Errors
    /// When a value is not newer than one before, or has no number.
    pub fn only_goes_forward(
        &self,
        prefixes: &[&str],
        number: impl Fn(&str) -> Option<i64>,
    ) -> Result<usize> {
        let mut newest: BTreeMap<&str, i64> = BTreeMap::new();
        let is_ours =
            |change: &&Change| prefixes.iter().any(|prefix| change.key.starts_with(prefix));
        let puts: Vec<&Change> = self
            .0
            .iter()
            .filter(is_ours)
            .filter(|change| change.is_put)
            .collect();
        for change in &puts {
            let number = number(&change.value).ok_or_else(|| {
                LabError::Unexpected(format!("a value without a number: {change:?}"))
            })?;
            if newest
                .insert(&change.key, number)
                .is_some_and(|before| before >= number)
            {
                return Err(LabError::Unexpected(format!(
                    "written twice, or back to what was: {change:?}"
                )));
            }
        }
        Ok(puts.len())
    }
}

fn term(value: &str) -> Option<i64> {
    let slice: Value = serde_json::from_str(value).ok()?;
    slice["annotations"][TERM].as_str()?.parse().ok()
}

fn parse(text: &str) -> Result<Vec<Change>> {
    let mut changes: Vec<Change> = Vec::new();
    for line in text.lines() {
        let Some((name, value)) = line.split_once(" : ") else {
            continue;
        };
        if name == "\"Type\"" {
            changes.push(Change {
                is_put: value == "PUT",
                ..Change::default()
            });
        }
        let Some(change) = changes.last_mut() else {
            continue;
        };
        // Go's quoting of ASCII text is the same as JSON's.
        let quoted = || {
            serde_json::from_str::<String>(value)
                .map_err(|error| LabError::Unexpected(format!("{error} in {line}")))
        };
        match name {
            "\"Key\"" => change.key = quoted()?,
            "\"Value\"" => change.value = quoted()?,
            "\"CreateRevision\"" => change.create_revision = value.parse().unwrap_or_default(),
            _ => {}
        }
    }
    Ok(changes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(is_put: bool, key: &str, create_revision: i64, value: &str) -> Change {
        Change {
            is_put,
            key: key.to_owned(),
            create_revision,
            value: value.to_owned(),
        }
    }

    #[test]
    fn proof_finds_slice_that_was_written_outside_of_its_term() {
        let slice = "/slices/a";
        let of = |term: i64| {
            change(
                true,
                slice,
                1,
                &format!(r#"{{"annotations":{{"{TERM}":"{term}"}}}}"#),
            )
        };
        let (won, lost) = (
            change(true, ELECTION, 2, "a 7f"),
            change(false, ELECTION, 0, ""),
        );
        let again = change(true, ELECTION, 9, "b 80");
        let gone = change(false, slice, 0, "");
        let check = |changes: Vec<Change>| History(changes).is_of_its_terms(&["/slices/"]);
        let good = vec![
            won.clone(),
            of(2),
            gone.clone(),
            lost.clone(),
            again.clone(),
            of(9),
        ];
        assert_eq!(
            check(good).ok(),
            Some(WriteStats {
                writes: 3,
                terms: 2
            })
        );
        for wrong in [
            vec![of(2), won.clone()],
            vec![won.clone(), lost.clone(), of(2)],
            vec![won.clone(), lost.clone(), again.clone(), of(2)],
            vec![won.clone(), again],
            vec![won.clone(), lost, gone],
            vec![won, change(true, slice, 1, "{}")],
        ] {
            assert!(check(wrong.clone()).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn history_check_finds_duplicate_and_backward_writes() {
        let of = |key: &str, number: i64| change(true, key, 1, &number.to_string());
        let check = |changes: Vec<Change>| {
            History(changes)
                .only_goes_forward(&["/a/"], |value| value.parse().ok())
                .ok()
        };
        let gone = change(false, "/a/x", 0, "");
        assert_eq!(
            check(vec![
                of("/a/x", 1),
                of("/a/y", 1),
                gone.clone(),
                of("/a/x", 2),
                of("/b", 0)
            ]),
            Some(3)
        );
        assert_eq!(check(vec![of("/a/x", 2), of("/a/x", 1)]), None);
        assert_eq!(check(vec![of("/a/x", 2), of("/a/x", 2)]), None);
        assert_eq!(check(vec![of("/a/x", 2), gone, of("/a/x", 2)]), None);
        assert_eq!(check(vec![change(true, "/a/x", 1, "none")]), None);
    }

    #[test]
    fn etcdctl_output_is_parsed() -> Result<()> {
        let printed = "\"ClusterID\" : 1\n\"Type\" : PUT\n\"Key\" : \"/a\"\n\"CreateRevision\" : 3\n\
            \"Value\" : \"{\\\"a\\\":1}\"\n\"Lease\" : 0\n\"Type\" : DELETE\n\"Key\" : \"/b\"\n";
        let changes = parse(printed)?;
        assert_eq!(changes.len(), 2);
        assert_eq!(
            (changes[0].value.as_str(), changes[0].create_revision),
            ("{\"a\":1}", 3)
        );
        assert!(changes[0].is_put && !changes[1].is_put && changes[1].key == "/b");
        Ok(())
    }
}
