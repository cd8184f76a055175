"""my_body.py: a vehicle with a largest acceleration, a largest speed and drag."""

from dataclasses import dataclass

import numpy as np

import equiflock as ef


def clamp_norm(vectors, most):
    """Shorten each vector to at most that norm."""
    norms = np.sqrt(np.square(vectors).sum(axis=-1, keepdims=True))
    return vectors * (most / np.maximum(norms, most))


@ef.body("vehicle")
@dataclass(frozen=True)
class Vehicle:
    max_acceleration: float = 5.0
    max_speed: float = 4.0
    drag: float = 0.1  # per second

    def advance(self, step: ef.BodyStep):
        active, before = step.active, step.velocities[step.active]
        follows = (step.roles[active] == ef.Role.FOLLOWER)[..., None]
        push = clamp_norm(step.accelerations[active], self.max_acceleration) - self.drag * before
        after = np.where(follows, clamp_norm(before + push * step.time_step, self.max_speed), before)
        step.velocities[active] = after
        step.positions[active] += 0.5 * (before + after) * step.time_step


if __name__ == "__main__":
    start = ef.random_disk(flocks=10, agents=100)
    for body in (ef.DoubleIntegrator(), ef.make_body("vehicle:drag=0.2")):
        run = ef.simulate(start, ef.load("etdagnn"), body=body, duration=2.0)
        print(run.config["body"], ef.metrics.velocity_variance(run)[-1].mean().round(4))
