//! The tables of the kernel: the agent's own, and those of other programs.

use contiv_renderer::packet_path::{OwnVerdict, RuleRef, StopKind, Walk, WalkEnd, WalkStep};

use super::{
    cause::Cause,
    evidence::{AgentState, Evidence, KernelEvidence, PathEvidence, TableEvidence},
    report::{Certainty, Report, StepName, StepState},
    wording::{is_served, part, server},
};

/// How many differences of the table are named.
const NAMED_DIFFERENCES: usize = 3;
/// How many rules that cannot be evaluated are named.
const NAMED_DOUBTS: usize = 3;
/// The end of the names of tables whose rules only their own program can show.
const LEGACY: &str = "of iptables-legacy";

/// The agent's table.
pub(super) fn judge_table(evidence: &Evidence, kernel: &KernelEvidence, report: &mut Report) {
    let runs = matches!(evidence.agent, AgentState::Runs { .. });
    let advice = if runs {
        "run `contiv resync`; if it comes back, `contiv events` names the program that changes the table"
    } else {
        "start the agent"
    };
    match &kernel.table {
        TableEvidence::Equal => report.step(
            StepName::Table,
            StepState::Ok,
            "the table inet contiv is as it should be",
        ),
        TableEvidence::Unknown => report.step(
            StepName::Table,
            StepState::Unknown,
            "the table inet contiv is there; without the agent nobody knows how it should be",
        ),
        TableEvidence::NotUsed => report.step(
            StepName::Table,
            StepState::Ok,
            "this agent has no table (renderer nftables)",
        ),
        TableEvidence::Missing => report.fails(
            StepName::Table,
            Cause::TableMissing,
            Certainty::Certain,
            "the kernel has no table inet contiv, so no service is translated",
            advice,
        ),
        TableEvidence::Differs(differences) => {
            let more = differences.len().saturating_sub(NAMED_DIFFERENCES);
            let named: Vec<&str> = differences
                .iter()
                .take(NAMED_DIFFERENCES)
                .map(String::as_str)
                .collect();
            let more = if more > 0 {
                format!("; and {more} more")
            } else {
                String::new()
            };
            report.fails(
                StepName::Table,
                Cause::TableDiffers,
                Certainty::Certain,
                format!(
                    "the table inet contiv is not as it should be: {}{more}",
                    named.join("; ")
                ),
                advice,
            );
        }
    }
}

/// The rules of other programs, for the first packet and for the answer.
pub(super) fn judge(evidence: &Evidence, kernel: &KernelEvidence, report: &mut Report) {
    let paths = &kernel.paths;
    let harm = |path: &PathEvidence| first_packet_harm(path, evidence);
    let harmed: Vec<_> = paths
        .iter()
        .filter_map(|path| harm(path).map(|harm| (path, harm)))
        .collect();
    if let Some((path, (code, text, advice))) = harmed.first() {
        let text = format!("{text}{}", part(harmed.len(), paths.len()));
        let text = if harmed.len() == paths.len() {
            text
        } else {
            format!("{text}, such as {}", server(path, evidence))
        };
        let certainty = match code {
            // The other source may be routed to this node.
            Cause::RuleChangesSource => Certainty::Possible,
            _ => certainty(&path.first),
        };
        report.fails(StepName::Rules, *code, certainty, text, *advice);
    }
    judge_doubts(kernel, report);
    if !report.has(StepName::Rules) {
        let passed = paths.first().map_or(0, |path| passed_chains(&path.first));
        report.step(
            StepName::Rules,
            StepState::Ok,
            match passed {
                0 => "no chain of another program sees the packet".to_owned(),
                1 => "one chain of another program lets it pass".to_owned(),
                count => format!("{count} chains of other programs let it pass"),
            },
        );
    }
}

/// How sure the end of a way is: a rule that cannot be evaluated may let the packet pass the chain before.
pub(super) fn certainty(walk: &Walk) -> Certainty {
    match walk.end {
        WalkEnd::Stopped { .. } if !walk.is_end_certain() => Certainty::Possible,
        _ => Certainty::Certain,
    }
}

fn passed_chains(walk: &Walk) -> usize {
    let is_passed = |step: &&WalkStep| matches!(step, WalkStep::Passed(_));
    walk.steps.iter().filter(is_passed).count()
}

