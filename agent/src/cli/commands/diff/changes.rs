//! New connections that end otherwise in one state than in another.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
};

use contiv_model::{
    ChangeSet, FlowEnd, Frontend, ServiceId, Snapshot, Trace, VerdictKind, trace::trace,
};
use contiv_renderer::packet_path::ProgrammedTable;
use serde::Serialize;

use crate::cli::{
    commands::compared_flows::{
        ComparedClient, Destination, OtherRules, OtherState, Place, ServiceIndex, Shares, Unknown,
        clients_text, destination_text, destinations, end_text, flows, shares_of, shares_text,
        visit_destinations,
    },
    output::{
        color::TextStyle,
        listing::{Item, Listing},
        table::Cell,
    },
};

/// New connections of some clients to a frontend that will end otherwise than they do.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(super) struct Change {
    /// The service that has the frontend, before or after; none if only the kernel has it.
    pub(super) service: Option<ServiceId>,
    /// The service that has it before, if that is another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) former_service: Option<ServiceId>,
    /// The frontend, which says whether it is a node port.
    pub(super) frontend: Frontend,
    /// Where they connect to.
    pub(super) to: SocketAddr,
    /// The clients.
    pub(super) clients: BTreeSet<ComparedClient>,
    /// How they end now.
    pub(super) old: FlowEnd,
    /// How they will end.
    pub(super) new: FlowEnd,
    /// The shares of the backends now and then, if only these change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) shares: Option<[Shares; 2]>,
}

/// All changes.
#[derive(Debug, Default)]
pub(super) struct StateComparison {
    /// The number of compared frontends; each address of node ports counts.
    pub(super) frontends: usize,
    pub(super) changes: BTreeSet<Change>,
    /// What cannot be compared.
    pub(super) unknown: BTreeSet<Unknown>,
}

impl StateComparison {
    /// What changes from one desired state to another.
    pub(super) fn between(old: &Snapshot, new: &Snapshot) -> Self {
        let between = ChangeSet::between(old, new);
        let changed = between.services.values();
        let sides = changed.flat_map(|change| change.old.iter().chain(&change.new));
        let frontends: BTreeSet<Frontend> = sides.flat_map(|service| service.frontends()).collect();
        let is_node_other = old.node != new.node;
        let is_selected =
            |destination: &Destination| is_node_other || frontends.contains(&destination.frontend);
        Self::of(&OtherState::new(old), new, is_selected)
    }

    /// What changes from what the kernel's table does to a desired state: everywhere, or only at some places.
    pub(super) fn from_kernel(
        table: &ProgrammedTable,
        new: &Snapshot,
        only: Option<&BTreeSet<Place>>,
    ) -> Self {
        Self::of(table, new, |it| {
            only.is_none_or(|places| places.contains(&it.place()))
        })
    }

    fn of(
        old: &impl OtherRules,
        new: &Snapshot,
        is_selected: impl Fn(&Destination) -> bool,
    ) -> Self {
        let visit = |changes: &mut Self, destination, few: &Snapshot| {
            changes.add(old, destination, few);
        };
        let mut all = Self::default();
        let index = ServiceIndex::new(new);
        let mut selected = destinations(&index, new, old);
        selected.retain(is_selected);
        for part in visit_destinations(&index, new, selected, visit) {
            all.frontends += part.frontends;
            all.changes.extend(part.changes);
            all.unknown.extend(part.unknown);
        }
        all
    }

    fn add(&mut self, old: &impl OtherRules, destination: Destination, few: &Snapshot) {
        let Destination { frontend, to, .. } = destination;
        self.frontends += 1;
        let known = old.frontends().get(&frontend);
        let of_old = known.and_then(|known| known.service.as_ref());
        let service_of = |traced: &Trace| traced.matched_port.as_ref().map(|it| it.service.clone());
        let (mut owner, mut former) = (None, None);
        let mut by_ends: BTreeMap<_, BTreeSet<ComparedClient>> = BTreeMap::new();
        for (client, flow) in flows(destination, few, old) {
            let traced = trace(few, &flow);
            owner = owner.or_else(|| service_of(&traced));
            let new_end = FlowEnd::of(&traced);
            match old.ends(&flow, &few.node) {
                Ok(ends) => {
                    // The agent's rules have several ends only if another program has changed them.
                    for old_end in ends {
                        let shares = other_shares(&old_end, &new_end, || {
                            Some([shares_of(&old.trace(&flow)?), shares_of(&traced)])
                        });
                        if old_end != new_end || shares.is_some() {
                            former = former.or_else(|| service_of(&old.trace(&flow)?));
                            let ends = (old_end, new_end.clone(), shares);
                            by_ends.entry(ends).or_default().insert(client);
                        }
                    }
                }
                Err(error) => {
                    self.unknown.insert(Unknown {
                        service: owner.as_ref().or(of_old).cloned(),
                        frontend,
                        to,
                        reason: error.to_string(),
                    });
                }
            }
        }
        // That a backend reaches itself otherwise says nothing more beside a change for all others.
        let is_itself = |clients: &BTreeSet<ComparedClient>| {
            let mut clients = clients.iter();
            clients.all(|client| matches!(client, ComparedClient::Backend(_)))
        };
        if !by_ends.values().all(is_itself) {
            by_ends.retain(|_, clients| !is_itself(clients));
        }
        let service = owner.or_else(|| former.clone()).or_else(|| of_old.cloned());
        let former_service = former.filter(|former| service.as_ref() != Some(former));
        for ((old, new, shares), clients) in by_ends {
            self.changes.insert(Change {
                service: service.clone(),
                former_service: former_service.clone(),
                frontend,
                to,
                clients,
                old,
                new,
                shares,
            });
        }
    }

