"""Cases from the field about motion: what comes to rest, what holds, what slips, what stays sane.

The expected numbers are those of docs/cases.md's sources, measured with MuJoCo at its default
options; where a case gives none, MuJoCo runs beside.
"""

import mujoco
import numpy as np
import pytest
import torch

import alloy


def build(bodies: str, options: str = "", rest: str = "", worlds: int = 1) -> alloy.Simulator:
    text = f"<mujoco>{options}<worldbody>{bodies}</worldbody>{rest}</mujoco>"
    return alloy.build(mujoco.MjModel.from_xml_string(text), worlds, dtype=torch.float64)


def run(sim: alloy.Simulator, seconds: float) -> alloy.Simulator:
    with torch.inference_mode():
        for _ in range(round(seconds / sim.physics_dt)):
            sim.step()
    return sim


MOCAP = """
<body name="hand" mocap="true" pos="0 0 1"/>
<body name="ball" pos=".2 .1 1.3"><freejoint/><geom size=".05" mass="1"/></body>"""
HAND_AT_REST = [0.2, 0.1, 1.2996]


@pytest.mark.parametrize(
    ("relpose", "place"), [("", HAND_AT_REST), ('relpose="0 0 .5 1 0 0 0"', [0, 0, 1.4996])]
)
def test_c10_weld_to_a_mocap_body(relpose, place):
    weld = f'<equality><weld body1="hand" body2="ball" {relpose}/></equality>'
    sim = run(build(MOCAP, '<option timestep=".004"/>', weld), 2)
    assert sim.body("ball").pos[0].tolist() == pytest.approx(place, abs=2e-4)


def test_c10_a_mocap_body_moves_its_own_world_and_tree_only():
    weld = '<equality><weld body1="hand" body2="ball"/></equality>'
    still, moved = (build(MOCAP, rest=weld, worlds=5) for _ in range(2))
    pos = moved.mocap_pos.clone()
    pos[3, 0, 0] += 0.1
    moved.mocap_pos = pos
    run(still, 0.04), run(moved, 0.04)
    others = [0, 1, 2, 4]
    assert torch.equal(still.qpos[others], moved.qpos[others])
    assert (moved.qpos[3, 0] - still.qpos[3, 0]) > 0.01
    moved.reset()
    assert moved.mocap_pos[3, 0].tolist() == [0, 0, 1]
    assert torch.equal(run(moved, 0.04).qpos, still.qpos)
    idle = build(MOCAP + '<body name="idle" mocap="true" pos="3 0 0"/>', rest=weld, worlds=5)
    torch.testing.assert_close(run(idle, 0.04).qpos, still.qpos, rtol=0, atol=1e-12)


# a 45 g capsule, r 4 mm, between two servoed pads that want to be 2 mm closer each
PINCH = """
<default><geom friction=".7 .005 .0001"/></default>
<worldbody>
  <body pos="0 0 .5"><joint type="slide" axis="0 0 1"/><joint type="slide" axis="1 0 0"/>
    <joint type="slide" axis="0 1 0"/><geom type="capsule" size=".004 .03" mass=".045"/></body>
  <body pos="-.014 0 .5"><joint name="l" type="slide" axis="1 0 0" damping="50"/>
    <geom type="box" size=".01 .02 .01" mass=".2"/></body>
  <body pos=".014 0 .5"><joint name="r" type="slide" axis="-1 0 0" damping="50"/>
    <geom type="box" size=".01 .02 .01" mass=".2"/></body>
</worldbody>
<actuator><position joint="l" kp="5000"/><position joint="r" kp="5000"/></actuator>"""


def creep(cone: str, impratio: int, noslip: int = 0) -> tuple[float, float]:
    """Sinking speed of the pinched capsule in m/s, ours and MuJoCo's."""
    option = f'<option cone="{cone}" impratio="{impratio}" noslip_iterations="{noslip}"/>'
    mj = mujoco.MjModel.from_xml_string(f"<mujoco>{option}{PINCH}</mujoco>")
    sim, data = alloy.build(mj, dtype=torch.float64), mujoco.MjData(mj)
    sim.ctrl = torch.full((1, 2), 0.002)
    data.ctrl[:] = 0.002
    heights = []
    for _ in range(2):
        run(sim, 0.1)
        mujoco.mj_step(mj, data, nstep=50)
        heights.append((sim.qpos[0, 0].item(), data.qpos[0]))
    (ours0, theirs0), (ours, theirs) = heights
    return (ours0 - ours) / 0.1, (theirs0 - theirs) / 0.1