/// What a rule of another program does to the first packet.
fn first_packet_harm(
    path: &PathEvidence,
    evidence: &Evidence,
) -> Option<(Cause, String, &'static str)> {
    let is_translated = matches!(path.own, OwnVerdict::Translated { .. });
    for step in &path.first.steps {
        match step {
            WalkStep::Untracked(rule) if is_translated => {
                return Some((
                    Cause::RuleUntracks,
                    format!(
                        "{rule} keeps conntrack from seeing the packet (notrack), so nothing translates it"
                    ),
                    "take the addresses of services out of the rule",
                ));
            }
            WalkStep::DestinationChanged { by, to } if is_translated || is_served(evidence) => {
                return Some((
                    Cause::RuleTranslates,
                    format!("{by} sends it to {to} before contiv's table sees it"),
                    "take the addresses of services out of the rule, or give its chain a later priority",
                ));
            }
            WalkStep::SourceChanged { by, to } if !path.is_source_own => {
                let to = to.map_or_else(|| "another".to_owned(), |to| to.ip().to_string());
                return Some((
                    Cause::RuleChangesSource,
                    format!(
                        "{by} gives it the source {to}, which this node does not have: the answer goes elsewhere"
                    ),
                    "take connections to services out of the rule",
                ));
            }
            _ => {}
        }
    }
    let WalkEnd::Stopped { by, kind } = &path.first.end else {
        return None;
    };
    Some(stopped(by, *kind))
}

pub(super) fn stopped(by: &RuleRef, kind: StopKind) -> (Cause, String, &'static str) {
    const SHOW: &str =
        "look at it with `nft -a list ruleset`, and let these packets pass before it";
    match kind {
        StopKind::Drops => (Cause::RuleDrops, format!("{by} drops it"), SHOW),
        StopKind::Rejects => (Cause::RuleRejects, format!("{by} refuses it"), SHOW),
        StopKind::Queues => (
            Cause::RuleQueues,
            format!(
                "{by} leaves it to a program of user space (queue), and is dropped if none listens"
            ),
            "start that program, or add `bypass` to the rule",
        ),
        StopKind::Diverts => (
            Cause::RuleTranslates,
            format!("{by} takes it out of its way (tproxy, synproxy, dup or fwd)"),
            SHOW,
        ),
    }
}

/// What a rule does with the answer.
pub(super) fn answer_harm(path: &PathEvidence) -> Option<(String, &'static str)> {
    let WalkEnd::Stopped { by, kind } = &path.answer.as_ref()?.end else {
        return None;
    };
    let (_, text, advice) = stopped(by, *kind);
    Some((format!("the answer of the server: {text}"), advice))
}

/// Rules that cannot be evaluated, and would do harm.
fn judge_doubts(kernel: &KernelEvidence, report: &mut Report) {
    let mut harmful = Vec::new();
    let links = kernel.paths.iter().filter_map(|path| path.link.as_ref());
    let has_bridge = links
        .chain(&kernel.client_link)
        .any(|link| link.kind.as_deref() == Some("bridge") || link.master.is_some());
    for path in &kernel.paths {
        let walks = std::iter::once(&path.first).chain(&path.answer);
        let doubts = walks.flat_map(|walk| &walk.doubts);
        for doubt in doubts
            .filter(|doubt| doubt.is_harmful)
            .filter(|doubt| has_bridge || !doubt.rule.base.table.starts_with("bridge "))
        {
            let table = &doubt.rule.base.table;
            let text = if table.ends_with(LEGACY) {
                format!("the tables {table}, which the kernel does not show")
            } else {
                format!("{} ({}: {})", doubt.rule, doubt.condition, doubt.effect)
            };
            if !harmful.contains(&text) {
                harmful.push(text);
            }
        }
    }
    if harmful.is_empty() {
        return;
    }
    let is_legacy = harmful.iter().any(|text| text.contains(LEGACY));
    let advice = if is_legacy {
        "look at them, and whether their counters rise with each attempt: `iptables-legacy-save -c`, ip6tables too, `nft list ruleset`"
    } else {
        "look whether their counters rise with each attempt: `nft list ruleset`"
    };
    let more = harmful.len().saturating_sub(NAMED_DOUBTS);
    harmful.truncate(NAMED_DOUBTS);
    let more = if more > 0 {
        format!("; and {more} more")
    } else {
        String::new()
    };
    report.fails(
        StepName::Rules,
        Cause::RuleUnclear,
        Certainty::Possible,
        format!(
            "rules that cannot be evaluated here may stop it: {}{more}",
            harmful.join("; ")
        ),
        advice,
    );
}
