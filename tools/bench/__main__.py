"""Measure the figures that this project claims: ``python -m tools.bench [NAME ...] [--quick]``.

Every module of this package but this one is a bench of its name, if it has a function
``run(quick: bool) -> Iterator[Figure]``. To add one, add a module.
"""

from __future__ import annotations

import argparse
import importlib
import os
import pkgutil
import platform
import sys
import time

from tools import bench


def main(arguments: list[str]) -> int:
    """Run the benches asked for, or all of them, and print one line a figure."""
    names = sorted(
        module.name for module in pkgutil.iter_modules(bench.__path__) if module.name != "__main__"
    )
    parser = argparse.ArgumentParser(
        prog="python -m tools.bench", description=__doc__.splitlines()[0]
    )
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help=f"one of {', '.join(names)}; all of them if none is given",
    )
    parser.add_argument(
        "--quick", action="store_true", help="fewer repeats, to see that a bench works"
    )
    parser.add_argument(
        "--only", help="one part of a bench that has parts, such as a wing or a module for mutants"
    )
    parser.add_argument("--seed", type=int, help="another seed, for a bench that takes one")
    options = parser.parse_args(arguments)
    chosen = {
        name: value for name in ("only", "seed") if (value := getattr(options, name)) is not None
    }
    unknown = sorted(set(options.names) - set(names))
    if unknown:
        parser.error(f"there is no bench {', '.join(unknown)}; there are {', '.join(names)}")
    print(f"command: python -m tools.bench {' '.join(arguments)}".rstrip())
    print(
        f"machine: {len(os.sched_getaffinity(0))} cores, {platform.machine()}, Python"
        f" {platform.python_version()}"
    )
    for name in options.names or names:
        start = time.perf_counter()
        print(
            f"\n{name}:"
            f" {(importlib.import_module(f'tools.bench.{name}').__doc__ or '').splitlines()[0]}",
            flush=True,
        )
        for figure in importlib.import_module(f"tools.bench.{name}").run(options.quick, **chosen):
            verdict = {None: "", True: "met", False: "MISSED"}[figure.met]
            value = f"{figure.value:.0f}" if figure.value >= 1000 else f"{figure.value:.3g}"
            line = (
                f"  {figure.name:<72} {value:>10} {figure.unit:<6} {figure.target:<18} {verdict:<6}"
                f" {figure.note}"
            )
            print(line.rstrip(), flush=True)
        print(f"  ({time.perf_counter() - start:.0f} s)")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
