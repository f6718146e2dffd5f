/// The switch of the mutants of this crate.
mod contiv_mutant {
    use std::{
        env,
        fs::File,
        io::Write,
        sync::{
            Mutex,
            atomic::{AtomicU32, Ordering::Relaxed},
        },
    };

    const UNKNOWN: u32 = u32::MAX;
    const RECORDING: u32 = u32::MAX - 1;

    /// The number of the mutant that is switched on; 0 if none is.
    static SELECTED: AtomicU32 = AtomicU32::new(UNKNOWN);

    /// The mutants that were reached, and the file with their numbers.
    static REACHED: Mutex<(Vec<bool>, Option<File>)> = Mutex::new((Vec::new(), None));

    /// Whether this mutant is switched on.
    pub(crate) fn is(number: u32) -> bool {
        match SELECTED.load(Relaxed) {
            UNKNOWN => {
                select();
                is(number)
            }
            RECORDING => {
                record(number);
                false
            }
            selected => selected == number,
        }
    }

    fn select() {
        if let Some(path) = env::var_os("PLANTED_MUTANTS_REACHED") {
            let file = File::options().create(true).append(true).open(path).ok();
            REACHED.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).1 = file;
            SELECTED.store(RECORDING, Relaxed);
        } else {
            let number = env::var("PLANTED_MUTANT").ok().and_then(|number| number.parse().ok());
            SELECTED.store(number.unwrap_or(0), Relaxed);
        }
    }

    fn record(number: u32) {
        let mut reached = REACHED.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let (seen, file) = &mut *reached;
        let index = number as usize;
        if seen.len() <= index {
            seen.resize(index + 1, false);
        }
        if !std::mem::replace(&mut seen[index], true)
            && let Some(file) = file
        {
            drop(file.write_all(format!("{number}\n").as_bytes()));
        }
    }
}