def test_c20_creep_scales_with_the_inverse_of_impratio():
    speeds = {
        (cone, impratio): creep(cone, impratio)
        for cone, impratio in (("elliptic", 10), ("elliptic", 1), ("pyramidal", 1))
    }
    for ours, theirs in speeds.values():
        assert ours == pytest.approx(theirs, rel=1e-3)
    stiff, soft, pyramid = (ours for ours, _ in speeds.values())
    assert 1e-5 < stiff < soft < pyramid < 1e-2
    assert soft / stiff == pytest.approx(10, rel=0.1)


@pytest.mark.parametrize("cone", ["pyramidal", "elliptic"])
def test_c20_noslip_ends_the_creep(cone):
    ours, theirs = creep(cone, 10, noslip=10)
    assert abs(ours) < 1e-7 and abs(theirs) < 1e-7


@pytest.mark.parametrize("noslip", [0, 5])
@pytest.mark.parametrize("cone", ["pyramidal", "elliptic"])
def test_c20_stacks_with_almost_no_friction_stay(cone, noslip):
    stacks = "".join(
        f"""<body pos="{x} 0 .2"><freejoint/>
              <geom type="box" size=".2 .2 .2" mass="1" friction="{mu} 0 0"/></body>
            <body pos="{x} 0 .5"><freejoint/>
              <geom type="box" size=".1 .1 .1" mass="1" friction="{mu} 0 0"/></body>"""
        for x, mu in enumerate((1e-3, 1e-5, 0))
    )
    sim = build(
        f'<geom type="plane" size="9 9 1" friction="0 0 0"/>{stacks}',
        f'<option cone="{cone}" timestep=".005" noslip_iterations="{noslip}"/>',
    )
    with torch.inference_mode():
        for _ in range(100):
            sim.step()
            assert bool(torch.isfinite(sim.qpos).all() & torch.isfinite(sim.qvel).all())
    z = sim.qpos.reshape(3, 2, 7)[..., 2]
    assert z[:, 0].tolist() == pytest.approx([0.1998] * 3, abs=3e-4)
    assert z[:, 1].tolist() == pytest.approx([0.4998] * 3, abs=3e-4)


def test_c42_a_peg_on_a_cube_lies_still():
    sim = build(
        """<geom type="box" size=".025 .025 .025" pos="0 0 .025"/>
        <body name="peg" pos="0 0 .0605"><freejoint/>
        <geom type="box" size=".048 .01 .01" condim="6"/></body>"""
    )
    run(sim, 1)
    assert sim.qvel.abs().max() < 1e-3
    assert sim.body("peg").pos[0].tolist() == pytest.approx([0, 0, 0.06], abs=1e-4)
    assert sim.contacts().active.sum() == 4
    before = sim.qpos.clone()
    run(sim, 0.02)
    assert (sim.qpos - before).abs().max() < 1e-6


def test_c44_fast_spheres_and_a_thin_wall():
    # the limit: above about 2 m/s a 5 mm sphere crosses a 4 mm wall between two steps of 2 ms
    wall = """<geom type="box" size=".002 .1 .1"/>
        <body pos="-.05 0 0"><freejoint/><geom size=".005" mass=".01"/></body>"""
    sim = build(wall, '<option gravity="0 0 0" timestep=".002"/>', worlds=4)
    speed = torch.tensor([1.0, 3, 10, 30])

    def throw() -> torch.Tensor:
        velocity = torch.zeros(4, 6)
        velocity[:, 0] = speed
        sim.qvel = velocity
        return run(sim, 0.1).qvel[:, 0].clone()

    first = throw()
    assert first.tolist() == pytest.approx([-0.126, 2.375, 10, 30], abs=2e-3)
    for _ in range(99):
        sim.reset()
    assert torch.equal(throw(), first)


def test_c45_a_cube_that_starts_in_the_ground_is_not_launched():
    sim = build(
        """<geom type="plane" size="1 1 1"/>
        <body pos="0 0 .05"><freejoint/><geom type="box" size=".1 .1 .1" mass="1"/></body>"""
    )
    peak = speed = 0.0
    with torch.inference_mode():
        for _ in range(300):
            sim.step()
            peak = max(peak, sim.qpos[0, 2].item())
            speed = max(speed, sim.qvel.abs().max().item())
    assert peak < 0.12
    assert speed == pytest.approx(0.943, abs=0.01)
    assert sim.qpos[0, 2].item() == pytest.approx(0.0999, abs=1e-3)


RAMP = '<geom type="box" size="2 3 .05" euler="0 30 0" pos="0 0 .05"/>'


def falling(body: str) -> tuple[alloy.Simulator, mujoco.MjModel, mujoco.MjData]:
    text = f"<mujoco><worldbody>{RAMP}{body}</worldbody></mujoco>"
    mj = mujoco.MjModel.from_xml_string(text)
    return alloy.build(mj, dtype=torch.float64), mj, mujoco.MjData(mj)


