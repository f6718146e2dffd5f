//! Services that the kernel refuses: identified by the refused messages, and left out so that the rest can be applied.

use std::{collections::BTreeMap, sync::Arc};

use contiv_model::{ChangeSet, ContivService, ServiceId, Snapshot};

use super::{
    element::{Element, Key},
    layout::{KernelModule, Set, SetKind},
    netlink::{
        Attributes, Refusal,
        constants::{LIST_ELEM, NFNL_SUBSYS_NFTABLES, elem, msg},
    },
    plan::{Choice, plan},
    read,
};
use crate::{Rejected, netlink::message::messages};

/// How often a resync is tried, each time without the services refused so far. The kernel checks every message, so one attempt
/// identifies many.
pub(super) const MAX_ATTEMPTS: usize = 16;

/// The services that the kernel refuses.
#[derive(Debug, Default)]
pub(super) struct Refused {
    services: BTreeMap<ServiceId, Entry>,
}

#[derive(Debug)]
struct Entry {
    reason: String,
    /// The last good state, if any, which is used instead.
    last_good: Option<Arc<ContivService>>,
}

/// The previous state of services.
pub(super) type LastGood = BTreeMap<ServiceId, Arc<ContivService>>;

impl Refused {
    pub(super) fn is_empty(&self) -> bool {
        self.services.is_empty()
    }

    /// Replaces refused services by their last good state.
    pub(super) fn replace_in(&self, snapshot: &Snapshot) -> Snapshot {
        let mut snapshot = snapshot.clone();
        for (id, entry) in &self.services {
            match &entry.last_good {
                Some(service) => snapshot.services.insert(id.clone(), Arc::clone(service)),
                None => snapshot.services.remove(id),
            };
        }
        snapshot
    }

    /// Records the services whose messages of `snapshot` were refused. False if no further service can be left out.
    pub(super) fn blame(&mut self, refusals: &[Refusal], snapshot: &Snapshot, last_good: &LastGood) -> bool {
        let mut found = false;
        let elements: Vec<(Element, &str)> = refusals
            .iter()
            .filter_map(|refusal| Some((refused_element(refusal)?, refusal.reason.as_str())))
            .collect();
        for (id, service) in &snapshot.services {
            let Some((element, reason)) = elements.iter().find(|(element, _)| is_of(element, service)) else {
                continue;
            };
            let known = last_good.get(id).filter(|known| *known != service).cloned();
            // Refused again: that was its last good state, so it has none.
            let last_good = if self.services.contains_key(id) { None } else { known };
            let reason = format!("the kernel refused {} {{ {element} }}: {reason}", element.set.name());
            self.services.insert(id.clone(), Entry { reason, last_good });
            found = true;
        }
        found
    }

    /// Leaves out the services that need a missing module.
    pub(super) fn leave_out_without(
        &mut self,
        missing: &[KernelModule],
        snapshot: &Snapshot,
        last_good: &LastGood,
    ) {
        for (id, service) in &snapshot.services {
            let Some(module) = missing.iter().find(|module| needs(service, **module)) else { continue };
            let reason = format!("the kernel lacks the module {}; load it, and resync", module.name());
            let known = last_good.get(id).filter(|known| !needs(known, *module)).cloned();
            self.services.insert(id.clone(), Entry { reason, last_good: known });
        }
    }

    /// Removes the changed services from the list, so that they are tried again.
    pub(super) fn take(&mut self, changes: &ChangeSet) -> Self {
        let ids = changes.services.keys();
        Self { services: ids.filter_map(|id| self.services.remove_entry(id)).collect() }
    }

    /// The state before `changes`, which contain these refused services; `services` is the state after them.
    pub(super) fn before(&self, changes: &ChangeSet, mut services: LastGood) -> LastGood {
        for (id, change) in &changes.services {
            let before = match self.services.get(id) {
                Some(entry) => &entry.last_good,
                None => &change.old,
            };
            match before {
                Some(service) => services.insert(id.clone(), Arc::clone(service)),
                None => services.remove(id),
            };
        }
        services
    }

    /// The list for reports.
    pub(super) fn list(&self) -> Vec<Rejected> {
        let rejected = |(id, entry): (&ServiceId, &Entry)| Rejected {
            service: id.clone(),
            reason: entry.reason.clone(),
            in_force: if entry.last_good.is_some() { "last good" } else { "nothing" },
        };
        self.services.iter().map(rejected).collect()
    }
}

/// True if one of the changed services needs one of these modules.
pub(super) fn needs_any(modules: &[KernelModule], changes: &ChangeSet) -> bool {
    let services = changes.services.values().filter_map(|change| change.new.as_ref());
    !modules.is_empty() && services.into_iter().any(|service| modules.iter().any(|one| needs(service, *one)))
}

/// True if a service needs an optional module.
fn needs(service: &ContivService, module: KernelModule) -> bool {
    module.is_optional() && plan(service).frontends.values().any(|frontend| frontend.choice == Choice::Client)
}

/// True if the kernel refused an element, rather than because of foreign changes of the table.
pub(super) fn name_an_element(refusals: &[Refusal]) -> bool {
    refusals.iter().any(|refusal| refused_element(refusal).is_some())
}

/// The element that caused the refusal. None if it was not an element, or if the kernel does not report it, like older ones.
fn refused_element(refusal: &Refusal) -> Option<Element> {
    let message = messages(&refusal.message).next()?;
    if message.kind != u16::from(NFNL_SUBSYS_NFTABLES) << 8 | u16::from(msg::NEWSETELEM) {
        return None;
    }
    let object = message.object(NFNL_SUBSYS_NFTABLES)?;
    let set = object.text(elem::LIST_SET).and_then(Set::by_name)?;
    // It belongs to no service.
    if matches!(set.kind, SetKind::NodeIps) {
        return None;
    }
    let elements: Vec<&[u8]> = object
        .nested(elem::LIST_ELEMENTS)?
        .iter()
        .filter(|(kind, _)| *kind == LIST_ELEM)
        .map(|(_, payload)| payload)
        .collect();
    let start = refusal.message.as_ptr() as usize;
    let is_at = |payload: &&&[u8]| {
        // The offset is that of the attribute; its payload follows the header.
        refusal.offset.is_some_and(|offset| payload.as_ptr() as usize - start == offset + ATTRIBUTE_HEADER)
    };
    let refused = elements.iter().find(is_at)?;
    read::parse_element(set, Attributes(refused))
}

const ATTRIBUTE_HEADER: usize = 4;

/// True if the element belongs to the service.
fn is_of(element: &Element, service: &ContivService) -> bool {
    let plan = plan(service);
    match element.key {
        Key::Frontend(frontend) | Key::Slot(frontend, _) | Key::Source(frontend, _) => {
            plan.frontends.contains_key(&frontend)
        }
        Key::Address(address) => plan.cluster_ips.contains(&address),
        Key::Pair(address) => plan.hairpins.contains(&address),
        Key::Range(_) | Key::Client(..) | Key::Interface(_) => false,
    }
}
