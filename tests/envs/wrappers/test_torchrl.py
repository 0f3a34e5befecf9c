"""torchrl's contract: last observations, masks, transforms, collectors; and no NumPy within."""

import pytest
import torch
from tensordict import TensorDict
from torchrl.envs import (
    Compose,
    InitTracker,
    ObservationNorm,
    RewardSum,
    StepCounter,
    TransformedEnv,
    check_env_specs,
)

from alloy.envs.wrappers import NormalizeObservation
from alloy.envs.wrappers.torchrl import TorchRLEnv
from alloy.envs.wrappers.train_torchrl import Collector
from tests.envs import toy
from tests.envs.wrappers.hosts import NothingReachesTheHost, forbid_arrays

GROUPS = {"policy": ["cart"], "critic": [toy.position, "cart"]}


class Replayed:
    """A policy that takes the given actions [T, W, A] one after the other."""

    def __init__(self, actions):
        self.actions, self.t = actions, -1

    def __call__(self, td):
        self.t += 1
        return td.set("action", self.actions[self.t])


def by_hand(seed, actions, the_task=None):
    """The steps of an environment whose worlds are reset by hand as soon as they end.

    Root and next observations, rewards and flags, each [T, W, ...].
    """
    env = toy.env(actions.shape[1], the_task, autoreset="disabled")
    obs, _ = env.reset(seed=seed)
    steps = []
    for action in actions:
        root = obs
        obs, reward, terminated, truncated, _ = env.step(action)
        steps.append((root, obs, reward, terminated, truncated))
        if (terminated | truncated).any():
            obs, _ = env.reset(options={"reset_mask": terminated | truncated})
    return [torch.stack(parts) for parts in zip(*steps, strict=True)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("backend", ["torch", "tensordict"])
@pytest.mark.parametrize("obs", [["cart"], GROUPS])
def test_c32_specs_are_what_comes(obs, backend, dtype):
    env = TorchRLEnv(
        toy.env(4, toy.task(obs=obs), backend=backend, dtype=dtype),
        info=["success", "position", "x", "count"],
    )
    check_env_specs(env, seed=0, break_when_any_done="both")
    assert env.batch_size == (4,)
    assert env.device == torch.device("cpu")
    assert env.observation_spec["success"].dtype == torch.bool
    assert env.observation_spec["count"].dtype == torch.int64
    assert env.action_spec.dtype == torch.float32
    assert env.action_spec.space.low.eq(-1).all()
    assert env.action_spec.space.high.eq(1).all()
    td = env.step(env.rand_action(env.reset()))
    named = {"policy", "critic"} if obs is GROUPS else {"observation"}
    flat = backend == "tensordict" and obs is not GROUPS
    assert ({"policy"} if flat else named) <= {*td.keys()}
    for name in ("done", "terminated", "truncated"):
        assert td["next", name].dtype == torch.bool
    assert td["next", "reward"].dtype == dtype
    assert torch.equal(td["next", "x"], td["next", "position"])


def test_c32_a_rollout_is_that_of_worlds_reset_by_hand():
    actions = toy.actions(6, 40)
    root, last, reward, terminated, truncated = by_hand(11, actions)
    assert terminated.any()
    assert (truncated & ~terminated).any()
    env = TorchRLEnv(toy.env(6))
    env.set_seed(11)
    td = env.rollout(40, Replayed(actions), break_when_any_done=False).transpose(0, 1)
    assert torch.equal(td["observation"], root)
    assert torch.equal(td["next", "observation"], last)
    assert torch.equal(td["next", "reward"].squeeze(-1), reward)
    assert torch.equal(td["next", "terminated"].squeeze(-1), terminated)
    assert torch.equal(td["next", "truncated"].squeeze(-1), truncated)
    assert torch.equal(td["next", "done"].squeeze(-1), terminated | truncated)
    assert not td["done"].any()


def test_c32_a_reset_by_mask_touches_its_rows_only():
    actions = toy.actions(4, 6)
    clean = TorchRLEnv(toy.env(4, toy.task(failure=None)))
    clean.set_seed(0)
    expected = clean.rollout(6, Replayed(actions), break_when_any_done=False)

    env = TorchRLEnv(toy.env(4, toy.task(failure=None)))
    env.set_seed(0)
    td = env.reset()
    for action in actions[:3]:
        td = env.step_mdp(env.step(td.set("action", action)))
    before = td["observation"].clone()
    mask = torch.tensor([False, True, False, True])
    td = env.reset(td.set("_reset", mask.unsqueeze(-1)))
    assert torch.equal(td["observation"][~mask], before[~mask])
    second = toy.env(4).program.first(torch.arange(4))
    second = toy.env(4).program.restart(second, mask)
    assert torch.equal(td["observation"][mask], toy.env(4).program.observe(second)["policy"][mask])
    for step, action in enumerate(actions[3:], 3):
        out = env.step(td.set("action", action))
        assert torch.equal(
            out["next", "observation"][~mask], expected["next", "observation"][~mask, step]
        )
        assert env.vector_env._episode.steps.tolist() == [step + 1, step - 2] * 2
        td = env.step_mdp(out)


def test_a_reset_of_all_worlds_skips_no_episode():
    """Worlds that began one within the last step keep it; the others begin their next."""
    env = TorchRLEnv(toy.env(3, toy.always_three()))
    env.set_seed(5)
    env.rollout(3, break_when_any_done=False)
    assert env.vector_env._episode.number.tolist() == [1, 1, 1]
    shown = env._worlds.obs["observation"]
    assert torch.equal(env.reset()["observation"], shown)
    assert env.vector_env._episode.number.tolist() == [1, 1, 1]
    env.reset()
    assert env.vector_env._episode.number.tolist() == [2, 2, 2]


def test_seeds_are_those_of_the_vector_environment():
    env = TorchRLEnv(toy.env(3))
    env.set_seed(7)
    first = env.reset()["observation"]
    assert torch.equal(first, toy.env(3).reset(seed=7)[0])
    assert not torch.equal(env.reset()["observation"], first)
    env.set_seed(7)
    assert torch.equal(env.reset()["observation"], first)
    assert torch.equal(env.reset(seed=7)["observation"], first)


def test_worlds_that_a_step_leaves_out_stand_still():
    env = TorchRLEnv(toy.env(4))
    env.set_seed(1)
    td = env.step_mdp(env.step(env.reset().set("action", torch.ones(4, 1))))
    before = env.vector_env._state()
    mask = torch.tensor([True, False, True, False])
    action = torch.ones(4, 1)
    out = env.step(td.clone().set("action", action).set("_step", mask))
    after = env.vector_env._state()
    assert torch.equal(after.data.qpos[~mask], before.data.qpos[~mask])
    assert (after.data.qpos[mask] != before.data.qpos[mask]).all()
    assert after.episode.steps.tolist() == [2, 1, 2, 1]
    assert torch.equal(out["next", "observation"][~mask], td["observation"][~mask])
    assert out["next", "reward"][~mask].eq(0).all()


def test_a_rollout_until_all_are_done_leaves_the_ended_alone():
    the_task = toy.task(failure=toy.C.Check(lambda sim: sim.qpos[:, 0], "position") > 0.2)
    env = TorchRLEnv(toy.env(6, the_task))
    env.set_seed(2)
    push = lambda td: td.set("action", torch.ones(6, 1))  # noqa: E731
    td = env.rollout(20, push, break_when_any_done=False, break_when_all_done=True)
    done = td["next", "done"].squeeze(-1)
    assert done[:, -1].all()
    first = done.int().argmax(1)
    assert first.min() < first.max()
    for row, end in enumerate(first):
        last = td["next", "observation"][row, end]
        assert (td["next", "observation"][row, end:] == last).all()


def test_transforms_count_what_the_environment_counts():
    actions = toy.actions(5, 30)
    _, last, reward, terminated, truncated = by_hand(3, actions)
    loc, scale = torch.tensor([0.1, -0.2]), torch.tensor([2.0, 0.5])
    env = TransformedEnv(
        TorchRLEnv(toy.env(5)),
        Compose(
            RewardSum(),
            StepCounter(),
            InitTracker(),
            ObservationNorm(loc, scale, in_keys=["observation"], standard_normal=True),
        ),
    )
    check_env_specs(env)
    env.set_seed(3)
    td = env.rollout(30, Replayed(actions), break_when_any_done=False).transpose(0, 1)
    total, length = torch.zeros(5), torch.zeros(5, dtype=torch.int64)
    begins = torch.ones(5, dtype=torch.bool)
    for t in range(30):
        total, length = total + reward[t], length + 1
        assert torch.equal(td["is_init"][t].squeeze(-1), begins)
        torch.testing.assert_close(td["next", "episode_reward"][t].squeeze(-1), total)
        assert torch.equal(td["next", "step_count"][t].squeeze(-1), length)
        begins = terminated[t] | truncated[t]
        total, length = total * ~begins, length * ~begins
    torch.testing.assert_close(td["next", "observation"], (last - loc) / scale)


def test_a_normalising_wrapper_below_shows_through():
    env = TorchRLEnv(NormalizeObservation(toy.env(4)))
    check_env_specs(env)
    td = env.rollout(20, break_when_any_done=False)
    assert td["next", "observation"].abs().max() <= 10
    assert td["next", "done"].any()


def test_c32_a_collector_goes_on_where_it_stopped_and_stays_in_torch(monkeypatch):
    actions = toy.actions(4, 24)
    root, last, *_ = by_hand(9, actions)
    env = TorchRLEnv(toy.env(4))
    env.set_seed(9)
    policy = Replayed(actions)
    collector = Collector(env, policy, frames_per_batch=4 * 12, total_frames=4 * 24)
    policy.t = -1  # a collector tries its policy
    seen = []
    forbid_arrays(monkeypatch)
    for batch in collector:
        assert batch.shape == (4, 12)
        assert batch["action"].device == env.device
        seen.append(batch.clone())
    monkeypatch.undo()
    td = torch.cat(seen, 1).transpose(0, 1)
    assert td["next", "done"].any()
    assert torch.equal(td["action"], actions)
    assert torch.equal(td["observation"], root)
    assert torch.equal(td["next", "observation"], last)


def test_a_step_reads_no_value(monkeypatch):
    """Neither in torchrl's step nor in its restarts, with what an environment has said before."""
    env = TorchRLEnv(toy.env(3))
    td = env.reset()
    outs = [env.vector_env.step(action) for action in toy.actions(3, 10)]
    assert any((out[2] | out[3]).any() for out in outs)
    replay = iter(outs)
    monkeypatch.setattr(env.vector_env, "step", lambda actions: next(replay))
    with NothingReachesTheHost():
        for action in toy.actions(3, 10):
            _, td = env.step_and_maybe_reset(td.set("action", action))


def test_nothing_given_out_is_written_again():
    env = TorchRLEnv(toy.env(3, toy.always_three()))
    td = env.reset()
    kept = [td["observation"]]
    copies = [td["observation"].clone()]
    for _ in range(8):
        out, td = env.step_and_maybe_reset(td.set("action", torch.ones(3, 1)))
        for tensor in (out["next", "observation"], out["next", "reward"], td["observation"]):
            kept.append(tensor)
            copies.append(tensor.clone())
    assert all(map(torch.equal, kept, copies))
    for _ in range(3):
        td = env.step_mdp(env.step(td.set("action", torch.ones(3, 1))))
    for row in torch.eye(3, dtype=torch.bool):
        shown = env._reset(TensorDict({"_reset": row.unsqueeze(-1)}, batch_size=[3]))
        assert not shown["observation"].eq(99).any()
        shown["observation"].fill_(99)


def test_what_cannot_be_is_refused_by_name():
    for options in ({"backend": "numpy"}, {"autoreset": "next_step"}):
        with pytest.raises(ValueError, match=r"torchrl needs.*autoreset='same_step'"):
            TorchRLEnv(toy.env(2, **options))
    with pytest.raises(TypeError, match="received Tensor"):
        TorchRLEnv(torch.zeros(2))
    with pytest.raises(ValueError, match=r"info names 'nothing'.*'position'"):
        TorchRLEnv(toy.env(2), info=["nothing"])
    env = TorchRLEnv(toy.env(2))
    assert env.to("cpu") is env
    with pytest.raises(ValueError, match="device='cuda'"):
        env.to("cuda")
    env.reset()
    with pytest.raises(ValueError, match=r"shape \(2, 1\)"):
        env.step(TensorDict({"action": torch.zeros(2, 3)}, batch_size=[2]))
    env.close()
    assert env.is_closed
