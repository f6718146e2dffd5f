//! What was probably meant.

/// How alike two words must be; 1 is the same word.
const ALIKE: f64 = 0.8;

/// The one of `known` that is most like `wanted`, if any is. A name must be alike by itself: that the namespace is the same says
/// nothing. Of services in the wrong namespace the one with the same name is meant.
pub(super) fn suggest<'a>(wanted: &str, known: &'a [String]) -> Option<&'a str> {
    let name = |text: &'_ str| text.rsplit('/').next().unwrap_or_default().to_owned();
    let alike = |candidate: &str| {
        let whole = strsim::jaro_winkler(wanted, candidate);
        let of_name = of_names(&name(wanted), &name(candidate));
        if name(candidate) == name(wanted) { whole.max(0.99) } else { whole.min(of_name) }
    };
    let best = known.iter().max_by(|a, b| alike(a).total_cmp(&alike(b)))?;
    (alike(best) >= ALIKE).then_some(best)
}

/// How alike two names are. Of short ones two exchanged letters leave little that is alike, and are a usual mistake.
fn of_names(a: &str, b: &str) -> f64 {
    let is_slip = a.chars().count() > 1 && strsim::damerau_levenshtein(a, b) <= 1;
    strsim::jaro_winkler(a, b).max(if is_slip { ALIKE } else { 0.0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_suggested_where_nothing_is_alike() {
        let known = ["shop/cart".to_owned(), "shop/web".to_owned()];
        assert_eq!(suggest("shop/crt", &known), Some("shop/cart"));
        assert_eq!(suggest("shop/wbe", &known), Some("shop/web"));
        assert_eq!(suggest("default/web", &known), Some("shop/web"));
        assert_eq!(suggest("kube-system/dns", &known), None);
        assert_eq!(suggest("shop/dns", &known), None);
        assert_eq!(suggest("x", &[]), None);
    }
}
