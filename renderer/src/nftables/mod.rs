//! The nftables renderer: services become elements of maps, programmed through netlink without the `nft` binary.
//!
//! ```text
//! ContivService ─ plan ─► elements ─ table (remembered) ─► transaction ─ encode ─► batch ─ netlink ─► kernel
//! ```

mod balance;
pub(crate) mod conntrack;
mod desired;
mod explain;
mod failover;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod heal;
mod kernel;
mod layout;
pub(crate) mod netlink;
mod verify;

use std::{
    borrow::Cow,
    mem,
    sync::{Arc, mpsc::Receiver},
};

use contiv_model::{ChangeSet, ContivService, ServicePort, Snapshot};

use self::{
    balance::remove_balance_table,
    conntrack::{Services, StaleFlowReaper, programmed, remove_attempt_table},
    desired::{
        capacity::{self, Remade},
        carriers,
        existing_elements::Elements,
        table::Table,
    },
    explain::text,
    failover::remove_failover_table,
    kernel::{
        ahead::PrefetchedElements,
        apply, loopback, modules,
        ownership::Ownership,
        read::{self, TableHeader},
        refused,
        watch::{ForeignTableChange, TableWatch},
    },
    layout::{KernelModule, Set},
    netlink::{Batch, NetlinkError, Socket},
};
pub use self::{
    balance::{BalanceCounts, BalanceTable},
    conntrack::StaleFlowObserver,
    desired::capacity::COMPARE_LIMIT,
    explain::{
        counters,
        evaluate::{Choice, Client, Evaluation, FlowOutcome, PodDetection, Share, differences},
        inspect::{InspectError, Inspector, OtherChain, TableContent, table_content},
    },
    failover::{BackendAttempts, FailoverTable, Refusals},
    kernel::offline,
    layout::NewConnections,
    verify::TableVerifier,
};
pub(crate) use self::{
    desired::element::{Element, FrontendKey, Value},
    layout::{Family, OWN_TABLES, TABLE},
};
use crate::{
    Description, RenderError, Renderer, Report, Verifier, Watch, kernel::Kernel, linux::Linux,
};

/// The number of unused chains that are kept until the next resync. A new chain costs several validations of the whole table,
/// while an element that jumps to an existing chain costs one; and most services that lose a backend get another.
const SPARE_CHAINS: usize = 64;

/// Programs the kernel's nf_tables.
#[derive(Debug)]
pub struct Nftables {
    kernel: Arc<dyn Kernel>,
    socket: Option<Socket>,
    /// Elements that were read before the first resync, to speed it up.
    ahead: Option<PrefetchedElements>,
    /// None until the first resync, and after a failure: then the kernel's state is unknown.
    table: Option<Table>,
    /// What was last programmed successfully. Kept after a failure: flows to those backends may be stale.
    last_programmed: Snapshot,
    /// Foreign changes that were not handled yet.
    foreign_changes: Option<Receiver<ForeignTableChange>>,
    reaper: StaleFlowReaper,
    /// The optional modules that the kernel lacks; none until they were determined.
    missing: Option<Vec<KernelModule>>,
    /// The table should be owned; whether the kernel supports that is checked later.
    keeps_others_out: bool,
    ownership: Ownership,
}

impl Nftables {
    /// A renderer that opens its socket at the first call. Other processes can change its table.
    pub fn new() -> Self {
        Self::on(Linux::shared())
    }

    /// A renderer whose table no other process can change or remove while it lives, if the kernel supports that.
    pub fn owning() -> Self {
        Self::owning_on(Linux::shared())
    }

    /// The same as [`Self::new`], on a kernel of the caller's choice.
    pub fn on(kernel: Arc<dyn Kernel>) -> Self {
        Self {
            reaper: StaleFlowReaper::new(Arc::clone(&kernel)),
            kernel,
            socket: None,
            ahead: None,
            table: None,
            last_programmed: Snapshot::default(),
            foreign_changes: None,
            missing: None,
            keeps_others_out: false,
            ownership: Ownership::default(),
        }
    }

    /// The same as [`Self::owning`], on a kernel of the caller's choice.
    pub fn owning_on(kernel: Arc<dyn Kernel>) -> Self {
        Self {
            keeps_others_out: true,
            ..Self::on(kernel)
        }
    }

    /// The same, with an observer of the searches for stale flows.
    #[must_use]
    pub fn observed_by(mut self, observer: Option<Arc<dyn StaleFlowObserver>>) -> Self {
        self.reaper.observe(observer);
        self
    }

