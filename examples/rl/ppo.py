"""ppo.py: improve a trained network by PPO on a reward of your own, over a radio that loses 30% of all messages."""

import sys

import torch
from tensordict.nn import TensorDictModule, TensorDictSequential
from torch import nn
from torchrl.collectors import Collector
from torchrl.modules import IndependentNormal, ProbabilisticActor
from torchrl.objectives import ClipPPOLoss

import equiflock as ef

ITERATIONS = int(sys.argv[1]) if len(sys.argv) > 1 else 150
FLOCKS, AGENTS, STEPS = 16, 50, 100
REWARD = "0.1*variance+0.004*effort"
OBSERVATION, ACTION = ("agents", "observation"), ("agents", "action")

torch.manual_seed(0)
network = ef.load_module("etdagnn")
environment = ef.Environment(radio=ef.Radio(packet_loss=0.3))
env = ef.torchrl_env("flocking", FLOCKS, AGENTS, environment=environment, reward=REWARD, senses=network.senses)


class Norms(nn.Module):
    """What an agent's critic sees: the logarithms of the lengths of its observations, which no rotation changes."""

    def forward(self, observation):
        return torch.log1p(observation.norm(dim=-1)).flatten(-2)


class Spread(nn.Module):
    """The same learned standard deviation of all entries of all actions."""

    def __init__(self):
        super().__init__()
        self.log = nn.Parameter(torch.tensor(-1.0))

    def forward(self, mean):
        return self.log.exp().expand_as(mean)


LOC, SCALE, VALUE = ("agents", "loc"), ("agents", "scale"), ("agents", "state_value")
mean = TensorDictModule(network, in_keys=[OBSERVATION], out_keys=[LOC])
spread = TensorDictModule(Spread(), in_keys=[LOC], out_keys=[SCALE])
actor = ProbabilisticActor(
    TensorDictSequential(mean, spread),
    in_keys={"loc": LOC, "scale": SCALE},
    out_keys=[ACTION],
    distribution_class=IndependentNormal,
    return_log_prob=True,
    log_prob_key=("agents", "log_prob"),
)
layers = nn.Sequential(Norms(), nn.Linear(9, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
critic = TensorDictModule(layers, in_keys=[OBSERVATION], out_keys=[VALUE])
loss = ClipPPOLoss(actor, critic, clip_epsilon=0.2, entropy_coeff=0.0, normalize_advantage=True)
keys = {name: ("agents", name) for name in ("reward", "done", "terminated")}
loss.set_keys(action=ACTION, sample_log_prob=("agents", "log_prob"), value=VALUE, **keys)
loss.make_value_estimator(gamma=0.97, lmbda=0.9)
rates = [{"params": [*actor.parameters()], "lr": 2e-4}, {"params": [*critic.parameters()], "lr": 1e-3}]
optimizer = torch.optim.Adam(rates)

collector = Collector(env, actor, frames_per_batch=FLOCKS * STEPS, total_frames=ITERATIONS * FLOCKS * STEPS)
for iteration, data in enumerate(collector):
    with torch.no_grad():
        for name in ("done", "terminated"):
            data["next", "agents", name] = data["next", name][..., None].expand(data["next", "agents", "reward"].shape)
        loss.value_estimator(data, params=loss.critic_network_params, target_params=loss.target_critic_network_params)
    for _ in range(4):
        for rows in torch.randperm(STEPS).split(20):
            terms = loss(data[:, rows].flatten())
            optimizer.zero_grad()
            (terms["loss_objective"] + terms["loss_critic"]).backward()
            nn.utils.clip_grad_norm_(actor.parameters(), 0.5)
            optimizer.step()
    if iteration % 10 == 9:
        print(f"iteration {iteration + 1}: mean reward {data['next', 'agents', 'reward'].mean():.4f}", flush=True)
ef.save(network, "ppo.safetensors")
