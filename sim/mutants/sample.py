#!/usr/bin/env python3
"""Plants a random sample of the mutants that cargo-mutants lists, and runs the tests and the simulation on each.

  scripts/mutants --sample N --seed S [S…] [--worlds N] [--jobs N] [--again] [--only TEXT] [--table]

Each seed selects N mutants of model, the core of the agent, renderer, store and controller, as many of each as it has of all. Each mutant
is tested by the tests of its crate that reach it, the quickest first, and by N worlds (8) of the simulation. If both found nothing: by
the tests of other crates that reach it, and then by at most eight tests with packets or of the command line. Results are appended to
target/mutants/sample-S.jsonl as they come: a run that was cut off goes on where it was. --again tests survivors once more, after tests
have been added. --only tests those with this text in their name. --table only prints the results so far.

One build has all mutants of the sample, and a variable of the environment switches one on (sim/mutants/src). So a mutant costs what
its tests cost, not a build. Those that do not compile are replaced by the next ones of the sample.
"""

import argparse
import collections
import concurrent.futures
import hashlib
import json
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import typing
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
WORK = ROOT / "target/mutants"
TREE = WORK / "tree"
BUILD = WORK / "build"
# Those that do not compile, with the reason: kept, since finding them takes most of the time of a build.
UNVIABLE = WORK / "unviable.json"
EQUIVALENT = ROOT / "sim/mutants/equivalent.txt"

# What is mutated: the sources of each, and the packages whose tests are its tests.
PARTS = {
    "model": ("model/src", ["contiv-model", "contiv-model-testing"]),
    "core": ("node/src", ["contiv-node", "contiv-agent"]),
    "renderer": ("renderer/src", ["contiv-renderer", "contiv-renderer-testing"]),
    "store": ("store/src", ["contiv-store", "contiv-store-testing"]),
    "controller": ("controller/src", ["contiv-controller"]),
}
# The parts that the simulation executes, where it has to find mutants by itself.
SIMULATED = {"model", "core", "renderer"}
# Tests that start `contiv`. They take seconds each, and one in a thousand fails on a busy machine.
OF_PROCESSES = {"cli", "packets"}
# Tests of files.
LEFT_OUT = {"repository"}
# At most so many tests of processes are run for a mutant, of those that take at most these seconds without one.
PROCESS_TESTS, PROCESS_SECONDS = 8, 60
# A test that takes so many times as long as without a mutant hangs; and never less than these seconds.
HANGS, HANGS_SECONDS = 10, 10

ENVIRONMENT = {
    **os.environ,
    "CARGO_TARGET_DIR": str(BUILD),
    "CARGO_INCREMENTAL": "1",
    "CARGO_PROFILE_DEV_DEBUG": "0",
    # The first failure counts: it is neither made smaller nor kept for later mutants.
    "PROPTEST_DISABLE_FAILURE_PERSISTENCE": "1",
    "PROPTEST_MAX_SHRINK_ITERS": "0",
    "PROPTEST_RNG_SEED": "1",
    "RUST_LOG": "off",
    "RUST_BACKTRACE": "0",
}
# What the simulation executes. Below level 2 generic functions are those of dependencies that are not optimised: 12 simulated hours take
# several times as long.
OPTIMISED = [
    word
    for package in ("model", "store", "renderer", "node", "agent", "sim")
    for word in ("--config", f"profile.dev.package.contiv-{package}.opt-level=2")
]
SIMULATION = BUILD / "contiv-simulate"


def say(text):
    print(text, flush=True)


def run(command, **options):
    result = subprocess.run(command, capture_output=True, text=True, **options)
    if result.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}:\n{result.stderr[-4000:]}")
    return result.stdout


# The sample.


def part_of(file):
    return next(name for name, (folder, _) in PARTS.items() if file.startswith(folder + "/"))


def all_mutants():
    filters = [word for folder, _ in PARTS.values() for word in ("--file", f"{folder}/**")]
    # Fuzzers and tests call it, and nothing else.
    filters += ["--exclude", "**/fuzz.rs"]
    mutants = json.loads(run(["cargo", "mutants", "--list", "--json", "--workspace", *filters], cwd=ROOT))
    seen = collections.Counter()
    for mutant in mutants:
        # Without line and column, so that a change elsewhere in the file does not change the sample.
        name = re.sub(r":\d+:\d+: ", ": ", mutant["name"], count=1)
        seen[name] += 1
        mutant["name"] = f"{name} #{seen[name]}"
        mutant["line"] = mutant["span"]["start"]["line"]
        mutant["part"] = part_of(mutant["file"])
    return mutants