    /// The error for the caller. If a missing module may be the reason, the next attempt determines which.
    fn failed(&mut self, action: &str, error: &NetlinkError) -> RenderError {
        if modules::may_be_missing(error) {
            self.missing = None;
        }
        error.with_advice(action)
    }

    fn socket(&mut self) -> Result<&mut Socket, NetlinkError> {
        if let Some(socket) = self.socket.take() {
            return Ok(self.socket.insert(socket));
        }
        Ok(self
            .socket
            .insert(Socket::open(&self.kernel).map_err(modules::explain_open_error)?))
    }

    /// The optional modules that the kernel lacks. The first call determines them by a trial transaction.
    fn missing_modules(&mut self) -> Result<&[KernelModule], NetlinkError> {
        if self.missing.is_none() {
            self.missing = Some(modules::missing_optional(self.socket()?)?);
        }
        Ok(self.missing.as_deref().unwrap_or_default())
    }

    /// The desired ownership of the table. The first call checks by a trial transaction whether the kernel supports it.
    fn ownership(&mut self) -> Result<Ownership, NetlinkError> {
        if self.keeps_others_out {
            self.ownership = Ownership::owned_if_possible(self.socket()?)?;
            self.keeps_others_out = false;
        }
        Ok(self.ownership)
    }

    fn read_ahead(&mut self) -> Result<Option<PrefetchedElements>, NetlinkError> {
        // These are transactions, which would invalidate elements that were read before.
        self.missing_modules()?;
        self.ownership()?;
        PrefetchedElements::read(self.socket()?)
    }

    fn try_resync(&mut self, snapshot: &Snapshot) -> Result<Report, NetlinkError> {
        self.table = None;
        let ahead = self.ahead.take();
        // The resync covers all of these changes.
        self.foreign_changes
            .iter()
            .flat_map(Receiver::try_iter)
            .for_each(drop);
        let _programming = self.reaper.coming(snapshot.services.values());
        let ownership = self.ownership()?;
        let socket = self.socket()?;
        let found = read::table_header(socket)?;
        refuse_a_table_of_others(found, socket.port())?;
        let mut existing = if found.is_some() {
            Some(read::existing(socket)?)
        } else {
            None
        };
        if let (Some(existing), Some(found)) = (&mut existing, &found) {
            existing.usable &= ownership.accepts(found);
        }
        let is_replaced = existing.as_ref().is_some_and(|existing| !existing.usable);
        let usable = existing.filter(|existing| existing.usable);
        if let Some(existing) = &usable {
            loopback::disable(socket, existing, Some(&snapshot.node))?;
        }
        let is_compared = usable.is_some() && estimated_elements(snapshot) <= COMPARE_LIMIT;
        let elements = match &usable {
            None => Elements::default(),
            Some(existing) if is_compared => {
                let ahead = ahead
                    .map(|ahead| ahead.elements(socket))
                    .transpose()?
                    .flatten();
                ahead.map_or_else(|| read::elements(socket, existing), Ok)?
            }
            Some(existing) => read::remembered_clients_only(socket, existing)?,
        };
        let backends = elements
            .frontends
            .iter()
            .map(|(frontend, elements)| (*frontend, programmed(elements)));
        let found_backends = backends.collect();
        let with_previous_carriers = carriers::with_previous_carriers(snapshot, &elements);
        let snapshot = with_previous_carriers.map_or(Cow::Borrowed(snapshot), Cow::Owned);
        let (table, mut transaction) = Table::resync(&snapshot, elements);
        let mut batch = Batch::new();
        if let Some((existing, found)) = usable.as_ref().zip(found.as_ref()) {
            apply::set_flags(socket, found, ownership.flags(Some(found)))?;
            let sizes = table.sizes(socket.batch_limit());
            // A table of an earlier layout is migrated: its sets are replaced by those of this one.
            let missing = Set::all().filter(|set| !existing.shaped.contains(set));
            let mut remade: Remade = missing.map(|set| (set, sizes.get(&set).copied())).collect();
            // Emptying a large set costs the kernel more than creating it again.
            let mut others = sizes;
            if is_compared {
                others =
                    capacity::outgrown(&existing.sizes, &table.counts(), &transaction.removed());
                others.retain(|set, _| existing.shaped.contains(set));
                if !transaction.adds_all {
                    table.refill(&others, &mut transaction);
                }
            }
            remade.extend(others.into_iter().map(|(set, size)| (set, Some(size))));
            transaction.flush.retain(|set| !remade.contains_key(set));
            apply::write_repair(&mut batch, existing, &remade, table.pod_ranges());
        } else {
            let sizes = table.sizes(socket.batch_limit());
            let flags = ownership.flags(None);
            apply::write_fresh(&mut batch, is_replaced, flags, &sizes, table.pod_ranges());
        }
        let limit = socket.batch_limit();
        let limit = if found.is_none() {
            limit.min(apply::NEW_TABLE_BATCH_BYTES)
        } else {
            limit
        };
        let mut report = apply::commit(socket, batch, transaction, &table, limit)?;
        loopback::enable(&**socket.kernel(), &snapshot.node);
        apply::remove_leftovers(socket, &usable.unwrap_or_default(), &table, &mut report);
        let before = mem::replace(&mut self.last_programmed, snapshot.into_owned());
        self.reaper
            .reconciled(&self.last_programmed, before.services, found_backends);
        self.table = Some(table);
        Ok(report)
    }

