//! Undoes foreign changes that were reported by notifications. The programmed state is remembered, so nothing is planned again,
//! and only the changed elements are read.

use std::collections::BTreeMap;

use super::{
    desired::{
        capacity::{COMPARE_LIMIT, Remade},
        table::Table,
        transaction::{Group, Transaction},
    },
    kernel::{
        apply,
        ownership::Ownership,
        read::{self, ExistingTable},
        watch::{ChangedElements, ForeignTableChange, MAX_PENDING_CHANGES},
    },
    layout::{Form, Set},
    netlink::{Batch, NetlinkError, Socket},
};
use crate::Report;

/// A repair of the table.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Repair {
    Elements(Transaction),
    /// All rules too; they are few.
    Rules(Transaction),
    /// The whole table.
    Table,
}

/// Makes a repair. None if there may be more to repair than is known.
pub(super) fn execute(
    socket: &mut Socket,
    table: &mut Table,
    repair: Repair,
    ownership: Ownership,
) -> Result<Option<Report>, NetlinkError> {
    let is_written_anew = !matches!(repair, Repair::Elements(_));
    let mut batch = Batch::new();
    let mut existing = ExistingTable::default();
    let transaction = match repair {
        Repair::Elements(elements) => elements,
        Repair::Rules(elements) => {
            existing = read::existing(socket)?;
            if !existing.is_of_this_layout() {
                return Ok(None);
            }
            if let Some(found) = read::table_header(socket)? {
                apply::set_flags(socket, &found, ownership.flags(Some(&found)))?;
            }
            apply::write_repair(&mut batch, &existing, &Remade::new(), table.pod_ranges());
            elements
        }
        Repair::Table => {
            if read::table_header(socket)?.is_some() {
                return Ok(None);
            }
            let sizes = table.sizes(socket.batch_limit());
            let flags = ownership.flags(None);
            apply::write_fresh(&mut batch, false, flags, &sizes, table.pod_ranges());
            Transaction {
                chains: table.chains().collect(),
                adds_all: true,
                ..Transaction::default()
            }
        }
    };
    let limit = socket.batch_limit();
    let mut report = apply::commit(socket, batch, transaction, table, limit)?;
    apply::remove_leftovers(socket, &existing, table, &mut report);
    if is_written_anew {
        // Unused chains may exist, but without rules.
        table.forget_unused_chains();
    }
    Ok(Some(report))
}

/// The repair of these changes. None if there may be more of them. Pure.
pub(super) fn repair(table: &Table, foreign_changes: Vec<ForeignTableChange>) -> Option<Repair> {
    // The queue may have overflowed.
    if foreign_changes.len() >= MAX_PENDING_CHANGES {
        return None;
    }
    let mut changed: ChangedElements = BTreeMap::new();
    let mut rules = false;
    for change in foreign_changes {
        match change {
            ForeignTableChange::Elements(elements) => changed.extend(elements),
            ForeignTableChange::Rules(elements) => {
                changed.extend(elements);
                rules = true;
            }
            ForeignTableChange::Table => return Some(Repair::Table),
            // Comparing everything whenever another process has changed its own table costs too much. This repairs the usual
            // changes.
            ForeignTableChange::Missed if table.len() > COMPARE_LIMIT => rules = true,
            ForeignTableChange::Missed | ForeignTableChange::Anything => return None,
        }
    }
    let mut group = Group::default();
    for ((set, key), found) in changed {
        // These few are written with the chains that they lead to.
        if set.kind.form() == Form::Chains {
            rules = true;
            continue;
        }
        let desired = table.element(set, key);
        if found != desired {
            group.remove.extend(found);
            group.add.extend(desired);
        }
    }
    let mut transaction = Transaction::default();
    transaction.push(group);
    if rules {
        // A flushed chain still exists.
        transaction.chains = table.chains().collect();
        transaction.flush = Set::of_form(Form::Chains).collect();
        return Some(Repair::Rules(transaction));
    }
    Some(Repair::Elements(transaction))
}

#[cfg(test)]
mod tests {
    use std::{net::IpAddr, sync::Arc};

    use contiv_model::{Backend, ContivService, Protocol, ServiceId, ServicePort, Snapshot};

    use super::*;
    use crate::nftables::{
        desired::element::{Element, Key, Value},
        desired::existing_elements::Elements,
        layout::{Family, Set, SetKind},
    };

