//! Watches the kernel's tables that all connections share: conntrack and the neighbours. Problems are logged, and kept for
//! whoever asks.

use std::{
    collections::{BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use contiv_renderer::shared_tables::{SharedTable, TableProblem, TableUse};
use tokio::{sync::watch, time::sleep};
use tracing::{info, warn};

/// How often the tables are read: a few messages of netlink.
const INTERVAL: Duration = Duration::from_secs(10);
/// How many readings are remembered: what was lost in the last five minutes is a problem.
const REMEMBERED: usize = 30;

/// The last reading, and what is wrong.
#[derive(Debug, Clone, Default)]
pub(crate) struct SharedTables {
    /// How full each table is that can be read.
    pub(crate) tables: Vec<TableUse>,
    /// What is wrong.
    pub(crate) problems: Vec<TableProblem>,
}

/// Where the last reading is kept.
pub(crate) type SharedTablesView = watch::Receiver<Arc<SharedTables>>;

/// The readings of the last minutes, the oldest first.
#[derive(Debug, Default)]
struct Readings(VecDeque<Vec<TableUse>>);

impl Readings {
    /// Adds a reading.
    fn add(&mut self, tables: Vec<TableUse>) -> SharedTables {
        let problem = |table: &TableUse| {
            let before = self.0.iter().flatten();
            let mut before = before
                .filter(|before| before.table == table.table)
                .map(|before| &*before.losses);
            table.problem(before.next().unwrap_or_default())
        };
        let problems = tables.iter().filter_map(problem).collect();
        if self.0.len() == REMEMBERED {
            self.0.pop_front();
        }
        self.0.push_back(tables.clone());
        SharedTables { tables, problems }
    }
}

/// Reads the tables until nobody wants to know any more.
pub(crate) fn watch_tables(read: fn() -> Vec<TableUse>) -> SharedTablesView {
    let (last, view) = watch::channel(Arc::default());
    tokio::spawn(read_again_and_again(read, last));
    view
}

async fn read_again_and_again(read: fn() -> Vec<TableUse>, last: watch::Sender<Arc<SharedTables>>) {
    let (mut readings, mut known) = (Readings::default(), BTreeSet::new());
    while !last.is_closed() {
        // The kernel answers at once, but takes its locks.
        let Ok(tables) = tokio::task::spawn_blocking(read).await else {
            return;
        };
        let now = readings.add(tables);
        log_changes(&mut known, &now.problems);
        last.send_replace(Arc::new(now));
        sleep(INTERVAL).await;
    }
}

/// Logs a problem when it begins, and when it is over.
fn log_changes(known: &mut BTreeSet<SharedTable>, problems: &[TableProblem]) {
    for problem in problems {
        if known.insert(problem.table) {
            warn!("{problem}");
        }
    }
    known.retain(|table| {
        let remains = problems.iter().any(|problem| problem.table == *table);
        if !remains {
            info!(
                table = table.name(),
                "there is room again, and nothing was lost in the last minutes"
            );
        }
        remains
    });
}

#[cfg(test)]
mod tests {
    use contiv_renderer::shared_tables::Loss;

    use super::*;

    fn reading(lost: u64) -> Vec<TableUse> {
        vec![TableUse {
            table: SharedTable::Conntrack,
            entries: 1,
            limit: 100,
            losses: vec![(Loss::Evicted, lost)],
        }]
    }

    #[test]
    fn loss_is_a_problem_for_five_minutes() {
        let mut readings = Readings::default();
        let lost = |now: SharedTables| {
            now.problems
                .into_iter()
                .flat_map(|one| one.lost)
                .collect::<Vec<_>>()
        };
        assert_eq!(lost(readings.add(reading(7))), [], "before the agent began");
        assert_eq!(lost(readings.add(reading(9))), [(Loss::Evicted, 2)]);
        for _ in 0..REMEMBERED - 1 {
            assert_eq!(lost(readings.add(reading(9))), [(Loss::Evicted, 2)]);
        }
        assert_eq!(lost(readings.add(reading(9))), []);
    }

    #[test]
    fn table_that_appears_later_is_compared_with_its_first_reading() {
        let mut readings = Readings::default();
        readings.add(Vec::new());
        assert_eq!(readings.add(reading(5)).problems, []);
        assert_eq!(readings.add(reading(6)).problems.len(), 1);
    }
}
