"""Whole environments on lanes: the same bits again, independent worlds, and the reference's step.

Both environments run through resets: HalfCheetah by a short episode, the lift by its own checks
and time limit too. All of it uses the engine by name.
"""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

import alloy
from alloy.engines import LanesEngine
from alloy.envs.backend import import_action

ROOT = Path(__file__).parent.parent
IDS = ("HalfCheetah-v5", "GripperLift-v0")
LENGTH = 6  # control steps of an episode
STEPS = 15


def make(env_id, worlds, threads=None, **kwargs):
    env = alloy.envs.make(
        env_id, worlds, **{"engine": "lanes", "max_episode_steps": LENGTH, **kwargs}
    )
    if isinstance(env.sim._engine, LanesEngine):
        env.sim._engine._threads = threads
    return env


def actions(env, worlds=64):
    """The same actions for world i of every environment, [STEPS, W, A]."""
    g = torch.Generator().manual_seed(7)
    shape = STEPS, worlds, len(env.action_names())
    return (2 * torch.rand(shape, generator=g) - 1)[:, : env.num_envs]


def leaves(tree):
    if isinstance(tree, dict):
        return [leaf for value in tree.values() for leaf in leaves(value)]
    return [tree]


def run(env, poison=None):
    """Everything that leaves, one list of tensors [W, ...] for each step."""
    out = [leaves(env.reset(seed=3)[0])]
    for step, action in enumerate(actions(env)):
        if poison is not None and step == 4:
            qvel = env.sim.qvel.clone()
            qvel[poison] = torch.nan
            env.sim.qvel = qvel
        *results, info = env.step(action)
        out.append([*results, *leaves(info)])
    return out


def equal(a, b, rows=slice(None), other=slice(None)):
    return all(
        torch.equal(x[rows], y[other])
        for left, right in zip(a, b, strict=True)
        for x, y in zip(left, right, strict=True)
    )


@pytest.fixture(scope="module", params=IDS)
def case(request):
    """Environment id, and what 64 worlds on two threads say."""
    env = make(request.param, 64, threads=2)
    out = run(env)
    report = env.sim.engine_report()
    assert report["engine"] == "lanes" and "not compiled" not in report
    assert "environment step" in report["programs"]  # one compiled call, not physics alone
    assert (env._episode.number >= STEPS // LENGTH).all()  # resets took place
    return request.param, out


def test_the_same_bits_again_on_one_thread_and_on_two(case):
    env_id, out = case
    assert equal(out, run(make(env_id, 64, threads=2)))
    assert equal(out, run(make(env_id, 64, threads=1)))


def test_a_world_does_not_know_how_many_there_are(case):
    env_id, out = case
    assert equal(run(make(env_id, 4)), out, other=slice(4))


def test_a_spoilt_neighbour_ends_alone(case):
    env_id, out = case
    env = make(env_id, 64)
    spoilt = run(env, poison=5)
    rest = torch.arange(64) != 5
    assert equal(spoilt, out, rest, rest)
    assert all(torch.isfinite(x).all() for step in spoilt for x in step)
    _, _, terminated, _, info = env.step(actions(env)[0])
    assert not info["invalid"].any() and not terminated[5]  # its next episode is sound


def test_steps_and_resets_are_those_of_the_float64_reference(case):
    """Each step is compared from a common state, so that errors do not add up over contacts.

    Rounding of float32 (6e-8) grows by the condition of the contact problem, about 1e3, and by the
    change of velocities over a control step, up to 1e1. A cube put on the ground touches it with
    distances of exactly zero, where rounding decides which corners count: 2e-3 m/s and rad/s.
    """
    env_id, _ = case
    env = make(env_id, 16)
    ref = make(env_id, 16, engine="reference", dtype=torch.float64)
    first = [e.reset(seed=3)[0] for e in (env, ref)]
    torch.testing.assert_close(first[0].double(), first[1], atol=1e-6, rtol=0)
    ended = 0
    for action in actions(env)[: LENGTH + 2]:
        for name in ("qpos", "qvel", "act", "ctrl"):
            setattr(ref.sim, name, getattr(env.sim, name).double())
        touching = env_id == "GripperLift-v0" and bool((env._episode.steps == 0).any())
        within = 5e-3 if touching else 5e-4
        mine, theirs = env.step(action), ref.step(action.double())
        pairs = [leaves(dict(enumerate(step))) for step in (mine, theirs)]
        for a, b in zip(*pairs, strict=True):
            torch.testing.assert_close(a.to(b.dtype), b, atol=within, rtol=within)
        ended += int(mine[3].sum())
    assert ended == 16


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64])
def test_actions_are_copied_to_where_a_compiled_step_reads_them_in_place(dtype):
    given = torch.arange(15).reshape(5, 3).to(dtype)
    for action in (given, given.numpy(), given.T.contiguous().T):
        kept = import_action(action, (5, 3), torch.float32, given.device)
        assert kept.T.is_contiguous() and kept.dtype == torch.float32
        assert torch.equal(kept, given.float())
    kept += 1
    assert given[0, 0] == 0


def script(*args):
    done = subprocess.run(
        [sys.executable, *args], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_short_soak_finds_nothing():
    table = script("scripts/soak.py", "HalfCheetah-v5", "--steps", "40", "--worlds", "8")
    assert "HalfCheetah-v5" in table and "lanes" in table


@pytest.mark.slow
def test_random_runs_go_where_mujoco_goes():
    table = script("scripts/lanes_statistics.py", "HalfCheetah", "--worlds", "32", "--steps", "50")
    assert table.count("HalfCheetah") >= 12 and "!" not in table.split("\n", 1)[1]
