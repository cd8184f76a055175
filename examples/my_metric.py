"""my_metric.py: do all agents fly in the same direction, whatever their speeds?"""

import numpy as np

import equiflock as ef


@ef.metric("polarization", over_time="mean", larger_is_better=True)
def polarization(moment):
    """Length of the mean heading."""
    velocities = moment.flock.velocities  # (B, N, D)
    works = moment.flock.working[..., None]  # without obstacle agents and failed ones
    speeds = np.linalg.norm(velocities, axis=-1, keepdims=True)
    headings = velocities / np.maximum(speeds, 1e-12) * works
    return np.linalg.norm(headings.sum(axis=1) / np.maximum(works.sum(axis=1), 1), axis=-1)  # (B,)


if __name__ == "__main__":
    start = ef.random_disk(flocks=10, agents=100)
    for name in ("starling", "tanner-dynamic"):
        run = ef.simulate(start, ef.load(name), duration=2.0, record=[polarization])
        print(name, run.series["polarization"][[0, 50, 200]].mean(axis=1).round(3))
