//! etcd's own record of who wrote what, and who held the lease then.

use std::{collections::BTreeSet, process::Command};

use contiv_tests::{
    cluster::{EtcdClient, ROOT},
    lab::{Lab, LabError, Process, Result, wait_for},
};
use serde_json::Value;

use crate::fleet::{ELECTION, SOON};

/// The annotation by which a slice says in which term it was written.
const TERM: &str = "contiv.io/term";
/// What ends the record.
const END: &str = "/end-of-test";

/// One change in etcd, as `etcdctl watch --write-out=fields` prints it.
#[derive(Debug, Clone, Default)]
struct Change {
    is_put: bool,
    key: String,
    create_revision: i64,
    value: String,
}

/// Reads everything that ever happened, and checks that each slice was written by the instance that held the lease at that
/// moment, in that very term. Returns how many slices were written in how many terms.
pub(crate) fn check(lab: &Lab, etcd: &EtcdClient<'_>) -> Result<(usize, usize)> {
    etcd.put_value(END, "end")?;
    let mut command = Command::new("env");
    command.args(["ETCDCTL_API=3", "etcdctl", "watch", "--prefix", "/", "--rev=1", "--write-out=fields"]);
    let watch = Process::start(&lab.node, "etcd-history", &mut command)?;
    let text = wait_for("the record has been read", SOON, || {
        let text = watch.log();
        // The whole change, and not only its key.
        let (_, after) = text.split_once(&format!("\"Key\" : \"{END}\""))?;
        after.contains("\"Lease\"").then_some(text)
    })?;
    verify(&parse(&text)?)
}

fn verify(changes: &[Change]) -> Result<(usize, usize)> {
    let slices = format!("{ROOT}/endpointslice/");
    let mut holder = None;
    let (mut written, mut terms) = (0, BTreeSet::new());
    for change in changes {
        if change.key == ELECTION {
            if change.is_put && holder.is_some() {
                return Err(LabError::Unexpected(format!("won while another one held it: {change:?}")));
            }
            holder = change.is_put.then_some(change.create_revision);
        } else if change.key.starts_with(&slices) {
            // A deletion cannot say who made it; that somebody held the lease is what can be seen.
            let writer = if change.is_put { term(&change.value) } else { holder };
            if writer.is_none() || writer != holder {
                return Err(LabError::Unexpected(format!("written in no term or another one: {change:?}")));
            }
            written += 1;
            terms.extend(holder);
        }
    }
    Ok((written, terms.len()))
}

fn term(value: &str) -> Option<i64> {
    let slice: Value = serde_json::from_str(value).ok()?;
    slice["annotations"][TERM].as_str()?.parse().ok()
}

fn parse(text: &str) -> Result<Vec<Change>> {
    let mut changes: Vec<Change> = Vec::new();
    for line in text.lines() {
        let Some((name, value)) = line.split_once(" : ") else { continue };
        if name == "\"Type\"" {
            changes.push(Change { is_put: value == "PUT", ..Change::default() });
        }
        let Some(change) = changes.last_mut() else { continue };
        // Go quotes text as JSON does, as long as it is ASCII.
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
        Change { is_put, key: key.to_owned(), create_revision, value: value.to_owned() }
    }

    #[test]
    fn the_proof_finds_a_slice_that_was_written_outside_of_its_term() {
        let slice = format!("{ROOT}/endpointslice/a/namespace/default");
        let of = |term: i64| change(true, &slice, 1, &format!(r#"{{"annotations":{{"{TERM}":"{term}"}}}}"#));
        let (won, lost) = (change(true, ELECTION, 2, "a 7f"), change(false, ELECTION, 0, ""));
        let again = change(true, ELECTION, 9, "b 80");
        let gone = change(false, &slice, 0, "");
        let good = [won.clone(), of(2), gone.clone(), lost.clone(), again.clone(), of(9)];
        assert_eq!(verify(&good).ok(), Some((3, 2)));
        for wrong in [
            vec![of(2), won.clone()],
            vec![won.clone(), lost.clone(), of(2)],
            vec![won.clone(), lost.clone(), again.clone(), of(2)],
            vec![won.clone(), again],
            vec![won.clone(), lost, gone],
            vec![won, change(true, &slice, 1, "{}")],
        ] {
            assert!(verify(&wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn what_etcdctl_prints_is_understood() -> Result<()> {
        let printed = "\"ClusterID\" : 1\n\"Type\" : PUT\n\"Key\" : \"/a\"\n\"CreateRevision\" : 3\n\
            \"Value\" : \"{\\\"a\\\":1}\"\n\"Lease\" : 0\n\"Type\" : DELETE\n\"Key\" : \"/b\"\n";
        let changes = parse(printed)?;
        assert_eq!(changes.len(), 2);
        assert_eq!((changes[0].value.as_str(), changes[0].create_revision), ("{\"a\":1}", 3));
        assert!(changes[0].is_put && !changes[1].is_put && changes[1].key == "/b");
        Ok(())
    }
}