def test_c46_an_off_centre_body_that_is_aligned_falls_like_a_centred_one():
    sim, mj, data = falling(
        """<body name="centred" pos=".3 0 .3"><freejoint/><geom size=".01"/></body>
        <body name="aligned" pos="0 1 0"><freejoint align="true"/>
          <geom name="geom" size=".01" pos=".3 0 .3"/></body>"""
    )
    for _ in range(5):
        run(sim, 0.1)
        mujoco.mj_step(mj, data, nstep=50)
        offset = sim.geom("geom").pos - sim.body("centred").pos
        assert offset[0].tolist() == pytest.approx([0, 1, 0], abs=1e-9)
        np.testing.assert_allclose(sim.qpos[0].numpy(), data.qpos, atol=1e-6)
    assert sim.contacts().active.sum() == data.ncon == 2
    assert sim.qvel[0, :3].norm() < 4  # it rolls, it has not been thrown


def test_c46_an_off_centre_body_that_is_not_aligned_is_as_in_mujoco_or_better():
    sim, mj, data = falling('<body><freejoint/><geom size=".01" pos=".3 0 .3"/></body>')
    while data.ncon == 0:
        mujoco.mj_step(mj, data)
        run(sim, mj.opt.timestep)
        assert data.time < 1
    np.testing.assert_allclose(sim.qpos[0].numpy(), data.qpos, atol=1e-6)
    run(sim, 0.3)
    assert torch.isfinite(sim.qpos).all() and torch.isfinite(sim.qvel).all()


def test_c48_an_independent_hinge_is_not_touched_by_a_limit():
    sim = build(
        """<body pos="0 0 1"><joint axis="0 0 1"/><geom size=".1"/></body>
        <body pos="1 0 1"><joint axis="0 0 1" range="-1 1"/><geom size=".1"/></body>""",
        '<option timestep=".01"/>',
    )
    sim.qvel = torch.tensor([[1.0, 0.0]])
    run(sim, 2)
    assert sim.qpos[0].tolist() == pytest.approx([2, 0], abs=1e-9)
    assert sim.qvel[0].tolist() == pytest.approx([1, 0], abs=1e-9)


def test_c48_limit_rows():
    hinge = build(
        """<body><joint axis="0 0 1" range="-.5 .5" margin=".1"/><geom size=".1"/></body>""",
        '<compiler angle="radian"/>',
    )
    hinge.qpos = np.array([[0.45]])
    ball = build(
        """<body><joint type="ball" range="0 .6"/><geom size=".1"/></body>""",
        '<compiler angle="radian"/>',
    )
    ball.qpos = np.array([[np.cos(0.4), np.sin(0.4), 0, 0]])
    for sim, pos in ((hinge, 0.05), (ball, -0.2)):
        sim.forward()
        d = sim.data
        active = d.efc_active[0]
        assert active.sum() == 1
        margin = sim.model.jnt_margin[0, 0]  # rows keep the distance less the margin
        assert (d.efc_pos[0, active] + margin).item() == pytest.approx(pos, abs=1e-9)
    assert hinge.data.efc_J[0, hinge.data.efc_active[0]].tolist() == [[-1]]


def test_c48_damping_of_a_limit_does_not_depend_on_inertia():
    # critically damped for a light and for a heavy body: neither comes back beyond the limit
    sim = build(
        """<body><joint type="slide" axis="1 0 0" range="-1 0"/><geom size=".1" mass=".01"/></body>
        <body pos="0 1 0"><joint type="slide" axis="1 0 0" range="-1 0"/>
          <geom size=".1" mass="100"/></body>""",
        '<option gravity="0 0 0"/>',
    )
    sim.qvel = torch.tensor([[0.5, 0.5]])
    with torch.inference_mode():
        for _ in range(50):
            sim.step()
            assert sim.qpos[0, 0].item() == pytest.approx(sim.qpos[0, 1].item(), abs=1e-9)


def test_c50_friction_loss_elsewhere_lets_a_box_rest_on_the_floor():
    sim = build(
        """<geom type="plane" size="9 9 1"/>
        <body name="box" pos="0 0 1"><freejoint/><geom type="box" size=".1 .1 .1" mass="1"/></body>
        <body pos="2 0 1"><joint axis="0 1 0" frictionloss=".1"/>
          <geom type="capsule" size=".02" fromto="0 0 0 .3 0 0"/></body>""",
        '<option timestep=".005"/>',
    )
    run(sim, 1.5)
    assert sim.body("box").pos[0, 2].item() == pytest.approx(0.0999, abs=1e-3)
    assert sim.contacts().active.sum() == 4
