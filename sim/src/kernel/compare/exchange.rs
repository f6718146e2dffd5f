//! One side of a comparison: sends requests, and renders the answers as lines that can be compared.

use std::io;

use contiv_renderer::kernel::{Kernel, NetlinkProtocol, NetlinkSocket};

use super::render;
use crate::kernel::{
    attributes::Attributes,
    errno::Errno,
    message::{self, Frame, Message},
    uapi::{
        NFPROTO_UNSPEC, NLM_F_ACK_TLVS, NLM_F_DUMP, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR,
        NLMSGERR_ATTR_OFFS, SUBSYS_NFTABLES, elem, msg, set,
    },
};

/// The kernel or the model.
#[derive(Debug)]
pub(super) struct Peer {
    socket: Box<dyn NetlinkSocket>,
}

/// The sequence number of the request after a batch, whose answer marks the end of the batch's answers.
const END_SEQUENCE: u32 = 0x00ff_ffff;

impl Peer {
    pub(super) fn open(kernel: &dyn Kernel) -> io::Result<Self> {
        Ok(Self {
            socket: kernel.connect(NetlinkProtocol::Netfilter)?,
        })
    }

    pub(super) fn port(&self) -> u32 {
        self.socket.port()
    }

    /// Sends a batch, and returns a line for each answer.
    pub(super) fn send_batch(&mut self, batch: &[u8]) -> io::Result<Vec<String>> {
        self.socket.send(batch)?;
        self.socket
            .send(&request(msg::GETGEN, NFPROTO_UNSPEC, 0, END_SEQUENCE, &[]))?;
        let mut answers = Vec::new();
        loop {
            for message in message::messages(&self.socket.receive()?) {
                if message.sequence == END_SEQUENCE {
                    return Ok(answers);
                }
                if message.kind == NLMSG_ERROR {
                    answers.push(answer(&message));
                }
            }
        }
    }

    /// All tables, chains, rules, sets and elements, a line for each.
    pub(super) fn tables(&mut self) -> io::Result<Vec<String>> {
        let own = self.socket.port();
        let mut lines = Vec::new();
        let mut sets = Vec::new();
        for kind in [msg::GETTABLE, msg::GETCHAIN, msg::GETRULE, msg::GETSET] {
            for piece in self.dump(kind, NFPROTO_UNSPEC, &[])? {
                for message in message::messages(&piece)
                    .filter(|message| message.subsystem() == SUBSYS_NFTABLES)
                {
                    let attributes = message.attributes();
                    if kind == msg::GETSET
                        && let (Some(table), Some(name)) =
                            (attributes.text(set::TABLE), attributes.text(set::NAME))
                    {
                        sets.push((message.family(), table.to_owned(), name.to_owned()));
                    }
                    lines.push(render::object(message.kind_in_subsystem(), attributes, own));
                }
            }
        }
        for (family, table, name) in sets {
            let mut writer = crate::kernel::attributes::Writer::default();
            writer.text(elem::LIST_TABLE, &table);
            writer.text(elem::LIST_SET, &name);
            let mut elements = Vec::new();
            for piece in self.dump(msg::GETSETELEM, family, &writer.0)? {
                for message in message::messages(&piece)
                    .filter(|message| message.subsystem() == SUBSYS_NFTABLES)
                {
                    elements.extend(render::elements(message.attributes()));
                }
            }
            // The kernel does not define the order of elements.
            elements.sort();
            lines.extend(
                elements
                    .into_iter()
                    .map(|element| format!("element of {table} {name}: {element}")),
            );
        }
        Ok(lines)
    }

    fn dump(&mut self, kind: u8, family: u8, attributes: &[u8]) -> io::Result<Vec<Vec<u8>>> {
        self.socket
            .send(&request(kind, family, NLM_F_DUMP, 1, attributes))?;
        let mut pieces = Vec::new();
        loop {
            let piece = self.socket.receive()?;
            let is_last = message::messages(&piece)
                .any(|message| [NLMSG_DONE, NLMSG_ERROR].contains(&message.kind));
            pieces.push(piece);
            if is_last {
                return Ok(pieces);
            }
        }
    }
}

fn request(kind: u8, family: u8, flags: u16, sequence: u32, attributes: &[u8]) -> Vec<u8> {
    let flags = NLM_F_REQUEST | flags;
    let frame = Frame {
        subsystem: SUBSYS_NFTABLES,
        kind,
        flags,
        sequence,
        port: 0,
        family,
        resource: 0,
    };
    frame.write(|out| out.0.extend_from_slice(attributes))
}

/// The number of the message, its error, and the offset of the bad attribute.
fn answer(message: &Message<'_>) -> String {
    let payload = message.bytes.get(message::HEADER..).unwrap_or_default();
    let code = payload.first_chunk().copied().map_or(0, i32::from_ne_bytes);
    let sequence = message.sequence;
    if code == 0 {
        return format!("message {sequence}: ok");
    }
    let attributes = Attributes::new(payload.get(4 + message::HEADER..).unwrap_or_default(), 0);
    let at = (message.flags & NLM_F_ACK_TLVS != 0)
        .then(|| attributes.get(NLMSGERR_ATTR_OFFS))
        .flatten();
    let at = at
        .and_then(|at| at.payload.first_chunk().copied())
        .map(u32::from_ne_bytes);
    let error = Errno(-code);
    // The validation of chains follows the verdicts of a map in the order of the kernel's hash table, which is random, and ends at
    // the first error. If one leads too deep and another to a wrong hook, both answers are right.
    if at.is_none() && [Errno::EMLINK, Errno::EOPNOTSUPP].contains(&error) {
        return format!(
            "message {sequence}: error {} or {}",
            Errno::EMLINK.0,
            Errno::EOPNOTSUPP.0
        );
    }
    format!("message {sequence}: error {} at {at:?}", error.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_the_validation_are_alike_and_others_are_not() {
        let answer_to = |errno: Errno| {
            let mut bytes = vec![0; message::HEADER];
            bytes.extend((-errno.0).to_ne_bytes());
            let frame = Message {
                kind: NLMSG_ERROR,
                flags: 0,
                sequence: 1,
                bytes: &bytes,
            };
            answer(&frame)
        };
        assert_eq!(answer_to(Errno::EMLINK), "message 1: error 31 or 95");
        assert_eq!(answer_to(Errno::EOPNOTSUPP), answer_to(Errno::EMLINK));
        assert_eq!(answer_to(Errno::EINVAL), "message 1: error 22 at None");
    }
}
