"""my_features.py: a spring between neighbours, a brake on approach, and a fear of strangers."""

import math

import numpy as np

import equiflock as ef


@ef.feature("spring", vector="position")
def spring(square, rest=0.6):  # |r_ij|^2, and an option: ("spring:rest=0.4", "mean") is another spring
    return rest / math.sqrt(square) - 1.0  # pushes below a distance of 0.6, pulls beyond


@ef.feature("approach", vector="position")
def approach(square, inner):  # |r_ij|^2 and <r_ij, v_ij>, which is negative as long as two agents come nearer
    return max(-inner, 0.0) / (0.01 + square)


@ef.feature("strangers", vector="position", among="others")
def strangers(square):
    return math.exp(-4.0 * square)


@ef.feature("well", vector="position")
def well(square):  # times r_ij it is grad U for U(r) = (r - 0.6)^2 / 2
    return 1.0 - 0.6 / math.sqrt(square)


SENSES = ef.Senses(channels=(("velocity", "mean"), ("spring", "mean"), ("approach", "sum"), ("strangers", "sum")))


@ef.controller("springy", senses=SENSES)
def springy(observations, align=5.0, stiffness=4.0, brake=0.5, fear=2.0):
    velocity, pull, slow, away = np.moveaxis(observations[:, :, 0], 2, 0)
    return -align * velocity + stiffness * pull + brake * slow + fear * away


if __name__ == "__main__":
    start = ef.random_disk(flocks=4, agents=60)
    groups = np.arange(60)[None].repeat(4, axis=0) % 2
    mixed = ef.Flock(start.positions, start.velocities, groups=groups)
    print(ef.observe(mixed, SENSES).shape)  # (4, 60, 1, 4, 2)
    run = ef.simulate(mixed, ef.load("springy"), duration=2.0)
    print(ef.metrics.minimum_separation(run.flock()).round(2))