    fn table() -> Table {
        let backend = Backend {
            local: true,
            ..Backend::new((IpAddr::from([10, 244, 0, 1]), 8080).into())
        };
        let port = ServicePort {
            port: 80,
            protocol: Protocol::Tcp,
            name: "main".into(),
            node_port: None,
            backends: vec![backend],
        };
        let service = ContivService {
            cluster_ips: [IpAddr::from([10, 96, 0, 1])].into(),
            external_ips: [IpAddr::from([192, 0, 2, 8])].into(),
            load_balancer_ips: [IpAddr::from([192, 0, 2, 8])].into(),
            source_ranges: ["198.51.100.0/24".parse().unwrap()].into(),
            session_affinity_timeout: 60,
            ports: vec![port],
            ..ContivService::new(ServiceId::new("default", "web"))
        };
        let services = BTreeMap::from([(service.id.clone(), Arc::new(service))]);
        Table::resync(
            &Snapshot {
                services,
                ..Snapshot::default()
            },
            Elements::default(),
        )
        .0
    }

    fn now(element: Element, is_there: bool) -> ForeignTableChange {
        ForeignTableChange::Elements(
            [((element.set, element.key), is_there.then_some(element))].into(),
        )
    }

    fn foreign() -> Element {
        let set = Set::new(SetKind::ClusterIps, Family::V4);
        Element {
            set,
            key: Key::Address(IpAddr::from([192, 0, 2, 1])),
            value: Value::None,
        }
    }

    #[test]
    fn deleted_elements_are_restored_and_added_ones_removed() {
        let table = table();
        for element in table
            .elements()
            .into_iter()
            .filter(|element| element.set.kind.form() != Form::Chains)
        {
            let group = Group {
                remove: vec![],
                add: vec![element],
            };
            let expected = Transaction {
                groups: vec![group],
                ..Transaction::default()
            };
            assert_eq!(
                repair(&table, vec![now(element, false)]),
                Some(Repair::Elements(expected))
            );
            // It was repaired already.
            let nothing = Some(Repair::Elements(Transaction::default()));
            assert_eq!(
                repair(&table, vec![now(element, false), now(element, true)]),
                nothing
            );
        }
        let group = Group {
            remove: vec![foreign()],
            add: vec![],
        };
        let expected = Transaction {
            groups: vec![group],
            ..Transaction::default()
        };
        assert_eq!(
            repair(&table, vec![now(foreign(), true)]),
            Some(Repair::Elements(expected))
        );
    }

    #[test]
    fn element_with_foreign_value_is_replaced() {
        let table = table();
        let ours = table
            .elements()
            .into_iter()
            .find(|element| element.set.kind == SetKind::Services)
            .unwrap();
        let theirs = Element {
            value: Value::None,
            ..ours
        };
        let group = Group {
            remove: vec![theirs],
            add: vec![ours],
        };
        let expected = Transaction {
            groups: vec![group],
            ..Transaction::default()
        };
        let foreign_changes = vec![now(ours, false), now(theirs, true)];
        assert_eq!(
            repair(&table, foreign_changes),
            Some(Repair::Elements(expected))
        );
    }

    #[test]
    fn damage_of_unknown_extent_compares_everything() {
        let table = table();
        assert_eq!(
            repair(
                &table,
                vec![
                    ForeignTableChange::Elements(ChangedElements::new()),
                    ForeignTableChange::Anything
                ]
            ),
            None
        );
        let many = (0..MAX_PENDING_CHANGES)
            .map(|_| ForeignTableChange::Elements(ChangedElements::new()))
            .collect();
        assert_eq!(repair(&table, many), None);
        assert_eq!(
            repair(&table, vec![ForeignTableChange::Missed]),
            None,
            "such a small table"
        );
        assert_eq!(
            repair(&table, vec![ForeignTableChange::Table]),
            Some(Repair::Table)
        );
    }

    #[test]
    fn creation_has_all_elements() {
        let table = table();
        let mut created: Vec<Element> = table.creation().flat_map(|group| group.add).collect();
        created.sort_unstable();
        let mut elements = table.elements();
        // They are written with the chains that they lead to.
        elements.retain(|element| element.set.kind.form() != Form::Chains);
        assert_eq!(created, elements);
        assert_eq!(created.len(), table.creation_len());
    }
}