    /// Where whether routes carry a service is not known, that they do on one side only is no change.
    pub(super) fn with_unknown_routes(mut self) -> Self {
        let is_routed = |end: &FlowEnd| end.verdict == VerdictKind::Routed;
        let (unknown, changes): (BTreeSet<Change>, _) = std::mem::take(&mut self.changes)
            .into_iter()
            .partition(|change| is_routed(&change.old) != is_routed(&change.new));
        self.changes = changes;
        self.unknown
            .extend(unknown.into_iter().map(|change| Unknown {
                service: change.service,
                frontend: change.frontend,
                to: change.to,
                reason: "only its agent knows whether the node's routes carry it".to_owned(),
            }));
        self
    }

    /// Where something changes, or is unknown.
    pub(super) fn places(&self) -> BTreeSet<Place> {
        let changed = self.changes.iter().map(|it| (it.frontend, it.to));
        let unknown = self.unknown.iter().map(|it| (it.frontend, it.to));
        changed.chain(unknown).collect()
    }

    /// What differs now, of what differed before too: what differs twice is no change in progress. The second comparison is that of
    /// [`Self::places`].
    pub(super) fn confirmed_by(self, second: Self) -> Self {
        Self {
            frontends: self.frontends,
            ..second
        }
    }

    /// Whether nothing changes, as far as known.
    pub(super) fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.unknown.is_empty()
    }

    /// The services of the changes.
    pub(super) fn services(&self) -> BTreeSet<&ServiceId> {
        let changes = self.changes.iter();
        let changes = changes.flat_map(|it| it.service.iter().chain(&it.former_service));
        let unknown = self.unknown.iter().filter_map(|it| it.service.as_ref());
        changes.chain(unknown).collect()
    }

    /// A row for each change; addresses of the same node port with the same change are one.
    pub(super) fn listing(&self) -> Listing {
        let mut groups: BTreeMap<_, Vec<&Change>> = BTreeMap::new();
        for change in &self.changes {
            let Change {
                service,
                former_service,
                frontend,
                to: _,
                clients,
                old,
                new,
                shares,
            } = change;
            let key = (service, former_service, frontend, old, new, clients, shares);
            groups.entry(key).or_default().push(change);
        }
        let mut items: Vec<Item> = groups.values().filter_map(|group| item(group)).collect();
        let mut by_reason: BTreeMap<&str, Vec<&Unknown>> = BTreeMap::new();
        for unknown in &self.unknown {
            let same = by_reason.entry(&unknown.reason).or_default();
            same.push(unknown);
        }
        items.extend(by_reason.values().filter_map(|same| unknown_item(same)));
        Listing {
            header: (
                ["SERVICE", "TO", "FROM", "NOW", "THEN"].to_vec(),
                Vec::new(),
            ),
            items,
        }
    }
}

/// The shares of the backends on both sides, if nothing else differs.
fn other_shares(
    old: &FlowEnd,
    new: &FlowEnd,
    shares: impl FnOnce() -> Option<[Shares; 2]>,
) -> Option<[Shares; 2]> {
    let may_differ = old == new && new.backends.len() > 1;
    let shares = may_differ.then(shares).flatten();
    shares.filter(|[old, new]| old != new)
}

fn service_text(service: Option<&ServiceId>) -> String {
    service.map_or_else(|| "-".to_owned(), ToString::to_string)
}

/// As in "10.96.0.1:80/tcp and 2 more".
fn with_more(to: String, more: usize) -> String {
    match more {
        0 => to,
        more => format!("{to} and {more} more"),
    }
}

fn item(group: &[&Change]) -> Option<Item> {
    let (change, more) = group.split_first()?;
    let to = with_more(destination_text(&change.frontend, change.to), more.len());
    let style = match change.new.verdict {
        VerdictKind::Served | VerdictKind::Routed => TextStyle::Plain,
        VerdictKind::Rejected | VerdictKind::Dropped | VerdictKind::NoService => TextStyle::Warning,
    };
    let name = service_text(change.service.as_ref());
    let service = match &change.former_service {
        Some(former) => format!("{former} -> {name}"),
        None => name.clone(),
    };
    let [old, new] = match &change.shares {
        Some([old, new]) => {
            let then = shares_text(new, old);
            [shares_text(old, new), format!("other shares: {then}")]
        }
        None => [&change.old, &change.new].map(end_text),
    };
    Some(Item {
        name,
        value: serde_json::Value::Null,
        cells: (
            vec![
                service.into(),
                to.into(),
                clients_text(change.clients.iter().copied()).into(),
                old.into(),
                Cell::styled(new, style),
            ],
            Vec::new(),
        ),
    })
}

/// A row for what cannot be compared for the same reason.
fn unknown_item(same: &[&Unknown]) -> Option<Item> {
    let (unknown, more) = same.split_first()?;
    let service = service_text(unknown.service.as_ref());
    let to = with_more(destination_text(&unknown.frontend, unknown.to), more.len());
    Some(Item {
        name: service.clone(),
        value: serde_json::Value::Null,
        cells: (
            vec![
                service.into(),
                to.into(),
                "-".into(),
                Cell::styled(
                    format!("cannot be compared: {}", unknown.reason),
                    TextStyle::Warning,
                ),
                "-".into(),
            ],
            Vec::new(),
        ),
    })
}

#[cfg(test)]
mod tests;
