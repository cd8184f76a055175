"""benchmarl_task.py: flocks as a task of BenchMARL, which needs a separate environment (see docs/rl.md)."""

from benchmarl.algorithms import MappoConfig
from benchmarl.environments import Task, TaskClass
from benchmarl.experiment import Experiment, ExperimentConfig
from benchmarl.models.mlp import MlpConfig
from torchrl.envs import FlattenObservation, TransformedEnv

import equiflock as ef

DURATION, TIME_STEP = 2.0, 0.05


class FlockClass(TaskClass):
    def get_env_fun(self, num_envs, continuous_actions, seed, device):
        def make():
            # Policies need bounded actions, and a row of features for each agent.
            environment = ef.Environment(body=ef.DoubleIntegrator(max_acceleration=10.0))
            options = {"duration": DURATION, "time_step": TIME_STEP, "environment": environment, "seed": seed or 0}
            env = ef.torchrl_env(self.name.lower(), num_envs, **options, **self.config)
            return TransformedEnv(env, FlattenObservation(-3, -1, in_keys=[("agents", "observation")]))

        return make

    def supports_continuous_actions(self):
        return True

    def supports_discrete_actions(self):
        return False

    def max_steps(self, env):
        return round(DURATION / TIME_STEP)

    def has_render(self, env):
        return False

    def group_map(self, env):
        return env.group_map

    def observation_spec(self, env):
        spec = env.observation_spec.clone()
        del spec["state"], spec["agents", "mask"]
        return unbatch(spec)

    def action_spec(self, env):
        return unbatch(env.full_action_spec)

    def state_spec(self, env):
        return None

    def info_spec(self, env):
        return None

    def action_mask_spec(self, env):
        return None

    @staticmethod
    def env_name():
        return "equiflock"


def unbatch(spec):
    """Return a spec without the axis of flocks."""
    return spec[0] if spec.shape else spec


class FlockTask(Task):
    FLOCKING = None
    LEADERS = None

    @staticmethod
    def associated_class():
        return FlockClass


if __name__ == "__main__":
    config = ExperimentConfig.get_from_yaml()
    config.loggers, config.create_json, config.render = [], False, False
    config.max_n_iters, config.on_policy_n_envs_per_worker = 10, 30
    config.on_policy_collected_frames_per_batch, config.on_policy_n_minibatch_iters = 1200, 4
    config.evaluation, config.lr, config.gamma = False, 1e-3, 0.95
    experiment = Experiment(
        task=FlockTask.FLOCKING.get_task({"agents": 10, "reward": "variance+0.01*effort"}),
        algorithm_config=MappoConfig.get_from_yaml(),
        model_config=MlpConfig.get_from_yaml(),
        critic_model_config=MlpConfig.get_from_yaml(),
        seed=0,
        config=config,
    )
    experiment.run()
    print(f"mean return of an episode: {experiment.mean_return:.1f}")
