//! Finds the services that the kernel refuses: by the netlink messages that it rejected, and by the modules that it lacks.

use std::{collections::BTreeMap, sync::Arc};

use contiv_model::{ContivService, ServiceId};

use super::read;
use crate::nftables::{
    desired::{
        element::{Element, Key},
        plan::{Choice, ServicePlan, plan},
    },
    layout::{KernelModule, Set, SetKind},
    netlink::{
        Attributes, NetlinkError, Refusal,
        constants::{LIST_ELEM, NFNL_SUBSYS_NFTABLES, elem, msg},
    },
};
use crate::{
    RenderError,
    netlink::message::{kind_of, messages},
};

/// The services whose elements the kernel refused, with the reason.
pub(crate) fn refused_services<'a>(
    error: &NetlinkError,
    services: impl Iterator<Item = &'a Arc<ContivService>>,
) -> BTreeMap<ServiceId, String> {
    let elements: Vec<(Element, &str)> = refusals(error)
        .iter()
        .filter_map(|refusal| Some((refused_element(refusal)?, refusal.reason.as_str())))
        .collect();
    if elements.is_empty() {
        return BTreeMap::new();
    }
    let refused = services.filter_map(|service| {
        let plan = plan(service);
        let (element, reason) = elements
            .iter()
            .find(|(element, _)| belongs_to(element, &plan))?;
        let reason = format!(
            "the kernel refused {} {{ {element} }}: {reason}",
            element.set.name()
        );
        Some((service.id.clone(), reason))
    });
    refused.collect()
}

/// Fails with the services that need a missing module, if there are any.
pub(crate) fn check_missing_modules<'a>(
    missing: &[KernelModule],
    services: impl Iterator<Item = &'a Arc<ContivService>>,
) -> Result<(), RenderError> {
    if missing.is_empty() {
        return Ok(());
    }
    let refused = services.filter_map(|service| {
        let module = missing
            .iter()
            .find(|module| needs_module(service, **module))?;
        let reason = format!("the kernel lacks the module {}; load it", module.name());
        Some((service.id.clone(), reason))
    });
    let services: BTreeMap<ServiceId, String> = refused.collect();
    if services.is_empty() {
        Ok(())
    } else {
        Err(RenderError::Refused { services })
    }
}

/// True if a service needs this optional module.
fn needs_module(service: &ContivService, module: KernelModule) -> bool {
    module.is_optional()
        && plan(service)
            .frontends
            .values()
            .any(|frontend| frontend.choice == Choice::Client)
}

/// True if the kernel refused an element. Otherwise foreign changes of the table may be the reason.
pub(crate) fn is_element_refused(error: &NetlinkError) -> bool {
    refusals(error)
        .iter()
        .any(|refusal| refused_element(refusal).is_some())
}

fn refusals(error: &NetlinkError) -> &[Refusal] {
    match error {
        NetlinkError::Refused { refusals, .. } => refusals,
        _ => &[],
    }
}

/// The element that caused the refusal. None if it was not an element, or if the kernel is too old to report it.
pub(crate) fn refused_element(refusal: &Refusal) -> Option<Element> {
    let message = messages(&refusal.message).next()?;
    if message.kind != kind_of(NFNL_SUBSYS_NFTABLES, msg::NEWSETELEM) {
        return None;
    }
    let object = message.object(NFNL_SUBSYS_NFTABLES)?;
    let set = object.text(elem::LIST_SET).and_then(Set::by_name)?;
    // Addresses of the node belong to no service.
    if matches!(set.kind, SetKind::NodeIps | SetKind::MasqueradeSources) {
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
        refusal
            .offset
            .is_some_and(|offset| payload.as_ptr() as usize - start == offset + NLA_HDRLEN)
    };
    let refused = elements.iter().find(is_at)?;
    read::parse_element(set, Attributes(refused))
}

/// The size of an attribute's header in bytes.
const NLA_HDRLEN: usize = 4;

/// True if an element belongs to the service of a plan.
fn belongs_to(element: &Element, plan: &ServicePlan) -> bool {
    match element.key {
        Key::Frontend(frontend) | Key::Slot(frontend, _) | Key::Source(frontend, _) => {
            plan.frontends.contains_key(&frontend)
        }
        Key::Address(address) => plan.cluster_ips.contains(&address),
        Key::Pair(address) => plan.hairpins.contains(&address),
        Key::Number(_) | Key::Range(_) | Key::Client(..) | Key::Interface(_) | Key::Output(_) => {
            false
        }
    }
}
