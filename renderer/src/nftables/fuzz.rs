//! Properties of nf_tables messages.

use contiv_model::Snapshot;

use super::{
    desired::{
        capacity::{self, Counts},
        elements,
        transaction::{Group, Transaction},
    },
    kernel::{encode, read::parse_element, refused, watch},
    layout::{self, Set},
    netlink::{
        Attributes, Batch, Refusal,
        constants::{LIST_ELEM, NFNL_SUBSYS_NFTABLES, elem},
    },
    verify,
};
use crate::netlink::message::messages;

pub(crate) fn skeleton(snapshot: &Snapshot) -> String {
    let pods = elements::pod_ranges(&snapshot.node);
    layout::skeleton(&capacity::sizes(&Counts::new()), pods)
}

/// The first byte chooses the set, the other bytes are an element of it: it round-trips through the encoder, and the verifier's
/// reader agrees.
pub(crate) fn element(input: &[u8]) {
    let Some((set, attributes)) = input.split_first() else {
        return;
    };
    let sets: Vec<Set> = Set::all().collect();
    let set = sets[usize::from(*set) % sets.len()];
    let read = verify::read_element(set, Attributes(attributes));
    assert!(
        read.iter().all(|line| !line.contains(char::is_control)),
        "{read:?}"
    );
    let Some(element) = parse_element(set, Attributes(attributes)) else {
        return;
    };
    assert_eq!(read, [element.to_string()]);
    let mut batch = Batch::new();
    let group = Group {
        remove: Vec::new(),
        add: vec![element],
    };
    encode::write(
        &Transaction {
            groups: vec![group],
            ..Transaction::default()
        },
        &mut batch,
    );
    let (written, _) = batch.finish();
    let again = messages(written)
        .filter_map(|message| {
            message
                .object(NFNL_SUBSYS_NFTABLES)?
                .nested(elem::LIST_ELEMENTS)
        })
        .flat_map(Attributes::iter)
        .find(|(kind, _)| *kind == LIST_ELEM)
        .and_then(|(_, again)| parse_element(set, Attributes(again)));
    assert_eq!(again, Some(element), "{element}");
}

/// Foreign changes are described in text that is safe in a log.
pub(crate) fn notifications(input: &[u8]) {
    let summary = watch::summarize(input);
    assert!(
        summary.is_none_or(|summary| !summary.is_empty() && !summary.contains(char::is_control))
    );
}

/// The first four bytes are the offset of the error; the other bytes are a refused message with its error text. Everything is
/// read or ignored.
pub(crate) fn refusal(input: &[u8]) {
    let Some((offset, message)) = input.split_first_chunk() else {
        return;
    };
    let reasons = messages(message)
        .filter_map(|answer| answer.error_text())
        .map(str::to_owned);
    let said = messages(message).filter_map(|answer| answer.error_offset());
    let offset = said.last().unwrap_or(u32::from_ne_bytes(*offset) as usize);
    let refusal = Refusal {
        message: message.to_vec(),
        offset: Some(offset),
        errno: 0,
        reason: reasons.last().unwrap_or_default(),
    };
    if refused::refused_element(&refusal).is_some() {
        assert!(offset < message.len(), "the element is in the message");
    }
}
