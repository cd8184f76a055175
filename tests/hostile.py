"""Attack the program in five ways, and count how often it fails. Exit code 1 if it ever does.

    python -m tests.hostile [ATTACK ..] [--share 0.1] [--seed 0]

It takes many minutes and is therefore no part of `make test`, which runs each attack a few times
(`tests/test_hostile.py`).
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from collections import Counter

from tests.attacks import FAULTS

ATTACKS = {"damages": 300, "inputs": 100, "messages": 2000, "forgeries": 6, "kills": 30}
"""Attacks, modules of `tests.attacks`, with the number of attempts."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("attacks", nargs="*", metavar="ATTACK", help=f"{', '.join(ATTACKS)}; default: all")
    parser.add_argument("--share", type=float, default=1.0, help="share of the attempts to make; default: 1")
    parser.add_argument("--seed", type=int, default=0, help="seed of the random choices; default: 0")
    options = parser.parse_args()
    if unknown := set(options.attacks) - set(ATTACKS):
        parser.error(f"ATTACK must be one of {', '.join(ATTACKS)}; got {', '.join(sorted(unknown))}")
    rows = [run_attack(name, options.share, options.seed) for name in options.attacks or ATTACKS]
    print(f"\n{'attack':10}{'attempts':>10}" + "".join(f"{fault:>11}" for fault in FAULTS))
    for name, attempts, faults in rows:
        print(f"{name:10}{attempts:10}" + "".join(f"{faults[fault]:11}" for fault in FAULTS))
    sys.exit(any(faults.total() for _, _, faults in rows))


def run_attack(name: str, share: float, seed: int) -> tuple[str, int, Counter[str]]:
    """Run one attack, print its faults and a line of progress every ten seconds, and return its counts."""
    attempts, faults, reported = 0, Counter[str](), time.monotonic()
    total = max(round(ATTACKS[name] * share), 1)
    print(f"{name}: {total} attempts", flush=True)
    for action, fault in importlib.import_module(f"tests.attacks.{name}").attack(total, seed):
        attempts += 1
        if fault:
            faults[fault] += 1
            print(f"  {fault}: {action}", flush=True)
        if time.monotonic() - reported > 10:
            reported = time.monotonic()
            print(f"  {attempts} of {total}", flush=True)
    return name, attempts, faults


if __name__ == "__main__":
    main()
