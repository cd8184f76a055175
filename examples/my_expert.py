"""my_expert.py: align with the whole flock, keep apart, and stay near the flock's middle."""

import numpy as np

import equiflock as ef

SENSES = ef.Senses(channels=(("inverse-fourth", "sum"),), hops=1)


@ef.controller("shepherd", senses=SENSES, privileged=True)
def shepherd(flock, observations, align=10.0, gather=2.0, clamp=50.0):
    middle, mean = (array.mean(axis=1, keepdims=True) for array in (flock.positions, flock.velocities))
    wanted = align * (mean - flock.velocities) + gather * (middle - flock.positions)
    wanted += 0.05 * observations[:, :, 0, 0]
    norms = np.sqrt(np.square(wanted).sum(axis=-1, keepdims=True))
    return wanted * (clamp / np.maximum(norms, clamp))


if __name__ == "__main__":
    recipe = ef.DAgger(
        controller="etdagnn", expert="shepherd:gather=3", epochs=3, agents=50, flocks=5, updates=50, validation_flocks=2
    )
    student = ef.train(recipe, on_epoch=lambda report: print(f"epoch {report.epoch}: loss {report.loss:.3g}"))
    print(ef.simulate(ef.random_disk(agents=50), student, duration=0.5))
