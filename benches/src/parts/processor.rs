//! From stored values to the renderer's input.

use contiv_model::{NodeName, Processor, ProcessorConfig};
use contiv_tests::lab::Result;

use super::common::{SECTION, decode_error, repetitions};
use crate::{
    figures::Figure,
    statistics::{Samples, timed},
    workload::{Variant, Workload},
};

/// The number of measured changes of one endpoint.
const CHANGES: u32 = 500;

pub(super) fn measure(workload: Workload) -> Result<Vec<Figure>> {
    let figure = |name: &str, samples: &Samples| {
        Figure::new(
            SECTION,
            name,
            (workload.services, workload.backends),
            samples.median(),
        )
    };
    let (mut decode, mut combine) = (Vec::new(), Vec::new());
    for _ in 0..repetitions(workload.services) {
        let values: Vec<_> = workload.values().collect();
        let (duration, resync) = timed(|| Workload::decode(&values));
        decode.push(duration);
        let (resync, mut processor) = (
            resync.map_err(|error| decode_error(&error))?,
            Processor::new(ProcessorConfig::new(NodeName::new("node"))),
        );
        combine.push(timed(|| processor.resync(resync)).0);
    }
    let mut processor = workload.processor().map_err(|error| decode_error(&error))?;
    let mut one = Vec::new();
    for number in 0..CHANGES {
        let service = number as usize * 7919 % workload.services;
        let event = workload
            .change(service, Variant::Replaced(number))
            .map_err(|error| decode_error(&error))?;
        one.push(timed(|| processor.apply([event])).0);
    }
    Ok(vec![
        figure("decode everything", &decode.into_iter().collect()),
        figure("combine everything", &combine.into_iter().collect()),
        figure("combine one changed endpoint", &one.into_iter().collect()),
    ])
}
