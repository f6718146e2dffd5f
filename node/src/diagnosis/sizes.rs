//! Packets that are too large for the way: small ones pass, large ones vanish, unless ICMP errors tell the sender.

use contiv_model::Protocol;
use contiv_renderer::packet_path::{Walk, WalkEnd, WalkStep};

use super::{
    evidence::{Evidence, PathEvidence, Target},
    report::Certainty,
    rules::{certainty, stopped},
    wording::server,
};

pub(super) const LET_ERRORS_PASS: &str = "let ICMP errors pass (destination-unreachable, packet-too-big), or give both ends the same MTU";

/// A place where large packets of a way do not fit.
struct TightSpot<'a> {
    /// Who sends the packets.
    sender: String,
    /// The packets that it sends, in bytes.
    sent: u32,
    /// Those that fit.
    fitting: u32,
    /// The way of the error that tells the sender.
    error: Option<&'a Walk>,
}

/// The places of a way where packets of TCP do not fit that its ends send, as far as their sizes are known. Those of other protocols are as
/// large as the programs make them.
fn tight_spots<'a>(
    path: &'a PathEvidence,
    evidence: &Evidence,
) -> impl Iterator<Item = TightSpot<'a>> {
    let is_tcp = matches!(&evidence.target, Target::Flow(flow) if flow.protocol() == Protocol::Tcp);
    let to = server(path, evidence);
    let is_clamped = |walk: &Walk| {
        let clamps = |step: &WalkStep| matches!(step, WalkStep::SegmentsClamped(_));
        walk.steps.iter().any(clamps)
    };
    let sizes = path.sizes.as_ref().filter(|_| is_tcp);
    let spots = sizes.map(|sizes| {
        // Each end tells the other one what it takes; a rule may lower that on the way.
        let sent = sizes.client.min(sizes.server);
        let request = TightSpot {
            sender: "the client".to_owned(),
            sent,
            fitting: sizes.to_server,
            error: sizes.error_to_client.as_ref(),
        };
        let answer = TightSpot {
            sender: to,
            sent,
            fitting: sizes.to_client,
            error: sizes.error_to_server.as_ref(),
        };
        [
            (request, path.answer.as_ref().is_some_and(is_clamped)),
            (answer, is_clamped(&path.first)),
        ]
    });
    spots
        .into_iter()
        .flatten()
        .filter(|(spot, is_clamped)| spot.sent > spot.fitting && !is_clamped)
        .map(|(spot, _)| spot)
}

/// Packets that certainly do not fit, about which no error gets back.
pub(super) fn harm(path: &PathEvidence, evidence: &Evidence) -> Option<(Certainty, String)> {
    tight_spots(path, evidence).find_map(|spot| {
        let error = spot.error?;
        let why = lost_error(error)?;
        let TightSpot {
            sender,
            sent,
            fitting,
            ..
        } = spot;
        let text = format!(
            "large packets vanish: {sender} sends up to {sent} bytes, {fitting} fit, and the ICMP error that says so is lost: {why}"
        );
        Some((certainty(error), text))
    })
}

/// What is said where packets do not fit, and errors about them get back.
pub(super) fn remark(path: &PathEvidence, evidence: &Evidence) -> Option<String> {
    tight_spots(path, evidence).next().map(|spot| {
        format!(
            "{} sends packets of up to {} bytes, {} fit: it relies on ICMP errors (fragmentation needed)",
            spot.sender, spot.sent, spot.fitting
        )
    })
}

/// What may keep large packets from arriving, where they are seen to be lost.
pub(super) fn suspicions(path: &PathEvidence) -> String {
    let Some(sizes) = &path.sizes else {
        return String::new();
    };
    let mut found = Vec::new();
    if sizes.to_client != sizes.to_server {
        found.push(format!(
            "{} bytes fit on the way to the server, {} on that to the client",
            sizes.to_server, sizes.to_client
        ));
    }
    if let (Some((lower, mtu)), Some(link)) = (&sizes.outer, &path.link) {
        found.push(format!(
            "{} takes {} bytes, with its headers more than the {mtu} of {}",
            link.name.0, link.mtu, lower.0
        ));
    }
    let errors = [
        &sizes.error_to_client,
        &sizes.error_to_server,
        &sizes.error_from_beyond,
    ];
    let lost = errors.into_iter().flatten().find_map(lost_error);
    found.extend(lost.map(|why| format!("ICMP errors about it are lost: {why}")));
    found
        .iter()
        .fold(String::new(), |text, part| format!("{text}; {part}"))
}

/// Why an error does not arrive; none if this node lets it pass.
fn lost_error(error: &Walk) -> Option<String> {
    match &error.end {
        WalkEnd::Stopped { by, kind } => Some(stopped(by, *kind).1),
        WalkEnd::NotRouted(_) => Some("it has no route".to_owned()),
        WalkEnd::Local { .. } | WalkEnd::Sent { .. } | WalkEnd::OwnTable => None,
    }
}
