#!/usr/bin/env python3
"""Prints the functions of model, node and renderer that a simulation never executed; fails below the floors.

Usage: coverage.py EXPORT, what `llvm-cov export` printed.
"""

import json
import re
import sys
from collections import defaultdict
from pathlib import Path

# Per cent of the functions and of the regions of each crate that a simulation must execute.
FLOORS = {"model": (56, 58), "node": (65, 65), "renderer": (69, 67)}
# What the simulation replaces or never needs: the edges to the real kernel, other renderers, explanations for people, fuzzers.
LEFT_OUT = re.compile(
    r"^(model/src/(trace|wire|fuzz)|renderer/src/(dry_run|linux|nft_json|registry|fuzz|netlink/(linux|listener))"
    r"|.*/(tests|fuzz|testing)(/|\.rs))"
)
ROOT = Path(__file__).resolve().parent.parent


def crate_of(path):
    """The crate of a source file, if it counts."""
    crate = path.split("/", 1)[0]
    if crate not in FLOORS or LEFT_OUT.match(path):
        return None
    return crate


def functions(export):
    """Whether each function was executed, and its regions, by its place. Instances of a generic function are one."""
    executed = defaultdict(bool)
    regions = defaultdict(lambda: defaultdict(bool))
    for function in export["data"][0]["functions"]:
        path = Path(function["filenames"][0])
        if not path.is_relative_to(ROOT) or not function["regions"]:
            continue
        path = str(path.relative_to(ROOT))
        if crate_of(path) is None:
            continue
        place = (path, function["regions"][0][0])
        executed[place] |= function["count"] > 0
        for line, column, end_line, end_column, count, *_ in function["regions"]:
            regions[place][(line, column, end_line, end_column)] |= count > 0
    return executed, regions


def name_at(path, line):
    """The function that begins at this line, or the code there: a closure."""
    text = (ROOT / path).read_text().splitlines()[line - 1].strip()
    found = re.search(r"\bfn (\w+)", text)
    return f"fn {found[1]}" if found else text


def main():
    executed, regions = functions(json.load(open(sys.argv[1])))
    for path, line in sorted(place for place, done in executed.items() if not done):
        print(f"never executed: {path}:{line}: {name_at(path, line)}")
    is_below = False
    for crate, (function_floor, region_floor) in FLOORS.items():
        places = [place for place in executed if crate_of(place[0]) == crate]
        done = [executed[place] for place in places]
        parts = [is_done for place in places for is_done in regions[place].values()]
        shares = [100 * sum(part) / max(len(part), 1) for part in (done, parts)]
        print(
            f"{crate}: {sum(done)} of {len(done)} functions executed ({shares[0]:.1f} %, floor {function_floor} %), "
            f"{sum(parts)} of {len(parts)} regions ({shares[1]:.1f} %, floor {region_floor} %)"
        )
        is_below |= shares[0] < function_floor or shares[1] < region_floor
    if is_below:
        print("below a floor: the simulation no longer reaches code that it reached", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
