"""The whole environment step as one traced and compiled function, against the eager one."""

import pytest
import torch

import alloy.lanes
from alloy.envs import VectorEnv
from alloy.envs.program import Physics, Program
from alloy.fingerprint import fingerprint
from tests.envs import toy


class Fusing:
    """The reference engine, and a step compiled to one world per SIMD lane."""

    def __init__(self, engine, refuse=False):
        self.step, self.report, self.refuse, self.asked = engine.step, engine.report, refuse, 0

    def fuse(self, fn, example, owner):
        self.asked += 1
        return None if self.refuse else alloy.lanes.compile(fn, example, cache=False)


def run(env, steps=12):
    out = [env.reset(seed=1)[0]]
    for action in toy.actions(env.num_envs, steps):
        action[0] *= torch.nan if len(out) == 4 else 1
        results = env.step(action)
        info = results[4]
        out += [*results[:4], info["final_obs"], info["count"], info["episode"]["r"]]
    return out


@pytest.mark.parametrize("mode", ["same_step", "next_step"])
def test_a_fused_step_is_the_eager_one(mode):
    eager, fused = (toy.env(19, toy.task(max_steps=4), autoreset=mode) for _ in range(2))
    fused.sim._engine = Fusing(fused.sim._engine)
    for a, b in zip(run(eager), run(fused), strict=True):
        torch.testing.assert_close(a, b, atol=2e-6, rtol=1e-5)
    assert fused.sim._engine.asked == 1
    assert torch.equal(eager.sim.health().bad_ctrl, fused.sim.health().bad_ctrl)


def test_an_engine_may_decline():
    eager, other = toy.env(3), toy.env(3)
    other.sim._engine = Fusing(other.sim._engine, refuse=True)
    for a, b in zip(run(eager), run(other), strict=True):
        assert torch.equal(a, b)
    assert other.sim._engine.asked == 1


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_c34_the_step_is_one_graph_for_any_number_of_worlds():
    graphs = []

    def count(gm, inputs):
        graphs.append(gm)
        return gm.forward

    torch._dynamo.reset()
    free = toy.CART.replace('limited="true"', 'limited="false"')
    env = VectorEnv(free, toy.task(max_steps=4), 3, engine="reference")
    step = torch.compile(env.program.step, fullgraph=True, backend=count)
    for worlds in (3, 3, 5, 7):
        env = VectorEnv(free, toy.task(max_steps=4), worlds, engine="reference")
        env.reset(seed=0)
        state = env._state()
        for action in toy.actions(worlds, 6).clamp(-1, 1):
            expected = env.program.step(state, action)
            state, out = step(state, action)
            torch.testing.assert_close(out.obs["policy"], expected[1].obs["policy"])
            torch.testing.assert_close(out.reward, expected[1].reward)
            state = env.program.physics.held(state)
    assert len(graphs) <= 2


@pytest.mark.parametrize("env_id", ["GripperLift-v0", "HalfCheetah-v5"])
def test_a_program_is_recognised_whatever_the_number_of_worlds(env_id):
    """An engine finds what it compiled before by the fingerprint of the program."""

    def key(worlds, **kwargs):
        env = alloy.envs.make(env_id, worlds, engine="reference", **kwargs)
        physics = Physics(env.sim, traced=True)
        return fingerprint(Program(physics, env.task, env.program.actions, env.autoreset, worlds))

    assert key(2) is not None
    assert key(2) == key(5)
    assert key(2) != key(2, autoreset="next_step")
    assert key(2) != key(2, max_episode_steps=7)