    fn try_update(
        &mut self,
        table: &mut Table,
        changes: &ChangeSet,
    ) -> Result<Report, NetlinkError> {
        let transaction = table.update(&self.last_programmed.services, changes);
        let _programming = self.reaper.coming(
            changes
                .services
                .values()
                .filter_map(|change| change.new.as_ref()),
        );
        let mut report = Report::default();
        if !transaction.is_empty() {
            let socket = self.socket()?;
            let limit = socket.batch_limit();
            report = apply::commit(socket, Batch::new(), transaction, table, limit)?;
            let unused = table.unused_chains();
            if unused.len() > SPARE_CHAINS
                && apply::remove_chains(socket, &unused, &mut report).is_ok()
            {
                table.forget_unused_chains();
            }
        }
        self.last_programmed.apply(changes);
        self.reaper.changed(changes, &self.last_programmed.services);
        Ok(report)
    }

    /// Repairs the reported changes. None if there may be more: then everything must be compared.
    fn try_heal(&mut self) -> Result<Option<Report>, NetlinkError> {
        // Taken out, so that it is gone if anything fails.
        let Some(mut table) = self.table.take() else {
            return Ok(None);
        };
        let foreign_changes = self
            .foreign_changes
            .iter()
            .flat_map(Receiver::try_iter)
            .collect();
        let Some(repair) = heal::repair(&table, foreign_changes) else {
            return Ok(None);
        };
        let ownership = self.ownership;
        let report = heal::execute(self.socket()?, &mut table, repair, ownership)?;
        if report.is_some() {
            self.table = Some(table);
        }
        Ok(report)
    }

    fn try_cleanup(&mut self) -> Result<Report, NetlinkError> {
        self.table = None;
        let socket = self.socket()?;
        remove_attempt_table(socket)?;
        remove_failover_table(socket)?;
        remove_balance_table(socket)?;
        let Some(found) = read::table_header(socket)? else {
            return Ok(Report::default());
        };
        refuse_a_table_of_others(Some(found), socket.port())?;
        let existing = read::existing(socket)?;
        loopback::disable(socket, &existing, None)?;
        let mut batch = Batch::new();
        apply::write_removal(&mut batch);
        let bytes = socket.commit(batch)?;
        Ok(Report {
            removed: 1,
            transactions: 1,
            bytes,
            ..Report::default()
        })
    }
}

impl Default for Nftables {
    fn default() -> Self {
        Self::new()
    }
}

