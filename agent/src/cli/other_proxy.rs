//! Services left to another proxy by their label `service.kubernetes.io/service-proxy-name`.

/// The label that leaves a service to another proxy.
const LABEL: &str = "service.kubernetes.io/service-proxy-name";

/// How many services a note names.
const MAX_NAMED: usize = 5;

/// A line that names the first of these services, each with the proxy that its label names; empty if there are none.
pub(super) fn note(left: &[(String, Option<String>)]) -> String {
    if left.is_empty() {
        return String::new();
    }
    let names = left.iter().take(MAX_NAMED).map(|(service, proxy)| match proxy {
        Some(proxy) => format!("{service} ({proxy})"),
        None => format!("{service} (no label)"),
    });
    let names = names.collect::<Vec<_>>().join(", ");
    let more = match left.len().saturating_sub(MAX_NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("note: left to another proxy by the label {LABEL}: {names}{more}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_left_to_others_are_named_up_to_five() {
        assert_eq!(note(&[]), "");
        let left = |count: usize| {
            (0..count).map(|n| (format!("shop/{n}"), Some("x".to_owned()))).collect::<Vec<_>>()
        };
        assert!(note(&left(1)).ends_with("service-proxy-name: shop/0 (x)\n"));
        assert!(note(&left(7)).ends_with("shop/4 (x) and 2 more\n"));
    }
}
