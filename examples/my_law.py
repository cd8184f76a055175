"""my_law.py: fly as your neighbours do, and keep clear of them."""

import equiflock as ef

SENSES = ef.Senses(channels=(("velocity", "mean"), ("inverse-square", "mean")), hops=1)


@ef.controller("courteous", senses=SENSES)
def courteous(observations, align=8.0, apart=0.5):
    # With r_ij = r_i - r_j and v_ij = v_i - v_j: the means over neighbours of v_ij and of r_ij / |r_ij|^2.
    velocity, nearness = observations[:, :, 0, 0], observations[:, :, 0, 1]
    return -align * velocity + apart * nearness


if __name__ == "__main__":
    start = ef.random_disk(flocks=10, agents=100, seed=0)
    run = ef.simulate(start, ef.load("courteous", align=12.0), duration=2.0)
    first, *_, last = ef.metrics.velocity_variance(run).mean(axis=1)
    print(f"velocity variance {first:.2f}, after 2 s {last:.4f}")
