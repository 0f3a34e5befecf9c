"""rsl_rl's contract, its lengths of episodes and its time-outs; and no way through NumPy."""

import pytest
import torch
from tensordict import TensorDict
from torch.utils._python_dispatch import TorchDispatchMode

from alloy.envs.wrappers.rsl_rl import RslRlVecEnv
from tests.envs import toy


def test_c31_observations_are_groups_and_reading_changes_nothing():
    env = RslRlVecEnv(toy.env(4, toy.task(obs={"policy": ["cart"], "critic": [toy.position]})))
    first = env.get_observations()
    assert isinstance(first, TensorDict)
    assert first.batch_size == (4,)
    assert set(first.keys()) == {"policy", "critic"}
    again = env.get_observations()
    assert torch.equal(first["policy"], again["policy"])
    assert env.episode_length_buf.tolist() == [0] * 4
    obs, reward, dones, extras = env.step(torch.zeros(4, 1))
    assert obs["policy"].shape == (4, 2)
    assert reward.shape == dones.shape == extras["time_outs"].shape == (4,)
    assert env.get_observations() is obs
    assert (env.num_envs, env.num_actions, env.max_episode_length) == (4, 1, 7)


def test_a_list_of_terms_is_the_group_policy():
    for backend in ("torch", "tensordict"):
        env = RslRlVecEnv(toy.env(2, backend=backend))
        assert list(env.get_observations().keys()) == ["policy"]


@pytest.mark.parametrize("in_place", [True, False])
def test_c31_the_time_limit_follows_episode_length_buf(in_place):
    env = RslRlVecEnv(toy.env(4, toy.task(failure=None)))
    lengths = torch.tensor([0, 3, 5, 6])
    if in_place:
        env.episode_length_buf[:] = lengths
    else:
        env.episode_length_buf = lengths
    outs = []
    for _ in range(7):
        _, _, dones, extras = env.step(torch.zeros(4, 1))
        assert torch.equal(dones.bool(), extras["time_outs"])
        assert not extras["terminated"].any()
        outs.append(extras["time_outs"])
    assert torch.stack(outs).int().argmax(0).tolist() == [6, 3, 1, 0]
    assert lengths.tolist() == [0, 3, 5, 6]


def test_c31_a_failure_at_the_time_limit_is_no_time_out():
    fails_at_seven = toy.C.Check(lambda sim: sim.steps, "steps") >= 7
    env = RslRlVecEnv(toy.env(2, toy.task(failure=fails_at_seven)))
    for _ in range(7):
        _, _, dones, extras = env.step(torch.zeros(2, 1))
    assert dones.tolist() == [1, 1]
    assert extras["terminated"].all()
    assert not extras["time_outs"].any()


def test_the_log_has_success_length_and_every_term():
    env = RslRlVecEnv(toy.env(3, toy.always_three()))
    for _ in range(4):
        log = env.step(torch.zeros(3, 1))[3]["log"]
    assert {k: v.item() for k, v in log.items()} == {"/episode_length": 3.0, "/reward/one": 3.0}


def test_final_observations_are_those_before_the_reset():
    env = RslRlVecEnv(toy.env(3, toy.always_three()))
    for _ in range(3):
        before = env.get_observations()["policy"]
        obs, _, dones, extras = env.step(torch.ones(3, 1))
    assert dones.all()
    assert (extras["final_observations"]["policy"][:, 1] > before[:, 1]).all()
    assert (obs["policy"] == 0).all()


class NothingReachesTheHost(TorchDispatchMode):
    """Fails on an operator that brings a tensor's values to Python."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.overloadpacket._qualified_op_name in ("aten::_local_scalar_dense", "aten::nonzero"):
            raise AssertionError(f"{func} looks at a value")
        return func(*args, **(kwargs or {}))


def no_numpy(*args, **kwargs):
    raise AssertionError("a tensor became an array")


def test_a_step_stays_in_torch(monkeypatch):
    """Nothing becomes an array; and the adapter itself, unlike an eager solver, reads no value."""
    env = RslRlVecEnv(toy.env(3))
    for name in ("numpy", "tolist", "__array__", "cpu"):
        monkeypatch.setattr(torch.Tensor, name, no_numpy)
    real = env.unwrapped.step
    outs = [real(action) for action in toy.actions(3, 10)]
    assert any((out[2] | out[3]).any() for out in outs)
    replay = iter(outs)
    monkeypatch.setattr(env.unwrapped, "step", lambda actions: next(replay))
    with NothingReachesTheHost():
        for action in toy.actions(3, 10):
            env.step(action)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"backend": "numpy"}, "backend='torch' or 'tensordict'"),
        ({"autoreset": "next_step"}, "autoreset='same_step'"),
        ({"the_task": toy.task(max_steps=None)}, "max_episode_steps"),
    ],
)
def test_other_environments_are_refused(options, says):
    with pytest.raises(ValueError, match=says):
        RslRlVecEnv(toy.env(2, **options))
    env = RslRlVecEnv(toy.env(2))
    with pytest.raises(ValueError, match=r"shape \(2,\).*received \(3,\)"):
        env.episode_length_buf = torch.zeros(3)
