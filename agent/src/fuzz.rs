//! Properties of the configuration, for any input. Fuzzers search for input that breaks one (`fuzz/`).

use contiv_model::{InterfacePattern, LocalDetect, NodePortAddresses};
use contiv_renderer::route::AddressKind;

use crate::{
    cli,
    config::{OptionalAddress, RendererName, Settings as _, check, file},
    logging,
    round_trip::reads_back,
};

/// `input` is a configuration file.
///
/// # Panics
/// When it does not round-trip, or an error names neither line nor key.
pub fn configuration(input: &[u8]) {
    const FILE: &str = "agent.toml";
    let Ok(text) = str::from_utf8(input) else {
        return;
    };
    match file::parse(FILE, text) {
        Ok(config) => {
            let problems = check::problems(&config);
            assert!(
                problems.iter().all(|problem| problem.contains(": ")),
                "{problems:?}"
            );
            let printed = config
                .to_toml()
                .unwrap_or_else(|error| panic!("{config:?}: {error}"));
            assert_eq!(
                file::parse(FILE, &printed).as_ref(),
                Ok(&config),
                "{printed}"
            );
        }
        Err(error) => {
            let is_located = |problem: &String| {
                let rest = problem
                    .strip_prefix(FILE)
                    .and_then(|rest| rest.strip_prefix(':'));
                rest.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
            };
            assert!(
                !error.0.is_empty() && error.0.iter().all(is_located),
                "{error}"
            );
        }
    }
}

/// `input` is the value of a flag: tried for each flag with a form of its own.
///
/// # Panics
/// When it does not round-trip, or an error is empty.
pub fn flag(input: &[u8]) {
    let Ok(text) = str::from_utf8(input) else {
        return;
    };
    reads_back::<LocalDetect>(text);
    reads_back::<NodePortAddresses>(text);
    reads_back::<InterfacePattern>(text);
    reads_back::<OptionalAddress>(text);
    reads_back::<RendererName>(text);
    reads_back::<AddressKind>(text);
    cli::fuzz::flag(text);
    if let Ok(filter) = logging::filter(text) {
        let printed = filter.to_string();
        assert!(
            logging::filter(&printed).is_ok(),
            "{text:?} prints as {printed:?}"
        );
    }
    if let Ok(time) = humantime::parse_duration(text) {
        assert_eq!(
            humantime::parse_duration(&humantime::format_duration(time).to_string()),
            Ok(time)
        );
    }
}

#[cfg(test)]
mod tests {
    include!("../../fuzz/replay.rs");

    #[test]
    fn corpus_of_configurations_breaks_no_property() {
        replay("configuration", super::configuration);
    }

    #[test]
    fn corpus_of_flags_breaks_no_property() {
        replay("flags", super::flag);
    }
}