def shares(mutants, size):
    """How many of each part: in proportion, the largest remainders rounded up."""
    count = collections.Counter(mutant["part"] for mutant in mutants)
    exact = {part: size * count[part] / len(mutants) for part in count}
    result = {part: int(share) for part, share in exact.items()}
    for part in sorted(exact, key=lambda part: result[part] - exact[part])[: size - sum(result.values())]:
        result[part] += 1
    return result


def in_order(mutants, seed):
    """By the SHA-256 of seed and name: the same on every machine and with every version of Python."""
    return sorted(mutants, key=lambda mutant: hashlib.sha256(f"{seed}:{mutant['name']}".encode()).digest())


class Sample:
    """The samples of all seeds. Mutants that turn out not to compile are replaced by the next ones."""

    def __init__(self, mutants, size, seeds):
        self.shares = shares(mutants, size)
        self.orders = {seed: in_order(mutants, seed) for seed in seeds}
        self.unviable = json.loads(UNVIABLE.read_text()) if UNVIABLE.exists() else {}

    def of_seed(self, seed, spare=1.0):
        left = {part: int(share * spare) for part, share in self.shares.items()}
        for mutant in self.orders[seed]:
            if mutant["name"] not in self.unviable and left[mutant["part"]] > 0:
                left[mutant["part"]] -= 1
                yield mutant

    def union(self, spare=1.0):
        return list({mutant["name"]: mutant for seed in self.orders for mutant in self.of_seed(seed, spare)}.values())


# The build.


class KeptTimes:
    """Gives sources that were written again, with the same content, their time back: Cargo does not compile them again."""

    def __enter__(self):
        changed = run(["git", "diff", "--name-only", "HEAD"], cwd=TREE).split()
        self.before = {TREE / file: (content_and_time(TREE / file)) for file in changed}

    def __exit__(self, *_):
        for path, (content, ns) in self.before.items():
            if path.exists() and path.read_bytes() == content:
                os.utime(path, ns=(ns, ns))


def content_and_time(path):
    return (path.read_bytes(), path.stat().st_mtime_ns) if path.exists() else (None, 0)


def prepare_tree():
    subprocess.run(["git", "worktree", "prune"], cwd=ROOT, check=True)
    head = run(["git", "rev-parse", "HEAD"], cwd=ROOT).strip()
    if not TREE.is_dir():
        run(["git", "worktree", "add", "--quiet", "--detach", TREE, head], cwd=ROOT)
    return head


def plant(mutants, head):
    """Plants them in a fresh tree; returns the planted ones by number, and what the planter says."""
    numbered = {number: mutant for number, mutant in enumerate(mutants, 1)}
    fields = ("file", "genre", "replacement", "span")
    items = [{"number": number, **{field: mutant[field] for field in fields}} for number, mutant in numbered.items()]
    path = WORK / "list.json"
    path.write_text(json.dumps(items))
    with KeptTimes():
        run(["git", "checkout", "--quiet", "--force", "--detach", head], cwd=TREE)
        return numbered, json.loads(run([ROOT / "target/debug/contiv-mutants", path, TREE]))


def errors_of_compiler():
    """The errors of all crates with the mutants planted: the primary span of each, and its text."""
    command = ["cargo", "check", "--workspace", "--lib", "--keep-going", "--message-format", "json"]
    result = subprocess.run(command, cwd=TREE, env=ENVIRONMENT, capture_output=True, text=True)
    for line in result.stdout.splitlines():
        message = json.loads(line).get("message")
        if not isinstance(message, dict) or message["level"] != "error":
            continue
        spans = [span for span in message["spans"] if span["is_primary"]] or message["spans"]
        if spans:
            yield spans[0]["file_name"], spans[0]["byte_start"], spans[0]["byte_end"], message["message"]
    if result.returncode != 0:
        yield None, 0, 0, result.stderr[-2000:]


