//! The names of hooks.

/// nft's name of a hook.
pub(crate) fn hook_name(number: u32) -> String {
    let names = [
        "prerouting",
        "input",
        "forward",
        "output",
        "postrouting",
        "ingress",
    ];
    names
        .get(number as usize)
        .map_or_else(|| number.to_string(), |name| (*name).to_owned())
}
