//! External workloads that no controller serves. A controller needs a moment for a new workload, so they are reported only after
//! a while.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use contiv_store::Problem;

/// How long a controller may take for a workload: much longer than it needs, unless it is to take over from another one.
const CONTROLLER_LIMIT: Duration = Duration::from_secs(10);

/// The warnings of workloads, each with the time when it is due; none if it was.
#[derive(Debug, Default)]
pub(super) struct UnservedWorkloads {
    due: BTreeMap<Problem, Option<Instant>>,
}

impl UnservedWorkloads {
    /// Replaces the workloads. New ones are due later.
    pub(super) fn replace(&mut self, workloads: Vec<Problem>, now: Instant) {
        let before = std::mem::take(&mut self.due);
        let due = |workload| {
            let due = before
                .get(&workload)
                .copied()
                .unwrap_or(Some(now + CONTROLLER_LIMIT));
            (workload, due)
        };
        self.due = workloads.into_iter().map(due).collect();
    }

    /// When the next one is due.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.due.values().flatten().min().copied()
    }

    /// Those that are due.
    pub(super) fn take_due(&mut self, now: Instant) -> Vec<Problem> {
        for due in self.due.values_mut() {
            due.take_if(|due| *due <= now);
        }
        self.due
            .iter()
            .filter(|(_, due)| due.is_none())
            .map(|(workload, _)| workload.clone())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use std::slice;

    use super::*;

    #[test]
    fn workload_is_due_once_and_stays_due_whatever_else_comes() {
        let workload = |name: &str| Problem {
            source: name.to_owned(),
            object: None,
            field: None,
            reason: String::new(),
            is_warning: true,
        };
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let (a, b) = (workload("a"), workload("b"));
        let mut unserved = UnservedWorkloads::default();
        unserved.replace(vec![a.clone()], start);
        unserved.replace(vec![a.clone(), b.clone()], start + 6 * second);
        assert_eq!(
            unserved.deadline(),
            Some(start + CONTROLLER_LIMIT),
            "another one does not extend it"
        );
        assert_eq!(
            unserved.take_due(start + CONTROLLER_LIMIT),
            slice::from_ref(&a)
        );
        unserved.replace(vec![a.clone(), b.clone()], start + 12 * second);
        assert_eq!(unserved.take_due(start + 12 * second), slice::from_ref(&a));
        assert_eq!(
            unserved.deadline(),
            Some(start + 6 * second + CONTROLLER_LIMIT)
        );
        // One that was served meanwhile has its whole time again.
        unserved.replace(vec![b.clone()], start + 16 * second);
        unserved.replace(vec![a, b.clone()], start + 17 * second);
        assert_eq!(unserved.take_due(start + 17 * second), [b]);
        assert_eq!(
            unserved.deadline(),
            Some(start + 17 * second + CONTROLLER_LIMIT)
        );
    }
}
