"""Actions in every form, what is refused, and what each form does to the actuators."""

import numpy as np
import pytest
import torch
from tensordict import TensorDict

from alloy.envs import ActionTerm, Task, VectorEnv
from tests.envs import toy

TWO = """
<mujoco>
  <worldbody>
    <body name="a">
      <joint name="x" type="slide" axis="1 0 0"/><joint name="y" type="slide" axis="0 1 0"/>
      <geom type="sphere" size=".1" mass="1"/>
    </body>
  </worldbody>
  <actuator>
    <position name="x" joint="x" kp="10" ctrlrange="-2 4"/>
    <position name="y" joint="y" kp="10" ctrlrange="0 .5"/>
    <motor name="free" joint="x"/>
  </actuator>
</mujoco>
"""


def two(*terms, worlds=2):
    env = VectorEnv(TWO, Task(obs=["a"], actions=terms or None), worlds, engine="reference")
    env.reset(seed=0)
    return env


def ctrl_after(env, *actions):
    for action in actions:
        env.step(action)
    return env.sim.ctrl


def _plain(action):
    action = action["action"] if isinstance(action, TensorDict) else action
    return action if isinstance(action, list) else action.tolist()


FORMS = {
    "float32": lambda a: a,
    "float64": lambda a: a.double(),
    "numpy": lambda a: a.numpy(),
    "numpy64": lambda a: a.double().numpy(),
    "list": lambda a: a.tolist(),
    "strided": lambda a: a.repeat(1, 2)[:, ::2],
    "transposed": lambda a: a.T.contiguous().T,
    "tensordict": lambda a: TensorDict({"action": a}, [3]),
    "grad": lambda a: a.clone().requires_grad_(),
}


@pytest.mark.parametrize("form", FORMS)
def test_c26_every_form_of_an_action_is_its_clipped_float32(form):
    results = []
    for convert in (lambda a: a.clamp(-1, 1), FORMS[form]):
        env = toy.env(3)
        env.reset(seed=0)
        for action in toy.actions(3, 4):
            given, same = convert(action), convert(action.clone())
            out = env.step(given)
            assert _plain(given) == _plain(same)  # the caller's array is as it was
        results.append(out)
    assert torch.equal(results[0][0], results[1][0])
    assert torch.equal(results[0][1], results[1][1])


