//! Runs long simulations of the agent, and compares the model of the kernel with the kernel; `scripts/simulate` starts it.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "this is a program for a terminal"
)]

use std::{
    process::ExitCode,
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use contiv_allocator as _;
use contiv_renderer::linux::Linux;
use contiv_sim::{
    kernel::compare,
    route_world::RouteWorld,
    world::{Stats, Violation, World},
};

const USAGE: &str = "usage: contiv-simulate SECONDS [SEED]
       contiv-simulate --seed SEED
       contiv-simulate --kernel [TRANSACTIONS] [SEED]";

/// The simulated time of one world.
const WORLD_DURATION: Duration = Duration::from_secs(12 * 3600);
/// The steps of its route renderer.
const ROUTE_STEPS: usize = 300;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number =
        |at: usize, default: u64| arguments.get(at).map_or(Ok(default), |text| text.parse());
    match (
        arguments.first().map(String::as_str),
        number(1, 100_000),
        number(2, 1),
    ) {
        (Some("--kernel"), Ok(count), Ok(seed)) => {
            kernel(usize::try_from(count).unwrap_or(usize::MAX), seed)
        }
        (Some("--seed"), Ok(seed), _) => replay(seed),
        (Some(_), ..) => match (number(0, 60), number(1, 1)) {
            (Ok(seconds), Ok(seed)) => simulate(Duration::from_secs(seconds), seed),
            _ => usage(),
        },
        _ => usage(),
    }
}

fn usage() -> ExitCode {
    eprintln!("{USAGE}");
    ExitCode::from(2)
}

/// Simulates one world after another on every processor until the duration is over or an invariant is violated.
fn simulate(duration: Duration, first_seed: u64) -> ExitCode {
    let start = Instant::now();
    let threads = thread::available_parallelism().map_or(1, usize::from) as u64;
    let (results, reports) = mpsc::channel();
    thread::scope(|scope| {
        for number in 0..threads {
            let results = results.clone();
            scope.spawn(move || {
                let mut seed = first_seed + number;
                while start.elapsed() < duration {
                    let mut world = World::new(seed);
                    let result = world.run(WORLD_DURATION);
                    let mut routes = RouteWorld::new(seed);
                    let of_routes = routes.run(ROUTE_STEPS);
                    let is_violated = result.is_err() || of_routes.is_err();
                    let done = WorldResult {
                        stats: world.stats(),
                        result,
                        route_checks: routes.checks(),
                        of_routes,
                    };
                    if results.send(done).is_err() || is_violated {
                        return;
                    }
                    seed += threads;
                }
            });
        }
        drop(results);
        let (mut stats, mut worlds, mut route_checks) = (Stats::default(), 0_u64, 0);
        for done in reports {
            stats.add(done.stats);
            worlds += 1;
            route_checks += done.route_checks;
            if let Err(violation) = done.result {
                return fail(violation);
            }
            if let Err(violation) = done.of_routes {
                eprintln!("{violation}");
                return ExitCode::FAILURE;
            }
        }
        report(&stats, worlds, route_checks, start.elapsed());
        ExitCode::SUCCESS
    })
}

/// A world that has ended, and that of routes with the same seed.
struct WorldResult {
    stats: Stats,
    result: Result<(), Violation>,
    route_checks: u64,
    of_routes: Result<(), String>,
}

fn report(stats: &Stats, worlds: u64, route_checks: u64, elapsed: Duration) {
    let hours = stats.time.as_secs_f64() / 3600.0;
    let rate = hours / elapsed.as_secs_f64() * 60.0;
    let Stats {
        inputs,
        faults,
        restarts,
        rests,
        flows,
        ..
    } = stats;
    println!(
        "{hours:.0} simulated hours in {:.0} s ({rate:.0} hours a minute), {worlds} worlds: {inputs} inputs of the core, {faults} \
         faults, {restarts} restarts, {rests} comparisons with a fresh start, {flows} flows, {route_checks} comparisons of routes; \
         0 violations",
        elapsed.as_secs_f64()
    );
}

/// Simulates one world again.
fn replay(seed: u64) -> ExitCode {
    let mut world = World::new(seed);
    let start = Instant::now();
    if let Err(violation) = world.run(WORLD_DURATION) {
        return fail(violation);
    }
    let mut routes = RouteWorld::new(seed);
    if let Err(violation) = routes.run(ROUTE_STEPS) {
        eprintln!("{violation}");
        return ExitCode::FAILURE;
    }
    report(&world.stats(), 1, routes.checks(), start.elapsed());
    ExitCode::SUCCESS
}

/// Reports a violation and shrinks it: prints the smallest set of faults and events that reproduces it.
fn fail(violation: Violation) -> ExitCode {
    eprintln!(
        "{violation}again: scripts/simulate --seed {}; looking for what it needs",
        violation.seed
    );
    let (shrunk, needed) = World::shrink(violation);
    eprintln!("{shrunk}needs {needed:?}");
    ExitCode::FAILURE
}

/// Compares the model of the kernel with the real one, in this network namespace.
fn kernel(count: usize, seed: u64) -> ExitCode {
    let start = Instant::now();
    match compare::compare(&Linux, count, seed) {
        Ok(comparison) => {
            let seconds = start.elapsed().as_secs_f64();
            let compare::Comparison {
                transactions,
                messages,
                committed,
                errors,
            } = comparison;
            #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
            let rate = transactions as f64 / seconds;
            println!(
                "seed {seed}: {transactions} transactions of {messages} messages gave the same answers and the same tables in \
                 both: {committed} committed, {errors} errors; {seconds:.1} s, {rate:.0} transactions/s"
            );
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
