//! Words that this repository no longer uses, since Kubernetes, netfilter or etcd have others for the same things.

use std::fs;

use crate::workspace::{files, root};

/// Files that may contain the words: the history of changes, and this table.
const EXCEPT: [&str; 2] = ["CHANGELOG.md", "tests/tests/repository/words.rs"];

/// Names that occur nowhere, and the names in use.
const NAMES: [(&str, &str); 22] = [
    ("may_speak", "LogRateLimiter::allow"),
    ("take_look", "on_verification"),
    ("DecodedAhead", "PageDecoder"),
    ("Preview", "ListObserver"),
    ("Hinted", "TopologyHint"),
    ("beat_during", "report_while"),
    ("eternal", "always_leader"),
    ("GLANCE", "SPIN_INTERVAL"),
    ("Suspects", "StaleFlowFilter"),
    ("DamagedElements", "ForeignChangeCollector"),
    ("Bisecting", "PoisonIsolator"),
    ("hand_over", "reassign_carrier, or the verb of the message"),
    ("Judgement", "DeletionDecision"),
    ("Intake", "DecodedChanges"),
    ("Whom", "TraceTarget, or a noun"),
    ("Tenure", "LeaseTerm"),
    ("SetAside", "Quarantined"),
    ("set_aside", "quarantined"),
    (
        "PATIENCE",
        "a name with the role, such as RENDERER_STALL_TIMEOUT",
    ),
    ("Happening", "NewRecord"),
    ("Obstacle", "DirectRoutingBlocker"),
    ("Looked", "VerificationReport"),
];

/// English words that are the name of no type or function, and the names in use.
const DEFINITIONS: [(&str, &str); 38] = [
    ("Voice", "LogRateLimiter"),
    ("Look", "VerificationReport"),
    ("Covers", "EventRange"),
    ("Moment", "Timestamps"),
    ("Ahead", "PageDecoder"),
    ("Shown", "ListObserver"),
    ("Followed", "StoreHandle"),
    ("Touched", "DirtySet"),
    ("Names", "StringInterner"),
    ("Combined", "ServiceRecord"),
    ("Relation", "MultiIndex"),
    ("Least", "MinValue"),
    ("Hit", "MatchedPort"),
    ("Pulse", "LivenessProbe"),
    ("Heart", "LivenessReporter"),
    ("Sides", "SourceAndStored"),
    ("Heard", "SourceEvent"),
    ("doubt", "mark_stale"),
    ("Reflection", "MirrorController"),
    ("Settle", "Debounce"),
    ("Lead", "RouteTarget"),
    ("Way", "NextHop"),
    ("Ways", "NextHopResolver"),
    ("Numbers", "IdAllocator"),
    ("Turns", "ProgrammingSeqlock"),
    ("Cleaner", "StaleFlowReaper"),
    ("Found", "TableHeader"),
    ("Existing", "KernelTable"),
    ("Planned", "DesiredElements"),
    ("Programmed", "ProgrammedElements"),
    ("Damage", "ForeignChange"),
    ("Room", "ResponseBudget, SharedListeners"),
    ("Held", "BudgetedResponse"),
    ("Settled", "RendererReport"),
    ("Done", "WorkDone"),
    ("Which", "ObjectSelector"),
    ("Wanted", "ResourceRequest"),
    ("Desire", "DesiredStateSource"),
];

/// Prose that occurs nowhere, in lower case, and the prose in use.
const PROSE: [(&str, &str); 8] = [
    ("the books", "the state"),
    ("gives way", "yields"),
    ("give way", "yield"),
    ("has its turn", "is scheduled"),
    ("is its turn", "is scheduled"),
    ("in force", "active"),
    ("taken in", "handled"),
    ("by another hand", "by another writer"),
];

/// Words that no number follows: readers do not have this project's lists.
const NUMBERED: [(&str, &str); 2] = [
    ("complaint ", "the subject itself"),
    ("issue ", "the public thread, such as etcd-io/etcd#15220"),
];

const KEYWORDS: [&str; 6] = ["struct", "enum", "trait", "type", "union", "fn"];

/// The words in a line that are not to be used, each with the word in use.
fn old_words(line: &str) -> Vec<(&'static str, &'static str)> {
    let mut found = Vec::new();
    let mut before = "";
    for word in line
        .split(|c: char| !c.is_alphanumeric() && c != '_')
        .filter(|word| !word.is_empty())
    {
        found.extend(NAMES.iter().filter(|(name, _)| *name == word));
        if KEYWORDS.contains(&before) {
            found.extend(DEFINITIONS.iter().filter(|(name, _)| *name == word));
        }
        before = word;
    }
    let lower = line.to_ascii_lowercase();
    found.extend(PROSE.iter().filter(|(prose, _)| lower.contains(prose)));
    let is_numbered = |word: &str| {
        let mut rest = lower
            .match_indices(word)
            .map(|(start, _)| &lower[start + word.len()..]);
        rest.any(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    found.extend(NUMBERED.iter().filter(|(word, _)| is_numbered(word)));
    found
}

#[test]
fn repository_has_none_of_the_old_words() {
    let root = root();
    let mut all = Vec::new();
    files(&root, &mut all);
    let mut wrong = Vec::new();
    let mut count = 0;
    for path in all {
        let name = path
            .strip_prefix(&root)
            .expect("a file of the repository")
            .display()
            .to_string();
        // Files that are not text have no words.
        let Ok(text) = fs::read_to_string(&path) else {
            continue;
        };
        if EXCEPT.contains(&name.as_str()) {
            continue;
        }
        count += 1;
        for (number, line) in (1..).zip(text.lines()) {
            let words = old_words(line).into_iter();
            wrong.extend(
                words.map(|(old, new)| format!("{name}:{number}: {old:?}; in use is: {new}")),
            );
        }
    }
    wrong.sort_unstable();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count > 1000, "{count} files were read");
}

#[test]
fn old_word_is_found_as_a_whole_word_only() {
    let found = |line| {
        old_words(line)
            .into_iter()
            .map(|(old, _)| old)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        found("    pub(super) fn may_speak(&mut self) {"),
        ["may_speak"]
    );
    assert_eq!(found("struct Way<'a> {"), ["Way"]);
    assert_eq!(
        found("// In force is what was applied last; see the Whom of it."),
        ["Whom", "in force"]
    );
    assert_eq!(found("// Complaint 7; the issue is known"), ["complaint "]);
    assert_eq!(
        found("struct Ways2; fn may_speak_up() {} // Way, Turns into"),
        [] as [&str; 0]
    );
}
