"""skrl's contract: what its agents get for the last observation of an episode, and its trainers."""

import pytest
import torch
from skrl.agents.torch.ppo import PPO
from skrl.memories.torch import RandomMemory
from skrl.trainers.torch import SequentialTrainer

from alloy.envs.wrappers import NormalizeObservation, train_skrl
from alloy.envs.wrappers.skrl import FinalObservations, SkrlWrapper
from alloy.envs.wrappers.train_skrl import MAJOR, Actor, Critic
from tests.envs import toy
from tests.envs.wrappers.hosts import NothingReachesTheHost

GROUPS = {"policy": ["cart"], "critic": [toy.position, "cart"]}


class TruePPO(FinalObservations, PPO):
    pass


def agent_of(kind, env, rollouts=16):
    """An agent to whom the value of an observation is ten times the cart's position."""
    torch.manual_seed(0)
    actor, critic = torch.nn.Linear(2, 1), torch.nn.Linear(2, 1)
    with torch.no_grad():
        critic.weight.copy_(torch.tensor([[10.0, 0.0]]))
        critic.bias.zero_()
    return kind(
        models={"policy": Actor(env, actor, 1.0, "cpu"), "value": Critic(env, critic, "cpu")},
        memory=RandomMemory(memory_size=rollouts, num_envs=env.num_envs, device="cpu"),
        observation_space=env.observation_space,
        action_space=env.action_space,
        device="cpu",
        cfg={
            "rollouts": rollouts,
            "learning_epochs": 1,
            "time_limit_bootstrap": True,
            "discount_factor": 0.5,
            "experiment": {"write_interval": 0, "checkpoint_interval": 0},
        },
    )


def test_a_step_says_what_skrl_reads():
    env = SkrlWrapper(toy.env(4, toy.task(obs=GROUPS)))
    assert env.observation_space.shape == (2,)
    assert env.state_space.shape == (3,)
    assert env.action_space.shape == (1,)
    assert (env.num_envs, env.num_agents, env.device) == (4, 1, torch.device("cpu"))
    observations, infos = env.reset()
    assert observations.shape == (4, 2)
    assert torch.equal(env.state()[:, 1:], observations)
    for _ in range(7):
        observations, rewards, terminated, truncated, infos = env.step(torch.zeros(4, 1))
    assert rewards.shape == terminated.shape == truncated.shape == (4, 1)
    assert terminated.dtype == truncated.dtype == torch.bool
    assert truncated.any()
    assert torch.equal(infos["final_states"][:, 1:], infos["final_observations"])
    assert not torch.equal(infos["final_observations"], observations)
    assert {"return", "length", "reward/alive"} == infos["episode"].keys() - {"reward/position"}
    assert all(mean.numel() == 1 for mean in infos["episode"].values())


def test_steps_are_those_of_the_vector_environment():
    env, plain = SkrlWrapper(toy.env(5, seed=2)), toy.env(5, seed=2)
    assert torch.equal(env.reset()[0], plain.reset()[0])
    for action in toy.actions(5, 20):
        observations, rewards, terminated, truncated, infos = env.step(action)
        obs, reward, ended, late, info = plain.step(action)
        assert torch.equal(observations, obs)
        assert torch.equal(rewards.squeeze(-1), reward)
        assert torch.equal(terminated.squeeze(-1), ended)
        assert torch.equal(truncated.squeeze(-1), late & ~ended)
        assert torch.equal(infos["final_observations"], info["final_obs"])
    assert env.state_space is None
    assert env.state() is None


def test_a_failure_at_the_time_limit_is_not_truncated():
    fails_at_seven = toy.C.Check(lambda sim: sim.steps, "steps") >= 7
    env = SkrlWrapper(toy.env(2, toy.task(failure=fails_at_seven)))
    env.reset()
    for _ in range(7):
        _, _, terminated, truncated, _ = env.step(torch.zeros(2, 1))
    assert terminated.all()
    assert not truncated.any()


