"""skrl: an environment as its `Wrapper`, tensors from end to end; for skrl 1.4 and 2.

    class TruePPO(FinalObservations, PPO):
        pass

    env = SkrlWrapper(alloy.envs.make("HalfCheetah-v5", num_envs=1024))
    agent = TruePPO(models=models, memory=memory, observation_space=env.observation_space, ...)
    SequentialTrainer(cfg={"timesteps": 10_000}, env=env, agents=agent).train()

What skrl can bootstrap, and what it cannot. Its trainers give an agent one tensor for two things:
the observation that a step led to, and the one to act on next. Where an episode ends, the second
is the first of a new episode, and so the agent takes it for the first as well. An agent with
`time_limit_bootstrap` then adds the value of the next episode's start to a truncated one (skrl 2)
or that of the observation before the step (skrl 1.4), and off-policy agents remember the wrong next
observation. The true ones are in `infos["final_observations"]`, and an agent's class with
`FinalObservations` before it uses them: then skrl 2's on-policy agents with `time_limit_bootstrap`,
and the off-policy agents of both, are right. skrl 1.4's on-policy agents ask for no next value, so
for them nothing changes. Without `time_limit_bootstrap` skrl lets a trace run on from a truncated
episode into the next; turn it on.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
from gymnasium.vector import VectorWrapper
from skrl.envs.wrappers.torch import Wrapper
from torch import Tensor

from alloy.envs.vector_env import VectorEnv
from alloy.envs.wrappers.restarts import Restarts, base_of, by_group
from alloy.envs.wrappers.statistics import EpisodeStatistics


class SkrlWrapper(Wrapper):
    """A vector environment as skrl takes it.

    The observation is the group "policy", or the only one; a group "critic" is skrl's state, for
    the value of skrl 2. A step never reports an episode both as terminated and as truncated: skrl
    would add a value after the end of it.

    `infos` are those of `VectorEnv.step`, and

    * `final_observations`, `final_states`: what each world showed before any restart.
    * `episode`: means over the last episodes, numbers that skrl's trainers log: "return",
      "length", "success" and the sum of each reward term, "reward/<term>".
    """

    def __init__(self, env: VectorEnv | VectorWrapper) -> None:
        """Take over an environment; the first `reset` begins its episodes.

        Args:
            env: with autoreset "same_step" and backend "torch" or "tensordict", on any device.

        Raises:
            TypeError: this is no vector environment of Alloy's.
            ValueError: another backend or autoreset mode, or groups without "policy".
        """
        self._base = base_of(env, "skrl", ("torch", "tensordict"))
        self._spaces = _spaces(env.single_observation_space)
        counting, self._statistics = EpisodeStatistics.over(env)
        super().__init__(counting)
        self._worlds = Restarts(self._env)
        self._states: Tensor | None = None

    @property
    def observation_space(self) -> gym.Space:
        """Of one world's observation."""
        return self._spaces[0]

    @property
    def state_space(self) -> gym.Space | None:
        """Of what the critic sees of one world; None without a group "critic"."""
        return self._spaces[1]

    @property
    def action_space(self) -> gym.Space:
        """Of one world's action."""
        return self._env.single_action_space

    def reset(self) -> tuple[Tensor, dict[str, Any]]:
        """Begin an episode in every world that has not just begun one: observations [W, k]."""
        observations, self._states = _seen(self._worlds.reset())
        return observations, {}

    def step(self, actions: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, dict[str, Any]]:
        """One control step of every world.

        Args:
            actions: [W, A]; values outside the action space count as its bounds.

        Returns:
            Observations [W, k], rewards [W, 1], terminated [W, 1], truncated [W, 1] and infos.
        """
        reward, terminated, truncated, info = self._worlds.step(actions)
        observations, self._states = _seen(self._worlds.obs)
        final, state = _seen(by_group(info["final_obs"]))
        infos = {name: info[name] for name in info.keys() if name not in ("episode", "_episode")}
        infos |= {"final_observations": final, "final_states": state, "episode": self._means()}
        columns = (reward, terminated, truncated & ~terminated)
        reward, terminated, truncated = (t.unsqueeze(-1) for t in columns)
        return observations, reward, terminated, truncated, infos

    def state(self) -> Tensor | None:
        """What the critic sees of each world, [W, k]; None without a group "critic"."""
        return self._states

    def render(self, *args: Any, **kwargs: Any) -> Any:
        """Pictures of the worlds; see `VectorEnv.render`."""
        return self._env.render()

    def close(self) -> None:
        """Release what the environment holds."""
        self._env.close()

    def _means(self) -> dict[str, Tensor]:
        means = self._statistics.means()
        if not self._statistics.has_success:
            del means["success"]
        return means


class FinalObservations:
    """Put before an agent's class: it gets the true observation that each step led to."""

    def record_transition(self, **transition: Any) -> None:
        """Record a step whose next observations and states are those before any restart.

        Raises:
            ValueError: the agent has some of the worlds only, being one of several.
        """
        infos = transition["infos"]
        given = "next_observations" if "next_observations" in transition else "next_states"
        final = infos["final_observations"]
        if transition[given].shape != final.shape:
            raise ValueError(
                f"an agent with FinalObservations needs all worlds, {tuple(final.shape)}, and has "
                f"{tuple(transition[given].shape)}; use one agent in a trainer"
            )
        if given == "next_observations":  # skrl 2; before it, observations were called states
            transition["next_states"] = infos["final_states"]
        transition[given] = final
        super().record_transition(**transition)  # type: ignore[misc]


def _spaces(space: gym.Space) -> tuple[gym.Space, gym.Space | None]:
    """The spaces of observation and state."""
    if not isinstance(space, gym.spaces.Dict):
        return space, None
    groups = dict(space)
    if "policy" not in groups:
        raise ValueError(
            f"skrl needs an observation group 'policy', and may have 'critic'; the environment has "
            f"{[*groups]}"
        )
    return groups["policy"], groups.get("critic")


def _seen(groups: dict[str, Tensor]) -> tuple[Tensor, Tensor | None]:
    """What actor and critic see."""
    return groups["policy"] if "policy" in groups else groups["observation"], groups.get("critic")
