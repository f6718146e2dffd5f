//! Faults of etcd.

use std::{thread, time::Duration};

use contiv_tests::{
    cluster::{Backup, Etcd, Isolation},
    lab::{Result, wait_for},
};
use nix::sys::signal::Signal;
use rand::{RngExt, SeedableRng, rngs::StdRng};

use super::{
    changes,
    run_state::{EVENT_TIMEOUT, RunState, put_until_accepted},
    tally::Tally,
};

/// Separates the random numbers of the store's faults from others with the same seed.
const STREAM: u64 = 0x5707_0000;

pub(super) struct StoreFaults<'run, 'lab> {
    scene: &'run RunState<'lab>,
    etcd: Etcd<'lab>,
    backup: Option<Backup>,
    random: StdRng,
    tally: Tally,
}

impl<'run, 'lab> StoreFaults<'run, 'lab> {
    pub(super) fn new(scene: &'run RunState<'lab>, etcd: Etcd<'lab>, seed: u64) -> Self {
        let random = StdRng::seed_from_u64(seed ^ STREAM);
        Self {
            scene,
            etcd,
            backup: None,
            random,
            tally: Tally::default(),
        }
    }

    /// One fault after the other, each of which is repaired.
    pub(super) fn run_faults(mut self) -> Result<(Etcd<'lab>, Tally)> {
        while !self.scene.is_over() {
            self.inject_fault()?;
            thread::sleep(Duration::from_millis(self.random.random_range(0..1500)));
        }
        Ok((self.etcd, self.tally))
    }

    fn inject_fault(&mut self) -> Result<()> {
        let member = self.random.random_range(0..self.etcd.count());
        match self.random.random_range(0..20) {
            0..4 => {
                self.tally.count("a member of etcd killed");
                self.etcd.kill_member(member)?;
                self.last(3000);
                self.etcd.start_member_again(member)
            }
            4..7 => {
                self.tally.count("a member of etcd paused");
                self.etcd.signal_member(member, Signal::SIGSTOP)?;
                self.last(8000);
                self.etcd.signal_member(member, Signal::SIGCONT)
            }
            7..10 => self.cut_off(
                member,
                Isolation::All,
                "a member of etcd cut off from everybody",
            ),
            10..13 => self.cut_off(
                member,
                Isolation::Members,
                "a member of etcd cut off from the other members",
            ),
            13 => {
                self.tally.count("all members of etcd killed");
                self.etcd.kill()?;
                self.last(3000);
                self.etcd.start_again()
            }
            14..16 => {
                // This may fail while a member is down; it is tried again later.
                if self.etcd.compact().is_ok() {
                    self.tally.count("etcd compacted");
                }
                Ok(())
            }
            16 | 17 => {
                self.backup = Some(self.when_ready(|etcd| etcd.back_up(member))?);
                self.tally.count("etcd backed up");
                Ok(())
            }
            18 => self.restore(),
            _ => self.wipe(),
        }
    }

    fn cut_off(&mut self, member: usize, cut: Isolation, what: &'static str) -> Result<()> {
        self.tally.count(what);
        self.etcd.cut_off(member, cut)?;
        self.last(8000);
        self.etcd.rejoin(member)
    }

    /// All members forget what was written after the backup.
    fn restore(&mut self) -> Result<()> {
        let Some(backup) = &self.backup else {
            return Ok(());
        };
        self.etcd.restore(backup)?;
        self.tally.count("etcd restored from a backup");
        Ok(())
    }

    /// All data is lost; after a while it is written again, in another order.
    fn wipe(&mut self) -> Result<()> {
        // In this order, so that changes continue while this waits for the node.
        let _mirror_removal = self.scene.mirror_removal.write();
        let _store_writes = self.scene.store_writes.write();
        self.etcd.wipe()?;
        self.tally.count("etcd wiped");
        self.last(2000);
        self.when_ready(|etcd| etcd.put_nodes())?;
        put_until_accepted(&self.etcd, &self.scene.steady)?;
        (0..changes::NAMES.len())
            .try_for_each(|number| put_until_accepted(&self.etcd, &changes::service(number)))?;
        Ok(())
    }

    /// Repeats a request that fails while members are down.
    fn when_ready<T>(&self, request: impl Fn(&Etcd<'lab>) -> Result<T>) -> Result<T> {
        wait_for("etcd does as asked", EVENT_TIMEOUT, || {
            request(&self.etcd).ok()
        })
    }

    /// Keeps a fault for a while.
    fn last(&mut self, milliseconds: u64) {
        thread::sleep(Duration::from_millis(
            self.random.random_range(100..milliseconds),
        ));
    }
}
