"""What happens between resets: events before a step, late actions, numbers drawn in every step."""

import pytest
import torch

from alloy.envs import checks as C
from tests.envs import toy
from tests.envs.test_fused import Fusing, run


def kick(sim):
    return {"qvel": sim.qvel + sim.rng("kick").uniform(-1.0, 1.0, 1)}


def drawn(sim):
    return sim.rng("number").uniform()[:, 0]


def test_an_event_changes_the_state_that_the_physics_starts_from():
    def stop(sim):
        return {"qvel": torch.zeros_like(sim.qvel)}

    env = toy.env(4, toy.task(events=stop))
    env.reset(seed=0)
    before = env.sim.qpos.clone()
    env.step(torch.zeros(4, 1))
    assert torch.equal(env.sim.qpos, before)
    assert env.sim.qvel.abs().max() == 0


def test_an_event_sees_the_new_target_and_may_change_it():
    seen = []

    def halve(sim):
        seen.append(sim.ctrl.clone())
        return {"ctrl": 0.5 * sim.ctrl}

    env = toy.env(2, toy.task(events=[halve, halve]))
    env.reset(seed=0)
    seen.clear()
    env.step(torch.tensor([[1.0], [-0.4]]))
    assert [s[:, 0].tolist() for s in seen] == [
        pytest.approx([1, -0.4]),
        pytest.approx([0.5, -0.2]),
    ]
    assert env.sim.ctrl[:, 0].tolist() == pytest.approx([0.25, -0.1])


def test_events_of_a_world_do_not_depend_on_the_others():
    def states(worlds):
        env = toy.env(worlds, toy.task(events=kick))
        env.reset(seed=5)
        return torch.stack([(env.step(torch.zeros(worlds, 1)), env.sim.qpos)[1] for _ in range(9)])

    assert torch.equal(states(2), states(5)[:, :2])


@pytest.mark.parametrize(
    ("event", "what"),
    [
        (lambda sim: {"xpos": sim.qpos}, "sets 'xpos'; it may set"),
        (lambda sim: {"qvel": sim.qvel[:1]}, "qvel must be"),
        (lambda sim: 3, "must return a dict of fields, not int"),
    ],
)
def test_an_event_that_does_not_fit_is_refused_by_name(event, what):
    with pytest.raises((TypeError, ValueError), match=what):
        toy.env(3, toy.task(events=event))


def test_numbers_are_new_in_every_step_and_the_same_again():
    def numbers(seed):
        env = toy.env(3, toy.task(info={"u": drawn}, reset_info=["u"], failure=None))
        out = [env.reset(seed=seed)[1]["u"]]
        return torch.stack([*out, *(env.step(torch.zeros(3, 1))[4]["u"] for _ in range(6))])

    first = numbers(0)
    assert first.unique().numel() == first.numel()
    assert torch.equal(first, numbers(0))
    assert torch.equal(first[:, 1:], numbers(1)[:, :2])  # seeds s, s + 1, ...


def test_numbers_of_one_purpose_do_not_depend_on_another():
    def both(sim):
        sim.rng("other").uniform(n=7)
        return sim.rng("number").uniform()[:, 0]

    draws = []
    for term in (drawn, both):
        env = toy.env(3, toy.task(info={"u": term}, reset_info=[]))
        env.reset(seed=0)
        draws.append(env.step(torch.zeros(3, 1))[4]["u"])
    assert torch.equal(*draws)


def test_actions_come_late():
    env = toy.env(1, toy.task(action_delay=2, failure=None))
    env.reset(seed=0)
    given = [0.5, -0.25, 1.0, 0.75, 0.0]
    taken = [(env.step(torch.tensor([[a]])), env.sim.ctrl.item())[1] for a in given]
    assert taken == [0.0, 0.0, 0.5, -0.25, 1.0]
    env.reset()
    env.step(torch.tensor([[0.3]]))
    assert env.sim.ctrl.item() == 0.0  # the last episode's actions are forgotten


def test_a_delay_is_drawn_for_each_episode():
    env = toy.env(300, toy.task(action_delay=(1, 3), failure=None, max_steps=9))
    env.reset(seed=0)
    ctrl = torch.stack(
        [(env.step(torch.full((300, 1), 0.1 * k)), env.sim.ctrl[:, 0])[1] for k in range(1, 6)]
    )
    delay = (ctrl == 0).sum(0)
    counts = torch.bincount(delay, minlength=4)
    assert counts[0] == 0
    assert counts[1:].min() > 70
    expected = torch.clamp(0.1 * (torch.arange(1, 6).unsqueeze(1) - delay), min=0)
    torch.testing.assert_close(ctrl, expected)


def test_the_policy_is_told_its_own_action_whatever_the_delay():
    env = toy.env(
        1, toy.task(action_delay=1, info={"a": lambda sim: sim.action[:, 0]}, reset_info=[])
    )
    env.reset(seed=0)
    assert env.step(torch.tensor([[0.5]]))[4]["a"].item() == 0.5


@pytest.mark.parametrize("delay", [-1, 1.5, True, (2, 1), (1, 2, 3), "late"])
def test_a_delay_that_is_none_is_refused(delay):
    with pytest.raises(ValueError, match="action_delay must be a number of control steps"):
        toy.task(action_delay=delay)


def test_all_of_it_compiles():
    noisy = C.Check(lambda sim: sim.qpos + sim.rng("noise").uniform(-0.1, 0.1, 1), "noisy")
    changes = {"events": kick, "action_delay": (0, 2), "obs": ["cart", noisy], "max_steps": 4}
    eager, fused = (toy.env(19, toy.task(**changes)) for _ in range(2))
    fused.sim._engine = Fusing(fused.sim._engine)
    for a, b in zip(run(eager), run(fused), strict=True):
        torch.testing.assert_close(a, b, atol=2e-6, rtol=1e-5)
    assert fused.sim._engine.asked == 1
