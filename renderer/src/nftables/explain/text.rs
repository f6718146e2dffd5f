//! The programmed table in nft's language, for `nft -f` and for people.

use std::{collections::BTreeMap, fmt::Write, sync::Arc};

use contiv_model::{ContivService, ServiceId};

use crate::nftables::{
    desired::{
        capacity,
        element::{Element, FrontendKey, Key},
        plan::plan,
        table::Table,
    },
    layout::{self, TABLE},
};

/// The whole ruleset of the table of `services`. Loads with `nft -f`.
pub(crate) fn ruleset(table: &Table, services: &BTreeMap<ServiceId, Arc<ContivService>>) -> String {
    let mut text = layout::skeleton(&capacity::sizes(&table.counts()), table.pod_ranges());
    text.push_str(&layout::on_demand(table.chains()));
    // Writing to a string cannot fail.
    let _ = write_elements(&mut text, table, &owners(services));
    text
}

fn write_elements(
    text: &mut String,
    table: &Table,
    owners: &BTreeMap<FrontendKey, ServiceId>,
) -> std::fmt::Result {
    for elements in table.elements().chunk_by(|a, b| a.set == b.set) {
        let Some(set) = elements.first().map(|element| element.set) else {
            continue;
        };
        writeln!(text, "\nadd element inet {TABLE} {} {{", set.name())?;
        for element in elements {
            match owner(element, owners) {
                // Names were validated when they were read; no name may end its comment.
                Some(owner) => {
                    writeln!(text, "\t{element}, # {}", owner.to_string().escape_debug())?;
                }
                None => writeln!(text, "\t{element},")?,
            }
        }
        writeln!(text, "}}")?;
    }
    Ok(())
}

/// The service of each frontend.
fn owners(services: &BTreeMap<ServiceId, Arc<ContivService>>) -> BTreeMap<FrontendKey, ServiceId> {
    let of = |service: &Arc<ContivService>| {
        let id = service.id.clone();
        plan(service)
            .frontends
            .into_keys()
            .map(move |frontend| (frontend, id.clone()))
    };
    services.values().flat_map(of).collect()
}

/// The owner of the element, unless it repeats the line before.
fn owner<'a>(
    element: &Element,
    owners: &'a BTreeMap<FrontendKey, ServiceId>,
) -> Option<&'a ServiceId> {
    match element.key {
        Key::Frontend(frontend) | Key::Slot(frontend, 0) => owners.get(&frontend),
        Key::Slot(..)
        | Key::Number(_)
        | Key::Address(_)
        | Key::Pair(_)
        | Key::Range(_)
        | Key::Interface(_)
        | Key::Output(_)
        | Key::Source(..)
        | Key::Client(..) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::{env, fs};

    use contiv_model::{ContivService, Protocol, ServicePort, Snapshot};

    use super::*;

    /// `CONTIV_UPDATE_GOLDENS=1` writes it.
    #[test]
    fn skeleton_file_is_the_table_without_services() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/nftables/skeleton.nft");
        let text = ruleset(&Table::default(), &BTreeMap::new());
        if env::var_os("CONTIV_UPDATE_GOLDENS").is_some() {
            fs::write(path, &text).unwrap();
        }
        assert_eq!(fs::read_to_string(path).unwrap(), text);
    }

    #[test]
    fn name_of_service_never_becomes_syntax() {
        for name in [
            "web\n}\ndelete table inet filter #",
            "a\r\nflush ruleset",
            "\u{85}x",
            "\"; }",
            "$(reboot)",
        ] {
            let mut service = ContivService::new(ServiceId::new("default", name));
            service.cluster_ips = [[10, 96, 0, 1].into()].into();
            let (port, protocol, node_port, backends) = (80, Protocol::Tcp, None, Vec::new());
            service.ports = vec![ServicePort {
                port,
                protocol,
                name: name.into(),
                node_port,
                backends,
            }];
            let services = BTreeMap::from([(service.id.clone(), std::sync::Arc::new(service))]);
            crate::fuzz::text(&Snapshot {
                services,
                ..Snapshot::default()
            });
        }
    }
}