impl Renderer for Nftables {
    fn name(&self) -> &'static str {
        "nftables"
    }

    fn prepare(&mut self) {
        // The resync meets the same error, and reports it.
        self.ahead = self.read_ahead().unwrap_or_default();
    }

    fn resync(&mut self, snapshot: &Snapshot) -> Result<Report, RenderError> {
        self.table = None;
        // A missing module may have been loaded.
        self.missing.take_if(|missing| !missing.is_empty());
        let missing = self.missing_modules().map(<[_]>::to_vec);
        let missing = missing.map_err(|error| self.failed("resync the table", &error))?;
        refused::check_missing_modules(&missing, snapshot.services.values())?;
        let report = self.try_resync(snapshot).map_err(|error| {
            let services = refused::refused_services(&error, snapshot.services.values());
            if services.is_empty() {
                self.failed("resync the table", &error)
            } else {
                RenderError::Refused { services }
            }
        })?;
        Ok(report)
    }

    fn update(&mut self, changes: &ChangeSet) -> Result<Report, RenderError> {
        if self.table.is_none() {
            return Err(RenderError::Unsynced);
        }
        let new = || {
            changes
                .services
                .values()
                .filter_map(|change| change.new.as_ref())
        };
        refused::check_missing_modules(self.missing.as_deref().unwrap_or_default(), new())?;
        // Taken out, so that it is gone if anything fails.
        let Some(mut table) = self.table.take() else {
            return Err(RenderError::Unsynced);
        };
        let report = self.try_update(&mut table, changes).map_err(|error| {
            // The caller resyncs first: foreign changes may be the cause.
            if refused::is_element_refused(&error) {
                RenderError::Refused {
                    services: refused::refused_services(&error, new()),
                }
            } else {
                self.failed("update the table", &error)
            }
        })?;
        self.table = Some(table);
        Ok(report)
    }

    fn watch(&mut self) -> Result<Option<Box<dyn Watch>>, RenderError> {
        let started = self.socket().and_then(TableWatch::start);
        let (watch, foreign_changes) =
            started.map_err(|error| error.with_advice("listen to changes of the table"))?;
        self.foreign_changes = Some(foreign_changes);
        Ok(Some(Box::new(watch)))
    }

    fn heal(&mut self, snapshot: &Snapshot) -> Result<Report, RenderError> {
        match self.try_heal() {
            Ok(Some(report)) => {
                if report.transactions > 0 {
                    // Flows may have begun meanwhile without any rule.
                    self.reaper
                        .reconciled(&self.last_programmed, Services::new(), Vec::new());
                }
                Ok(report)
            }
            // There may be more foreign changes; or the kernel refused the repair, perhaps because of foreign changes.
            Ok(None) | Err(NetlinkError::Refused { .. }) => self.resync(snapshot),
            Err(error) => Err(self.failed("repair the table", &error)),
        }
    }

    fn verifier(&self) -> Option<Box<dyn Verifier>> {
        Some(Box::new(TableVerifier::on(Arc::clone(&self.kernel))))
    }

    fn describe(&self) -> Description {
        let Some(table) = &self.table else {
            return Description::default();
        };
        let elements = table.elements();
        let size = |set: Set| {
            (
                set.name(),
                elements.iter().filter(|element| element.set == set).count(),
            )
        };
        let flows = self
            .reaper
            .totals()
            .map(|(name, total)| (name.to_owned(), total));
        Description {
            services: self.last_programmed.services.len(),
            sizes: Set::all().map(size).chain(flows).collect(),
            text: text::ruleset(table, &self.last_programmed.services),
        }
    }

    fn cleanup(&mut self) -> Result<Report, RenderError> {
        self.try_cleanup()
            .map_err(|error| error.with_advice("remove the table"))
    }
}

/// The kernel itself would answer only "Operation not permitted".
fn refuse_a_table_of_others(found: Option<TableHeader>, port: u32) -> Result<(), NetlinkError> {
    match found
        .and_then(|found| found.owner)
        .filter(|owner| *owner != port)
    {
        None => Ok(()),
        Some(owner) => Err(NetlinkError::Socket {
            action: "change the table",
            source: std::io::Error::other(format!(
                "another process owns it (netlink port {owner}, which mostly is its pid): stop that one first"
            )),
        }),
    }
}

/// A cheap estimate of a snapshot's number of elements, mostly a little too high.
fn estimated_elements(snapshot: &Snapshot) -> usize {
    let of_service = |service: &Arc<ContivService>| {
        let addresses = service.cluster_ips.len() + service.external_ips.len();
        let of_port = |port: &ServicePort| {
            // A node port is a frontend in each family.
            let frontends = addresses + port.node_port.map_or(0, |_| Family::ALL.len());
            // One element for each slot, twice if outside clients have their own; and a few besides.
            frontends * (2 * port.backends.len() + 4)
        };
        service.ports.iter().map(of_port).sum::<usize>()
    };
    snapshot.services.values().map(of_service).sum()
}

/// The ruleset for a snapshot on an empty kernel, in nft's language.
pub(crate) fn ruleset(snapshot: &Snapshot) -> String {
    text::ruleset(&Table::new(snapshot), &snapshot.services)
}

/// The elements for a snapshot on an empty kernel, as name of the set and text, in the order of the text.
pub(crate) fn element_lines(snapshot: &Snapshot) -> Vec<(String, String)> {
    let elements = Table::new(snapshot).elements();
    elements
        .iter()
        .map(|element: &Element| (element.set.name(), element.to_string()))
        .collect()
}
