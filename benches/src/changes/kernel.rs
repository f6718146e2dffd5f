//! The kernel alone: the very messages of each change, encoded before and sent unchanged.

use contiv_renderer::nftables::offline::OfflineTable;
use contiv_tests::lab::{Lab, Result};

use super::common::{ROUNDS, Times, by_kind, service};
use crate::{
    command::run,
    netlink::Kernel,
    parts::decode_error,
    workload::{SingleChange, Workload},
};

pub(super) fn measure(lab: &Lab, workload: Workload) -> Result<Times> {
    let mut processor = workload.processor().map_err(|error| decode_error(&error))?;
    lab.node2.run(|| {
        let kernel = Kernel::open()?;
        let (mut table, batches) = OfflineTable::resync(&processor.snapshot(), kernel.batch_limit);
        kernel.commit(&batches)?;
        let mut times = Vec::new();
        for round in 0..ROUNDS {
            for kind in SingleChange::ALL {
                let event = kind.event(workload, service(workload, round), round);
                let changes = processor.apply([event.map_err(|error| decode_error(&error))?]);
                times.push((kind, kernel.commit(&table.update(&changes))?));
            }
        }
        run(&["nft", "delete table inet contiv"])?;
        Ok(by_kind(&times))
    })
}