def blamed(error, regions):
    """The mutants to which an error of the compiler belongs."""
    file, start, end, _ = error
    here = [region for region in regions if region["file"] == file and region["start"] <= start and end <= region["end"]]
    own = [region for region in here if region["is_own"]]
    inner = min((region["end"] - region["start"] for region in own or here), default=0)
    return {region["mutant"] for region in own or here if region["end"] - region["start"] == inner}


def arm_of(error, regions, numbered):
    """The mutant without which a match is not exhaustive: the error is at what is matched, before its arms."""
    file, _, end, text = error
    arms = [region for region in regions if region["file"] == file and region["start"] >= end]
    arms = [region for region in arms if numbered[region["mutant"]]["genre"] == "MatchArm"]
    nearest = min(arms, key=lambda region: region["start"], default=None)
    return {nearest["mutant"]} if nearest and text.startswith("non-exhaustive patterns") else set()


def find_viable(sample, head):
    """Drops the mutants that do not compile, until all others do."""
    spare = 1.0
    while True:
        numbered, report = plant(sample.union(spare), head)
        # Those that follow are checked at the same time.
        spare = 1.4
        dropped = {numbered[int(number)]["name"]: reason for number, reason in report["unplaced"].items()}
        errors = [] if dropped else list(errors_of_compiler())
        for error in errors:
            for number in blamed(error, report["regions"]) or arm_of(error, report["regions"], numbered):
                dropped[numbered[number]["name"]] = error[3]
        if errors and not dropped:
            sys.exit("errors that belong to no mutant:\n" + "\n".join(map(str, errors[:20])))
        sample.unviable.update(dropped)
        UNVIABLE.write_text(json.dumps(sample.unviable, indent=1))
        if not dropped:
            return
        say(f"{len(dropped)} cannot be switched or do not compile")


def build(sample, head):
    """Builds everything with the mutants of the sample; returns them by number, and the tests."""
    numbered, report = plant(sample.union(), head)
    if report["unplaced"]:
        sys.exit(f"cannot be planted: {report['unplaced']}")
    packages = json.loads(run(["cargo", "metadata", "--format-version", "1", "--no-deps", "--offline"], cwd=TREE))["packages"]
    ours = {package for _, packages in PARTS.values() for package in packages}
    integration = {
        target["name"]
        for package in packages
        for target in package["targets"]
        if target["kind"] == ["test"] and package["name"] in ours | {"contiv-sim", "contiv-tests"} and target["name"] not in LEFT_OUT
    }
    targets = ["--workspace", "--lib", *(word for name in sorted(integration) for word in ("--test", name))]
    run(["cargo", "build", "--quiet", "--workspace", "--bin", "contiv-simulate", *OPTIMISED], cwd=TREE, env=ENVIRONMENT)
    # The tests build another one.
    shutil.copy(BUILD / "debug/contiv-simulate", SIMULATION)
    run(["cargo", "build", "--quiet", "--workspace", "--bin", "contiv"], cwd=TREE, env=ENVIRONMENT)
    listed = run(["cargo", "nextest", "list", "--message-format", "json", *targets], cwd=TREE, env=ENVIRONMENT)
    tests = []
    for suite in json.loads(listed)["rust-suites"].values():
        for name, test in suite["testcases"].items():
            if not test["ignored"]:
                tests.append(Test(suite["package-name"], suite["binary-name"], suite["binary-path"], suite["cwd"], name))
    return numbered, tests


# Running.


class Test:
    def __init__(self, package, binary, path, folder, name):
        self.package, self.path, self.folder, self.name = package, path, folder, name
        self.id = f"{binary}::{name}"
        self.is_of_processes = binary in OF_PROCESSES
        self.seconds, self.reached, self.passes = 0.0, set(), False

    def run(self, variables, timeout):
        """None if it passes, else how it failed."""
        command = [self.path, "--exact", self.name, "--test-threads", "1"]
        with tempfile.TemporaryDirectory() as folder:
            variables = {**variables, "CARGO_MANIFEST_DIR": self.folder, "NEXTEST": "1"}
            if self.is_of_processes:
                # They read what `contiv` logs.
                variables |= {"CONTIV_BIN": binary_with(variables, Path(folder)), "RUST_LOG": None}
            code, output = execute(command, variables, timeout, self.folder)
        if code is None:
            return "hangs"
        if code == 0:
            return None
        panics = re.findall(r"panicked at [^\n]*\n?[^\n]*", output)
        return (panics[0] if panics else f"exit code {code}")[:200]


