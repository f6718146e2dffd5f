//! The elements of a set as the kernel dumps them.

use super::{
    Attributes, Writer,
    constants::{LIST_ELEM, counter, elem, rule},
};

/// Restricts the request of a dump to the elements of a set.
pub(crate) fn write_set_request(message: &mut Writer<'_>, table: &str, set: &str) {
    message.text(elem::LIST_TABLE, table);
    message.text(elem::LIST_SET, set);
}

/// The elements of a message.
pub(crate) fn set_elements(object: Attributes<'_>) -> impl Iterator<Item = Attributes<'_>> {
    let elements = object
        .nested(elem::LIST_ELEMENTS)
        .into_iter()
        .flat_map(Attributes::iter);
    elements
        .filter(|(kind, _)| *kind == LIST_ELEM)
        .map(|(_, element)| Attributes(element))
}

/// The packets that the counter of an element has counted; none if it has no counter.
pub(crate) fn counted_packets(element: Attributes<'_>) -> Option<u64> {
    let expression = element.nested(elem::EXPR)?;
    if expression.text(rule::EXPR_NAME) != Some("counter") {
        return None;
    }
    let packets = expression.nested(rule::EXPR_DATA)?.get(counter::PACKETS)?;
    Some(u64::from_be_bytes(packets.try_into().ok()?))
}