def test_the_reset_that_a_trainer_asks_of_one_world_skips_no_episode():
    env = SkrlWrapper(toy.env(1, toy.always_three()))
    env.reset()
    for episode in range(3):
        assert env.unwrapped._episode.number.tolist() == [episode]
        for _ in range(3):
            observations, _, _, truncated, _ = env.step(torch.ones(1, 1))
        assert truncated.all()
        assert torch.equal(env.reset()[0], observations)


@pytest.mark.parametrize("kind", [PPO, TruePPO])
def test_what_a_truncated_episode_is_worth(kind):
    """With FinalObservations the value of its true last state, else of the next episode's first."""
    env = SkrlWrapper(toy.env(3, toy.task(failure=None), seed=3))
    told = []
    step = env.step
    env.step = lambda actions: told.append(step(actions)) or _copied(told[-1])
    agent = agent_of(kind, env)
    agent.init()
    agent.enable_training_mode(True) if MAJOR > 1 else agent.set_running_mode("train")
    observations, _ = env.reset()
    for _ in range(7):
        before = observations
        observations = train_skrl._interact(agent, env, observations)
    following, given, _, truncated, infos = told[-1]
    assert truncated.all()
    final = infos["final_observations"]
    assert torch.equal(following, observations)
    assert (final - following).abs().max() > 0.05
    valued = before if MAJOR == 1 else final if kind is TruePPO else following
    stored = agent.memory.get_tensor_by_name("rewards")[6]
    torch.testing.assert_close(stored, given + 0.5 * 10 * valued[:, :1])


def _copied(step):
    return *(part.clone() for part in step[:4]), step[4]


def test_agents_that_remember_get_the_true_next_observation():
    class Remembers:
        def record_transition(self, **transition):
            self.transition = transition

    class Agent(FinalObservations, Remembers):
        pass

    infos = {"final_observations": torch.ones(3, 2), "final_states": torch.ones(3, 5)}
    agent = Agent()
    agent.record_transition(next_states=torch.zeros(3, 2), infos=infos)  # of skrl 1.4
    assert agent.transition["next_states"] is infos["final_observations"]
    both = {"next_observations": torch.zeros(3, 2), "next_states": torch.zeros(3, 5)}
    agent.record_transition(**both, infos=infos)
    assert agent.transition["next_observations"] is infos["final_observations"]
    assert agent.transition["next_states"] is infos["final_states"]


@pytest.mark.parametrize("worlds", [1, 6])
def test_its_trainer_trains(worlds):
    env = SkrlWrapper(NormalizeObservation(toy.env(worlds, seed=0)))
    agent = agent_of(TruePPO, env)
    before = [p.clone() for p in agent.policy.parameters()]
    cfg = {"timesteps": 32, "headless": True, "disable_progressbar": True}
    SequentialTrainer(cfg=cfg | {"close_environment_at_exit": False}, env=env, agents=agent).train()
    after = [*agent.policy.parameters()]
    assert all(p.isfinite().all() for p in after)
    assert not all(map(torch.equal, before, after))


def test_a_step_reads_no_value(monkeypatch):
    env = SkrlWrapper(toy.env(3))
    env.reset()
    base = env.unwrapped
    outs = [base.step(action) for action in toy.actions(3, 10)]
    assert any((out[2] | out[3]).any() for out in outs)
    replay = iter(outs)
    monkeypatch.setattr(base, "step", lambda actions: next(replay))
    with NothingReachesTheHost():
        for action in toy.actions(3, 10):
            env.step(action)


def test_what_cannot_be_is_refused_by_name():
    with pytest.raises(ValueError, match=r"skrl needs backend='torch' or backend='tensordict'"):
        SkrlWrapper(toy.env(2, backend="numpy"))
    with pytest.raises(ValueError, match=r"group 'policy'.*\['actor'\]"):
        SkrlWrapper(toy.env(2, toy.task(obs={"actor": ["cart"]})))
    agent = agent_of(TruePPO, SkrlWrapper(toy.env(3)))
    infos = {"final_observations": torch.zeros(3, 2), "final_states": None}
    with pytest.raises(ValueError, match="use one agent in a trainer"):
        agent.record_transition(next_observations=torch.zeros(2, 2), infos=infos)
