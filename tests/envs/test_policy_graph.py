"""C34: a policy and a whole environment's step with its resets as one graph of torch.compile."""

import pytest
import torch

from alloy.envs import VectorEnv
from tests.envs import toy


@pytest.mark.filterwarnings("ignore")
def test_c34_policy_and_step_are_one_graph_over_fifty_steps_with_resets():
    graphs = []

    def count(gm, inputs):
        graphs.append(gm)
        return gm.forward

    env = VectorEnv(toy.CART, toy.task(max_steps=7), 3, engine="reference")
    torch.manual_seed(0)
    policy = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))

    def play(state, obs):
        new, out = env.program.step(state, torch.tanh(policy(obs)))
        return env.program.physics.held(new), out

    torch._dynamo.reset()
    compiled = torch.compile(play, fullgraph=True, backend=count)
    obs = env.reset(seed=0)[0]
    state = env._state()
    ends, kept, known = 0, [], 0
    with torch.no_grad():
        for k in range(50):
            _, expected = play(state, obs)
            state, out = compiled(state, obs)
            obs = out.obs["policy"]
            torch.testing.assert_close(obs, expected.obs["policy"])
            torch.testing.assert_close(out.reward, expected.reward)
            ended = out.terminated | out.truncated
            assert torch.equal(ended, expected.terminated | expected.truncated)
            ends += int(ended.sum())
            kept.append((obs, obs.clone()))
            known = len(graphs) if k < 2 else known
            assert (obs.dtype, state.data.step_count.dtype) == (torch.float32, torch.int64)
    assert ends >= 3 * 7
    assert len(graphs) == known <= 2
    assert all(torch.equal(now, then) for now, then in kept)  # never written again