def binary_with(variables, folder):
    """A `contiv` with the switch on, since tests with packets start it without the variables of their own environment."""
    path = folder / "contiv"
    switch = "".join(f"export {name}='{value}'\n" for name, value in variables.items() if name.startswith("PLANTED_"))
    path.write_text(f'#!/bin/sh\n{switch}exec {BUILD}/debug/contiv "$@"\n')
    path.chmod(0o755)
    return str(path)


def execute(command, variables, timeout, folder=TREE, processor=None, until=None):
    """The exit code, none if it had to be killed, and the output. Ends early when the output has the text `until`."""
    with tempfile.TemporaryFile("w+") as output:
        child = subprocess.Popen(
            command,
            cwd=folder,
            env={name: value for name, value in {**ENVIRONMENT, **variables}.items() if value is not None},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=None if processor is None else lambda: os.sched_setaffinity(0, {processor}),
        )
        deadline, code = time.monotonic() + timeout, None
        while code is None and time.monotonic() < deadline:
            try:
                code = child.wait(0.2 if until else max(0.01, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                pass
            # A descriptor of its own: a shared one would move the end at which the program writes.
            if until and code is None and until in Path(f"/proc/self/fd/{output.fileno()}").read_text(errors="replace"):
                code = 1
        # With whatever it started.
        try:
            os.killpg(child.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        child.wait()
        output.seek(0)
        return code, output.read()


def numbers_in(path):
    return {int(line) for line in path.read_text().split()} if path.exists() else set()


def know_tests(tests, options, mutants, build_id):
    """Runs each test once without a mutant; or reads what a run of the same build has found. Returns the worlds of the simulation."""
    path = WORK / "without-mutants.json"
    known = json.loads(path.read_text()) if path.exists() else {}
    if known.get("build") == build_id and len(known["worlds"]) == options.worlds:
        for test in tests:
            test.seconds, test.passes, reached = known["tests"].get(test.id, (0.0, False, []))
            test.reached = set(reached)
        return [World(seed, seconds, set(reached)) for seed, seconds, reached in known["worlds"]]
    with tempfile.TemporaryDirectory() as folder:
        try_without_mutants(tests, Path(folder), options.jobs)
        worlds = [world_without_mutants(seed, Path(folder)) for seed in range(1, options.worlds + 1)]
    reached = set().union(*(world.reached for world in worlds)) & mutants.keys()
    say(f"{sum(world.seconds for world in worlds):.1f} s for {len(worlds)} worlds, which reach {len(reached)} of {len(mutants)} mutants")
    found = {test.id: (test.seconds, test.passes, sorted(test.reached)) for test in tests}
    simulated = [(world.seed, world.seconds, sorted(world.reached)) for world in worlds]
    path.write_text(json.dumps({"build": build_id, "tests": found, "worlds": simulated}))
    return worlds


def try_without_mutants(tests, folder, jobs):
    """Runs each test once, to know its duration, that it passes, and the mutants it reaches."""

    def try_test(index, test):
        path = folder / str(index)
        for _ in range(2):
            start = time.monotonic()
            failure = test.run({"PLANTED_MUTANTS_REACHED": str(path)}, 300)
            test.seconds, test.passes, test.reached = time.monotonic() - start, failure is None, numbers_in(path)
            if test.passes:
                return
        say(f"fails without a mutant, left out: {test.id}: {failure}")

    # Those of processes mostly wait.
    for of_processes, at_a_time in ((False, jobs), (True, 2 * jobs)):
        with concurrent.futures.ThreadPoolExecutor(at_a_time) as pool:
            of_kind = [(index, test) for index, test in enumerate(tests) if test.is_of_processes == of_processes]
            for job in [pool.submit(try_test, index, test) for index, test in of_kind]:
                job.result()


class World(typing.NamedTuple):
    """A simulated node, by its seed: how long it takes without a mutant, and the mutants that it reaches."""

    seed: int
    seconds: float
    reached: set


def world_without_mutants(seed, folder):
    path, start = folder / f"world-{seed}", time.monotonic()
    code, output = execute([SIMULATION, "--seed", str(seed)], {"PLANTED_MUTANTS_REACHED": str(path)}, 300)
    if code != 0:
        sys.exit(f"the simulation fails without a mutant:\n{output}")
    return World(seed, time.monotonic() - start, numbers_in(path))


def limit(seconds):
    return max(HANGS_SECONDS, HANGS * seconds)


def run_tests(number, tests):
    """The first failure: the test and what it says."""
    for test in sorted(tests, key=lambda test: test.seconds):
        failure = test.run({"PLANTED_MUTANT": str(number)}, limit(test.seconds))
        if failure:
            return f"{test.id}: {failure}"
    return None


def run_process_tests(number, tests):
    """The same with those that reach the fewest mutants. A failure counts if it comes twice, and not without the mutant."""
    quick = [test for test in tests if test.seconds <= PROCESS_SECONDS]
    for test in sorted(quick, key=lambda test: len(test.reached))[:PROCESS_TESTS]:
        # They wait up to a minute for what does not come.
        failures = (test.run({"PLANTED_MUTANT": str(mutant)}, 120 + limit(test.seconds)) for mutant in (number, 0, number))
        if (failure := next(failures)) and not next(failures) and next(failures):
            return f"{test.id}: {failure}"
    return None


def simulate(number, worlds, processor):
    """What the simulation finds first, and after how many seconds."""
    start = time.monotonic()
    found = None
    for world in worlds:
        code, output = execute(
            [SIMULATION, "--seed", str(world.seed)],
            {"PLANTED_MUTANT": str(number)},
            limit(world.seconds),
            processor=processor,
            until="violation with seed",
        )
        if code != 0:
            lines = [line for line in output.splitlines() if "violation" in line or "panicked" in line]
            found = "hangs" if code is None else (lines or output.splitlines() or ["?"])[0][:200]
            break
    return found, round(time.monotonic() - start, 1)


class Runner:
    def __init__(self, options, numbered, tests, worlds):
        self.options, self.numbered, self.worlds = options, numbered, worlds
        self.tests = [test for test in tests if test.passes]
        self.processors = queue.Queue()
        for processor in sorted(os.sched_getaffinity(0)):
            self.processors.put(processor)
        self.lock = threading.Lock()

    def try_mutant(self, number):
        mutant, start = self.numbered[number], time.monotonic()
        reaching = [test for test in self.tests if number in test.reached and not test.is_of_processes]
        of_processes = [test for test in self.tests if number in test.reached and test.is_of_processes]
        own = [test for test in reaching if test.package in PARTS[mutant["part"]][1]]
        result = {field: mutant[field] for field in ("name", "part", "line")}
        result["tests"] = run_tests(number, own)
        result["tests_reach"] = len(own)
        worlds = [world for world in self.worlds if number in world.reached]
        result["simulation_reaches"] = bool(worlds)
        result["simulation"], result["simulation_seconds"] = None, None
        if result["simulation_reaches"] and (mutant["part"] in SIMULATED or not result["tests"]):
            processor = self.processors.get()
            try:
                found = simulate(number, worlds, processor)
            finally:
                self.processors.put(processor)
            result["simulation"], result["simulation_seconds"] = found
        result["others"] = None
        if not result["tests"] and not result["simulation"]:
            result["others"] = run_tests(number, [test for test in reaching if test not in own])
        result["processes"], result["processes_reach"] = None, len(of_processes)
        if not is_killed(result):
            result["processes"] = run_process_tests(number, of_processes)
        result["seconds"] = round(time.monotonic() - start, 1)
        return result

    def run(self, numbers, files):
        def try_and_keep(number):
            result = self.try_mutant(number)
            with self.lock:
                for path in files[result["name"]]:
                    with path.open("a") as file:
                        file.write(json.dumps(result) + "\n")
                outcome = "killed" if is_killed(result) else "SURVIVED"
                say(f"{outcome} {result['seconds']:6.1f} s  {result['name']}")

        with concurrent.futures.ThreadPoolExecutor(self.options.jobs) as pool:
            for job in [pool.submit(try_and_keep, number) for number in numbers]:
                job.result()


# Results.


def is_killed(result):
    return any(result.get(kind) for kind in ("tests", "simulation", "others", "processes"))


def results_file(seed):
    return WORK / f"sample-{seed}.jsonl"


def results_of(seed):
    path = results_file(seed)
    lines = path.read_text().splitlines() if path.exists() else []
    return {result["name"]: result for result in map(json.loads, lines)}


def equivalents():
    """The argument for each mutant that changes nothing that anybody can see."""
    lines = EQUIVALENT.read_text().splitlines() if EQUIVALENT.exists() else []
    pairs = [(line, lines[index + 1].strip()) for index, line in enumerate(lines) if line and line[0] not in " #"]
    return dict(pairs)


def table(seed):
    results, equal = list(results_of(seed).values()), equivalents()
    rows = collections.defaultdict(collections.Counter)
    for result in results:
        kinds = ["run"]
        if not is_killed(result):
            kinds.append("equivalent" if result["name"] in equal else "survived")
        kinds += [kind for kind in ("tests", "simulation", "simulation_reaches", "others", "processes") if result.get(kind)]
        for part in (result["part"], "all"):
            rows[part].update(kinds)
    say(f"\nseed {seed}: {len(results)} mutants")
    say("| part | mutants | found by tests of the crate | reached by the simulation | found by the simulation alone | found only by tests of other crates | only by packets and processes | survived | equivalent | found |")
    say("|---|---|---|---|---|---|---|---|---|---|")
    for part in [*PARTS, "all"]:
        row = rows[part]
        real = row["run"] - row["equivalent"]
        killed = 100 * (real - row["survived"]) / real if real else 100
        simulated = row["simulation"] if part in SIMULATED else "–"
        cells = [row["run"], row["tests"], row["simulation_reaches"], simulated, row["others"], row["processes"], row["survived"], row["equivalent"], f"{killed:.1f} %"]
        say(f"| {part} | " + " | ".join(map(str, cells)) + " |")
    for result in results:
        if not is_killed(result) and result["name"] not in equal:
            reach = f"{result['tests_reach']} tests of the crate and {result.get('processes_reach', 0)} of processes reach it" + ("" if result["simulation_reaches"] else ", not the simulation")
            say(f"survived: {result['name']} (line {result['line']}; {reach})")


def main():
    parser = argparse.ArgumentParser(prog="scripts/mutants", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sample", type=int, required=True, metavar="N")
    parser.add_argument("--seed", type=int, nargs="+", required=True, metavar="S")
    parser.add_argument("--worlds", type=int, default=8, metavar="N")
    # The simulation has one processor for each; tests of processes mostly wait.
    parser.add_argument("--jobs", type=int, default=os.cpu_count() + 2, metavar="N")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--only", default="", metavar="TEXT")
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    if not options.table:
        test_mutants(options)
    for seed in options.seed:
        table(seed)


def test_mutants(options):
    start = time.monotonic()
    WORK.mkdir(parents=True, exist_ok=True)
    head = prepare_tree()
    say(f"mutants of {head}")
    run(["cargo", "build", "--quiet", "--workspace", "--bin", "contiv-mutants"], cwd=ROOT)
    mutants = all_mutants()
    sample = Sample(mutants, options.sample, options.seed)
    say(f"{len(mutants)} in all; of each seed {sample.shares}")
    find_viable(sample, head)
    say(f"{time.monotonic() - start:.0f} s: those that compile are known; {len(sample.unviable)} were replaced")
    numbered, tests = build(sample, head)
    say(f"{time.monotonic() - start:.0f} s: built, {len(tests)} tests")
    build_id = hashlib.sha256(f"{head}{(WORK / 'list.json').read_text()}".encode()).hexdigest()
    worlds = know_tests(tests, options, numbered, build_id)
    say(f"{time.monotonic() - start:.0f} s: every test was run without a mutant")
    files = collections.defaultdict(list)
    for seed in options.seed:
        known = results_of(seed)
        for mutant in sample.of_seed(seed):
            before = known.get(mutant["name"])
            is_due = before is None or (options.again and not is_killed(before))
            if is_due and options.only in mutant["name"]:
                files[mutant["name"]].append(results_file(seed))
    due = [number for number, mutant in numbered.items() if mutant["name"] in files]
    Runner(options, numbered, tests, worlds).run(due, files)
    say(f"{time.monotonic() - start:.0f} s: {len(due)} mutants were tested")


if __name__ == "__main__":
    main()
