"""Benchmark of the paper's compiled networks, as flights use them, against torch: ns per agent on one thread.

python benchmarks/compiled_networks.py
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

import equiflock as ef
from equiflock._runtime.threads import use_one_thread
from equiflock.controllers.trained import PAPER_NETWORKS
from equiflock.evaluation.benchmark import measure_best_time

SIZES = 100, 10_000, 100_000


def main() -> None:
    print(f"{'':16}" + "".join(f"{f'N = {agents:,}':>20}{'torch':>8}{'ratio':>7}" for agents in SIZES))
    for name in PAPER_NETWORKS:
        network: Any = ef.load(name)
        compiled = network.compiled_form()
        assert compiled is not None
        cells = []
        for agents in SIZES:
            observations = np.random.default_rng(0).standard_normal((1, agents, 3, 3, 2)).astype(np.float32)
            tensor = torch.from_numpy(observations)
            with torch.inference_mode():
                theirs = measure_best_time(lambda: network(tensor), repeats=9) * 1e9 / agents  # noqa: B023
            ours = measure_best_time(lambda: compiled(observations), repeats=9) * 1e9 / agents  # noqa: B023
            cells.append(f"{ours:20.0f}{theirs:8.0f}{theirs / ours:6.1f}x")
        print(f"{name:16}" + "".join(cells), flush=True)


if __name__ == "__main__":
    with use_one_thread():
        main()
