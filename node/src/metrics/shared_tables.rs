//! The tables of the kernel that all connections share.

use contiv_renderer::shared_tables::{Loss, SharedTable, TableUse};
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

/// The metrics.
#[derive(Debug, Clone, Default)]
pub(super) struct SharedTableMetrics {
    entries: Family<TableLabel, Gauge>,
    limit: Family<TableLabel, Gauge>,
    losses: Family<LossLabels, Counter>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TableLabel {
    table: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LossLabels {
    table: &'static str,
    reason: &'static str,
}

impl SharedTableMetrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "shared_table_entries",
            "Entries of a kernel table",
            metrics.entries.clone(),
        );
        registry.register(
            "shared_table_limit",
            "The limit of its entries",
            metrics.limit.clone(),
        );
        registry.register(
            "shared_table_losses",
            "Packets or connections lost for lack of an entry",
            metrics.losses.clone(),
        );
        metrics
    }

    pub(super) fn set(&self, tables: &[TableUse]) {
        for TableUse {
            table,
            entries,
            limit,
            losses,
        } in tables
        {
            let table = table.name();
            let label = TableLabel { table };
            let value = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
            self.entries.get_or_create(&label).set(value(*entries));
            self.limit.get_or_create(&label).set(value(*limit));
            for (loss, count) in losses {
                let reason = loss.name();
                let counter = self.losses.get_or_create(&LossLabels { table, reason });
                // The kernel counts.
                counter.inc_by(count.saturating_sub(counter.get()));
            }
        }
    }

    /// Sets an example of every label.
    pub(super) fn set_examples(&self) {
        let losses = |table| match table {
            SharedTable::Conntrack => vec![Loss::Full, Loss::Evicted, Loss::Clash],
            SharedTable::Arp | SharedTable::Ndisc => vec![Loss::Full],
        };
        let example = |table| TableUse {
            table,
            entries: 0,
            limit: 0,
            losses: losses(table).into_iter().map(|loss| (loss, 0)).collect(),
        };
        self.set(&SharedTable::ALL.map(example));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_are_those_of_the_kernel() {
        let metrics = SharedTableMetrics::default();
        let table = |count| TableUse {
            table: SharedTable::Conntrack,
            entries: 3,
            limit: 9,
            losses: vec![(Loss::Full, count)],
        };
        let counted = || {
            let labels = LossLabels {
                table: "conntrack",
                reason: "full",
            };
            metrics.losses.get_or_create(&labels).get()
        };
        metrics.set(&[table(5)]);
        assert_eq!(counted(), 5);
        metrics.set(&[table(5)]);
        metrics.set(&[table(7)]);
        assert_eq!(counted(), 7);
    }
}
