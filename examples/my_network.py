"""my_network.py: every vector that an agent knows, times a learned number."""

import torch
from torch import nn

import equiflock as ef

CHANNELS = (("velocity", "mean"), ("velocity", "sum"), ("inverse-square", "mean"), ("inverse-fourth", "mean"))


@ef.controller("gated")
class Gated(nn.Module):
    def __init__(self, hops: int = 2, width: int = 16) -> None:
        super().__init__()
        self.senses = ef.Senses(channels=CHANNELS, hops=hops)
        self.options = {"hops": hops, "width": width}
        vectors = hops * self.senses.width
        self.gates = nn.Sequential(nn.Linear(vectors, width), nn.Tanh(), nn.Linear(width, vectors))

    def forward(self, observations):  # (B, N, K, C, D)
        vectors = observations.flatten(2, 3)
        lengths = torch.log1p(vectors.norm(dim=-1))
        return (self.gates(lengths).unsqueeze(-1) * vectors).sum(dim=2)


if __name__ == "__main__":
    recipe = ef.DAgger(controller="gated:width=8", epochs=2, agents=50, flocks=5, updates=50, validation_flocks=2)
    student = ef.train(recipe)
    ef.save(student, "gated.safetensors")
    again = ef.load("gated.safetensors")
    moment = next(ef.flight(ef.random_disk(agents=50), again))
    print(moment.observations.shape, moment.accelerations.shape)
