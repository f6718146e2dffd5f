//! Suggestions for misspelled names.

/// The least similarity of two words; 1 is the same word.
const MIN_SIMILARITY: f64 = 0.8;

/// The most similar one of `known`, if it is similar enough. The name itself must be similar, not only the namespace. Of
/// services in another namespace the one with the same name is suggested.
pub(crate) fn suggest<'a>(unknown: &str, known: &'a [String]) -> Option<&'a str> {
    let name = |text: &'_ str| text.rsplit('/').next().unwrap_or_default().to_owned();
    let alike = |candidate: &str| {
        let whole = strsim::jaro_winkler(unknown, candidate);
        let of_name = name_similarity(&name(unknown), &name(candidate));
        if name(candidate) == name(unknown) {
            whole.max(0.99)
        } else {
            whole.min(of_name)
        }
    };
    let best = known.iter().max_by(|a, b| alike(a).total_cmp(&alike(b)))?;
    (alike(best) >= MIN_SIMILARITY).then_some(best)
}

/// The similarity of two names. In short names, two swapped letters leave little similarity, but are a common mistake.
fn name_similarity(a: &str, b: &str) -> f64 {
    let is_slip = a.chars().count() > 1 && strsim::damerau_levenshtein(a, b) <= 1;
    strsim::jaro_winkler(a, b).max(if is_slip { MIN_SIMILARITY } else { 0.0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_suggestion_without_a_similar_name() {
        let known = ["shop/cart".to_owned(), "shop/web".to_owned()];
        assert_eq!(suggest("shop/crt", &known), Some("shop/cart"));
        assert_eq!(suggest("shop/wbe", &known), Some("shop/web"));
        assert_eq!(suggest("default/web", &known), Some("shop/web"));
        assert_eq!(suggest("kube-system/dns", &known), None);
        assert_eq!(suggest("shop/dns", &known), None);
        assert_eq!(suggest("x", &[]), None);
    }
}
