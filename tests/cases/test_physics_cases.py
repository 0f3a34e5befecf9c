"""Cases from the field about motion as most users run them: float32, compiled for the CPU.

tests/test_cases_motion.py has the same cases in float64 on the reference. The numbers are those of
docs/cases.md's sources, measured with MuJoCo.
"""

import mujoco
import pytest
import torch

import alloy


def build(bodies: str, options: str = "", worlds: int = 1) -> alloy.Simulator:
    text = f"<mujoco>{options}<worldbody>{bodies}</worldbody></mujoco>"
    return alloy.build(mujoco.MjModel.from_xml_string(text), worlds, engine="lanes")


def run(sim: alloy.Simulator, seconds: float) -> alloy.Simulator:
    with torch.inference_mode():
        sim.step(substeps=round(seconds / sim.physics_dt))
    return sim


def sound(sim: alloy.Simulator) -> bool:
    finite = all(torch.isfinite(t).all() for t in (sim.qpos, sim.qvel, sim.qacc))
    return finite and not sim.health().invalid.any()


@pytest.mark.parametrize("friction", ["1e-3", "1e-5", "0"])
def test_c20_stacks_with_almost_no_friction_stay_finite_in_float32(friction):
    bodies = "".join(
        f"""<body pos="0 0 {z}"><freejoint/>
          <geom type="box" size="{r} {r} {r}" mass="1" friction="{friction} 0 0"/></body>"""
        for z, r in ((0.2, 0.2), (0.5, 0.1))
    )
    text = f"""<mujoco><worldbody><geom type="plane" size="9 9 1" friction="0 0 0"/>{bodies}
        </worldbody></mujoco>"""
    sim = alloy.build(text, engine="reference")
    for _ in range(100):
        run(sim, sim.physics_dt)
        assert sound(sim)
    assert sim.qpos[0, [2, 9]].tolist() == pytest.approx([0.1998, 0.4998], abs=3e-4)


def test_c42_a_peg_on_a_cube_lies_still():
    sim = build(
        """<geom type="box" size=".025 .025 .025" pos="0 0 .025"/>
        <body name="peg" pos="0 0 .0605"><freejoint/>
        <geom type="box" size=".048 .01 .01" condim="6"/></body>""",
    )
    run(sim, 1)
    assert sound(sim)
    assert sim.qvel.abs().max() < 1e-3
    assert sim.body("peg").pos[0].tolist() == pytest.approx([0, 0, 0.06], abs=1e-4)
    assert sim.contacts().active.sum() == 4


def test_c44_spheres_and_a_thin_wall_after_a_hundred_resets():
    wall = """<geom type="box" size=".002 .1 .1"/>
        <body pos="-.05 0 0"><freejoint/><geom size=".005" mass=".01"/></body>"""
    sim = build(wall, '<option gravity="0 0 0"/>', worlds=4)
    throw = torch.zeros(4, 6)
    throw[:, 0] = torch.tensor([1.0, 3, 10, 30])
    results = []
    for _ in range(101):
        sim.reset()
        sim.qvel = throw
        results.append(run(sim, 0.1).qvel[:, 0].clone())
    assert sound(sim)
    assert results[0].tolist() == pytest.approx([-0.126, 2.375, 10, 30], abs=2e-3)
    assert torch.equal(results[-1], results[0])


def test_c45_a_cube_that_starts_in_the_ground_is_not_launched():
    sim = build(
        """<geom type="plane" size="1 1 1"/>
        <body pos="0 0 .05"><freejoint/><geom type="box" size=".1 .1 .1" mass="1"/></body>""",
    )
    heights, speeds = [], []
    for _ in range(300):
        run(sim, sim.physics_dt)
        heights.append(sim.qpos[0, 2].item())
        speeds.append(sim.qvel.abs().max().item())
    assert sound(sim)
    assert max(heights) == pytest.approx(0.1096, abs=2e-4)
    assert max(speeds) == pytest.approx(0.943, abs=2e-3)
    assert heights[-1] == pytest.approx(0.0999, abs=1e-3)


def test_c46_off_centre_bodies_on_a_ramp():
    sim = build(
        """<geom type="box" size="2 3 .05" euler="0 30 0" pos="0 0 .05"/>
        <body name="centred" pos=".3 -1 .3"><freejoint/><geom size=".01"/></body>
        <body name="aligned"><freejoint align="true"/>
          <geom name="aligned" size=".01" pos=".3 0 .3"/></body>""",
        worlds=3,
    )
    run(sim, 0.5)
    assert sound(sim)
    offset = sim.geom("aligned").pos - sim.body("centred").pos
    assert offset.flatten().tolist() == pytest.approx([0, 1, 0] * 3, abs=1e-4)
    assert sim.qvel[:, :3].norm(dim=1).max() < 4


def test_c46_an_off_centre_body_that_is_not_aligned_troubles_its_own_world_only():
    ramp = '<geom type="box" size="2 3 .05" euler="0 30 0" pos="0 0 .05"/>'
    lever = '<body><freejoint/><geom size=".01" pos=".3 0 .3"/></body>'
    sim = build(ramp + lever, worlds=3)
    far = sim.qpos.clone()
    far[1, 2] = 100  # this one never meets the ramp
    sim.qpos = far
    run(sim, 1)
    assert torch.isfinite(sim.qpos).all() and torch.isfinite(sim.qvel).all()
    assert not sim.health().invalid[1]
    # half a metre from its origin a body of 4 g turns by rounding; the pull of gravity is exact
    assert sim.qvel[1].tolist() == pytest.approx([0, 0, -9.81, 0, 0, 0], abs=2e-2)
    assert torch.equal(sim.qpos[0], sim.qpos[2])


def test_c50_friction_loss_elsewhere_lets_a_box_rest_on_the_floor():
    sim = build(
        """<geom type="plane" size="9 9 1"/>
        <body name="box" pos="0 0 1"><freejoint/><geom type="box" size=".1 .1 .1" mass="1"/></body>
        <body pos="2 0 1"><joint axis="0 1 0" frictionloss=".1"/>
          <geom type="capsule" size=".02" fromto="0 0 0 .3 0 0"/></body>""",
    )
    run(sim, 3)
    assert sound(sim)
    assert sim.body("box").pos[0, 2].item() == pytest.approx(0.0999, abs=1e-3)
    assert sim.contacts().active.sum() == 4
