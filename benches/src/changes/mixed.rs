//! Many changes of several kinds a second, for a while.

use std::time::Duration;

use contiv_tests::{
    agent::Agent,
    lab::{Lab, Result},
};

use super::common::{SECTION, operation};
use crate::{
    cluster::{Client, churn},
    figures::Figure,
    workload::{SingleChange, Variant, Workload, Write},
};

/// The second change of a service comes this many changes after its first: etcd must not see them the other way round.
const APART: u32 = 4000;

pub(super) fn measure(
    lab: &Lab,
    client: &Client,
    agent: &Agent<'_>,
    workload: Workload,
    duration: Duration,
) -> Result<Vec<Figure>> {
    let load = churn::Load {
        section: SECTION,
        name: "mixed changes",
        rate: 1000,
        duration,
        cores: 0.5,
        limit: Duration::from_millis(10),
    };
    churn::measure(lab, client, agent, workload, load, |number| {
        change(workload, number)
    })
}

/// Four kinds in turn: a backend replaced, one added, one removed again, a service deleted or created with another backend.
fn change(workload: Workload, number: u32) -> churn::Change {
    let service = |number: u32| number as usize * 7919 % workload.services;
    let slice = |number: u32, variant: Variant| {
        let (key, value) = workload.slice(service(number), 0, variant);
        (key, Some(value))
    };
    let write = |kind: SingleChange, number: u32| kind.write(workload, service(number), 0);
    let is_deletion = (number / APART).is_multiple_of(2);
    let (has_marker, writes): (bool, Vec<Write>) = match number % 4 {
        0 => (true, vec![slice(number, Variant::Replaced(number))]),
        1 => (true, vec![slice(number, Variant::OneMore(number))]),
        2 => (false, vec![slice(number - 1 - APART, Variant::Original)]),
        _ if is_deletion => (false, vec![write(SingleChange::ServiceDeleted, number)]),
        _ => {
            let deleted = number - APART;
            let slice = slice(deleted, Variant::Replaced(number));
            (
                true,
                vec![slice, write(SingleChange::ServiceCreated, deleted)],
            )
        }
    };
    churn::Change {
        writes: writes.into_iter().map(operation).collect(),
        has_marker,
    }
}
