//! Reads the table with contiv's own reader and with the program `nft`, and compares the results.

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Context, bail};
use contiv_renderer::{
    Deviation, Drift, NftOutput, TableListing, Verification, nftables::TableVerifier,
};

use super::program::{self, Limits};

/// The name of this comparison in reports.
pub(crate) const NAME: &str = "nft";

/// The agent's table.
const TABLE: &str = "inet contiv";

/// The limits of one run of nft. For 10,000 services with 5 backends each it prints 5 MiB of JSON in 3 s, and uses 200 MiB of
/// memory.
const LIMITS: Limits = Limits {
    time: Duration::from_secs(120),
    bytes: 256 << 20,
};

/// Reads the table by netlink and with `nft`, and compares the two. A change of the table between the two reads is reported as a
/// difference.
pub(crate) fn compare_once() -> anyhow::Result<Verification> {
    let ours = TableVerifier::new().listing()?;
    let exists = list(&["list", "tables"])?.tables.contains(TABLE);
    let theirs = if exists {
        Some(list(&["list", "table", "inet", "contiv"])?.listing)
    } else {
        None
    };
    Ok(compare(ours.as_ref(), theirs.as_ref()))
}

fn compare(ours: Option<&TableListing>, theirs: Option<&TableListing>) -> Verification {
    let detail = match (ours, theirs) {
        (Some(ours), Some(theirs)) => return ours.differences(theirs),
        (None, None) => {
            return Verification {
                checked: 1,
                drift: BTreeSet::new(),
            };
        }
        (Some(_), None) => "nft does not list it",
        (None, Some(_)) => "only nft lists it",
    };
    let (place, deviation) = ("tables".to_owned(), Deviation::Different(detail.to_owned()));
    let drift = Drift {
        service: None,
        place,
        element: TABLE.to_owned(),
        deviation,
    };
    Verification {
        checked: 1,
        drift: [drift].into(),
    }
}

/// The output of `nft -j list …`.
fn list(arguments: &[&str]) -> anyhow::Result<NftOutput> {
    let output = program::run_within(LIMITS, "nft", &[&["-j"], arguments].concat());
    if let Some(problem) = output.problem {
        bail!("nft cannot read the table: {problem}");
    }
    let command = || format!("nft -j {}", arguments.join(" "));
    NftOutput::parse(&output.text).with_context(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_that_only_one_reader_sees_is_a_difference() {
        let table = TableListing::default();
        let found = |ours, theirs| {
            compare(ours, theirs)
                .drift
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
        };
        assert_eq!(found(None, None), Vec::<String>::new());
        assert_eq!(found(Some(&table), Some(&table)), Vec::<String>::new());
        assert_eq!(
            found(Some(&table), None),
            ["different: tables { inet contiv } nft does not list it"]
        );
        assert_eq!(
            found(None, Some(&table)),
            ["different: tables { inet contiv } only nft lists it"]
        );
    }
}