def test_c26_integers_count_as_numbers():
    env = toy.env(3)
    env.reset(seed=0)
    a = env.step(np.array([[1], [-5], [0]]))[0]
    env.reset(seed=0)
    assert torch.equal(a, env.step([[1.0], [-1.0], [0.0]])[0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_c26_results_lie_in_their_spaces(dtype):
    env = toy.env(3, backend="numpy", dtype=dtype)
    wanted = np.dtype(str(dtype).removeprefix("torch."))
    obs, _ = env.reset(seed=0)
    for _ in range(10):
        assert env.observation_space.contains(obs)
        assert all(env.single_observation_space.contains(row) for row in obs)
        obs, reward, terminated, truncated, _ = env.step(env.action_space.sample())
        assert obs.dtype == reward.dtype == wanted
        assert terminated.dtype == truncated.dtype == np.bool_
    for _ in range(1000):
        assert env.action_space.contains(env.action_space.sample())


@pytest.mark.parametrize("shape", [(), (1,), (3,), (1, 3), (3, 2), (2, 1), (3, 1, 1)], ids=str)
@pytest.mark.parametrize("make", [torch.zeros, np.zeros], ids=["torch", "numpy"])
def test_c37_wrong_shapes_are_refused(make, shape):
    env = toy.env(3)
    env.reset(seed=0)
    before = env.sim.state()
    with pytest.raises(ValueError, match=r"\(3, 1\).*received"):
        env.step(make(shape))
    for name, tensor in env.sim.state().tensors.items():
        assert torch.equal(tensor, before.tensors[name]), name


@pytest.mark.parametrize(
    "action",
    [
        np.zeros((3, 1), object),
        np.zeros((3, 1), bool),
        np.zeros((3, 1), complex),
        torch.zeros(3, 1, dtype=torch.bool),
        torch.zeros(3, 1, device="meta"),
        [["a"], ["b"], ["c"]],
        [[1], [2, 3], [4]],
        None,
        TensorDict({"policy": torch.zeros(3, 1)}, [3]),
    ],
    ids=[
        "object",
        "bool",
        "complex",
        "torch bool",
        "device",
        "text",
        "ragged",
        "none",
        "no action",
    ],
)
def test_c37_what_is_no_action_is_refused(action):
    env = toy.env(3)
    env.reset(seed=0)
    before = env.sim.qpos.clone()
    with pytest.raises(ValueError, match="action"):
        env.step(action)
    assert torch.equal(env.sim.qpos, before)


def test_c37_no_broadcast_where_worlds_and_actions_are_as_many():
    env = two()  # 2 worlds
    with pytest.raises(ValueError, match=r"\(2, 3\).*received \(3, 2\)"):
        env.step(torch.zeros(3, 2))


def test_c37_an_actuator_without_range_has_finite_bounds():
    env = two()
    assert env.action_names() == ["x", "y", "free"]
    assert env.single_action_space.low.tolist() == [-2, 0, -1]
    assert env.single_action_space.high.tolist() == [4, 0.5, 1]
    assert np.isfinite([env.action_space.sample() for _ in range(100)]).all()
    assert ctrl_after(env, [[3.0, 0.25, 7.0]] * 2)[0].tolist() == [3, 0.25, 1]


def test_target_actions_span_their_range():
    env = two(ActionTerm("a/both", ("x", "y")), ActionTerm("a/free", ("free",), low=-9, high=9))
    assert env.action_names() == ["a/both", "a/free"]
    assert ctrl_after(env, [[-1.0, 1.0], [0.5, 0.0]]).tolist() == [[-2, 0, 9], [2.5, 0.375, 0]]


def test_delta_actions_move_the_last_target_within_bounds():
    env = two(ActionTerm("a/x", ("x",), mode="delta", low=-0.3, high=4.0, scale=0.25))
    up = [[1.0], [-1.0]]
    assert ctrl_after(env, up).tolist() == [[0.25, 0, 0], [-0.25, 0, 0]]
    assert ctrl_after(env, up)[:, 0].tolist() == pytest.approx([0.5, -0.3])
    # a bad action leaves the target where it was
    assert ctrl_after(env, [[float("nan")], [1.0]])[:, 0].tolist() == pytest.approx([0.5, -0.05])
    env.reset()
    assert env.sim.ctrl.abs().max() == 0


@pytest.mark.parametrize(
    ("terms", "error", "message"),
    [
        ([ActionTerm("a/x", ("xx",))], KeyError, r"action 'a/x'.*'xx'.*'x'.*Add <actuator>"),
        ([ActionTerm("a/f", ("free",))], ValueError, r"'a/f'.*'free'.*no ctrlrange"),
        ([ActionTerm("a/x", ("x",), low=5.0)], ValueError, r"low 5.0 is not below high 4"),
        ([ActionTerm("q", ("x",)), ActionTerm("q", ("y",))], ValueError, "two actions.*'q'"),
        ([ActionTerm("p", ("x",)), ActionTerm("q", ("x",))], ValueError, "two actions.*'p'.*'q'"),
    ],
)
def test_impossible_actions_are_named(terms, error, message):
    with pytest.raises(error, match=message):
        two(*terms)


def test_a_robot_without_actuators_cannot_act():
    body = "<body name='a'><freejoint/><geom size='.1'/></body>"
    bare = f"<mujoco><worldbody>{body}</worldbody></mujoco>"
    with pytest.raises(KeyError, match="Add <actuator>"):
        VectorEnv(bare, Task(obs=["a"], actions=[ActionTerm("a/x", ("x",))]), 1)
    env = VectorEnv(bare, Task(obs=["a"]), 2, engine="reference")
    env.reset(seed=0)
    assert env.step(torch.zeros(2, 0))[0].shape == (2, 13)


def test_the_name_of_an_actuator_is_its_target_and_anything_else_is_refused():
    env = two("x")
    assert env.action_names() == ["x"]
    assert ctrl_after(env, [[1.0], [-1.0]])[:, 0].tolist() == [4.0, -2.0]
    with pytest.raises(TypeError, match="ActionTerms or names of actuators, not int 3"):
        two(3)
