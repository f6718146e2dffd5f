//! Notes about stored services that are not served.

use contiv_model::{NotServed, ServiceId};

/// The label that leaves a service to another proxy.
const LABEL: &str = "service.kubernetes.io/service-proxy-name";

/// How many services a note names.
const MAX_NAMED: usize = 5;

/// A line about those of these services that their label leaves to another proxy, and one about those without an address. Each
/// names the first ones, and is left out if there are none.
pub(crate) fn notes<'a>(
    unserved: impl IntoIterator<Item = (&'a ServiceId, &'a NotServed)>,
) -> String {
    let (mut left, mut without_address) = (Vec::new(), Vec::new());
    for (id, reason) in unserved {
        match reason {
            NotServed::OtherProxy(Some(proxy)) => left.push(format!("{id} ({proxy})")),
            NotServed::OtherProxy(None) => left.push(format!("{id} (no label)")),
            NotServed::NoAddress => without_address.push(id.to_string()),
            NotServed::ExternalName | NotServed::Headless => (),
        }
    }
    note(
        &format!("left to another proxy by the label {LABEL}"),
        &left,
    ) + &note(
        "not served, with neither an address nor a node port (an API server would allocate spec.clusterIP)",
        &without_address,
    )
}

fn note(what: &str, names: &[String]) -> String {
    if names.is_empty() {
        return String::new();
    }
    let more = match names.len().saturating_sub(MAX_NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let first = names
        .iter()
        .take(MAX_NAMED)
        .map(String::as_str)
        .collect::<Vec<_>>()
        .join(", ");
    format!("note: {what}: {first}{more}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notes_of(services: &[(&str, NotServed)]) -> String {
        let services: Vec<_> = services
            .iter()
            .map(|(name, reason)| (ServiceId::new("shop", *name), reason))
            .collect();
        notes(services.iter().map(|(id, reason)| (id, *reason)))
    }

    #[test]
    fn services_left_to_others_are_named_up_to_five() {
        assert_eq!(
            notes_of(&[("db", NotServed::Headless), ("go", NotServed::ExternalName)]),
            ""
        );
        let left = |name: &'static str| (name, NotServed::OtherProxy(Some("x".into())));
        assert!(notes_of(&[left("0")]).ends_with("service-proxy-name: shop/0 (x)\n"));
        let seven = ["0", "1", "2", "3", "4", "5", "6"].map(left);
        assert!(notes_of(&seven).ends_with("shop/4 (x) and 2 more\n"));
    }

    #[test]
    fn services_without_address_have_a_note_of_their_own() {
        let notes = notes_of(&[
            ("web", NotServed::NoAddress),
            ("db", NotServed::OtherProxy(None)),
        ]);
        let lines: Vec<&str> = notes.lines().collect();
        assert!(lines[0].ends_with(": shop/db (no label)"), "{notes}");
        assert!(
            lines[1].contains("neither an address nor a node port")
                && lines[1].ends_with(": shop/web"),
            "{notes}"
        );
    }
}
