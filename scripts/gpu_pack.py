"""Export what scripts/gpu_check.py needs on a machine that has neither mujoco nor gymnasium.

    python scripts/gpu_pack.py            # into out/gpu_pack, a few MB

For each model: the compiled model in float64, states after a while of random controls under
MuJoCo, and where the float64 reference takes them in 1 and in 10 steps.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import mujoco
import numpy as np
import torch
from suite import LANES
from tqdm import tqdm

from alloy.physics import forward, io
from alloy.physics.model import INPUTS, STATE, Data, Model, make_data

# a pair of every kind that has a kernel, each of a geom that stands still with one on a body of
# its own; lone free bodies, with the integrator that needs elimination for them
PAIRS = ("plane s, plane c, plane e, plane y, plane b, S s, S c, S e, S y, S b, C c, C e, C y, "
         "C b, B e, B b")  # fmt: skip
SHAPES = f"""
<mujoco><option integrator="implicitfast" timestep=".004"/>
<default><geom contype="0" conaffinity="0"/></default>
<worldbody>
  <geom name="plane" type="plane" size="5 5 1"/>
  <geom name="S" size=".2" pos="-.3 0 .1"/>
  <geom name="C" type="capsule" size=".1 .3" pos=".1 .2 .1" euler="90 20 0"/>
  <geom name="B" type="box" size=".2 .3 .1" pos=".4 -.3 .1" euler="0 10 25"/>
  <body pos="-.3 .05 .6"><freejoint/><geom name="s" size=".1"/></body>
  <body pos="-.1 .1 .5" euler="70 0 20"><freejoint/>
    <geom name="c" type="capsule" size=".08 .15"/></body>
  <body pos=".2 -.1 .5"><freejoint/><geom name="e" type="ellipsoid" size=".1 .15 .2"/></body>
  <body pos="0 .3 .5"><freejoint/><geom name="y" type="cylinder" size=".12 .1"/></body>
  <body pos=".3 -.3 .6"><freejoint/><geom name="b" type="box" size=".1 .12 .15"/></body>
</worldbody><contact>
{"".join('<pair geom1="{}" geom2="{}"/>'.format(*p.split()) for p in PAIRS.split(", "))}
</contact></mujoco>"""


def _scene(name: str) -> mujoco.MjModel:
    return LANES[name]().compile()


MODELS: dict[str, Callable[[], mujoco.MjModel]] = {
    name: partial(_scene, name) for name in ("HalfCheetah", "Ant", "Humanoid", "Go2", "GripperLift")
} | {"Shapes": partial(mujoco.MjModel.from_xml_string, SHAPES)}
WORLDS = 64
SECONDS = 0.5  # of random controls, from a random velocity, before a state is taken
STEPS = (1, 10)


def states(mj: mujoco.MjModel, m: Model, worlds: int) -> Data:
    """A state after a while under random controls for each world, and the controls."""
    d, mjd = make_data(m, worlds), mujoco.MjData(mj)
    low, high = np.where(mj.actuator_ctrllimited[:, None], mj.actuator_ctrlrange, [-1, 1]).T
    for w in range(worlds):
        rng = np.random.default_rng(w)
        mujoco.mj_resetData(mj, mjd)
        if mj.nkey:
            mujoco.mj_resetDataKeyframe(mj, mjd, 0)
        mjd.qvel[:] = 0.3 * rng.standard_normal(mj.nv)
        for k in range(round(SECONDS / mj.opt.timestep)):
            if k % 5 == 0:
                mjd.ctrl[:] = rng.uniform(low, high)
            mujoco.mj_step(mj, mjd)
        for name in (*STATE[:4], "ctrl"):
            getattr(d, name)[w] = torch.as_tensor(getattr(mjd, name))
    return d


def pack(name: str) -> dict[str, object]:
    """Model, states and the reference's results."""
    mj = MODELS[name]()
    m = io.put_model(mj, dtype=torch.float64)
    start = d = states(mj, m, WORLDS)
    after = {}
    for step in range(1, max(STEPS) + 1):
        d = forward.step(m, d)
        if step in STEPS:
            after[step] = {field: getattr(d, field).clone() for field in (*STATE, "qacc")}
    kept = {field: getattr(start, field) for field in (*STATE, *INPUTS)}
    return {"model": replace(m), "start": kept, "after": after}


def main() -> None:
    """Write one file for each model."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=MODELS)
    parser.add_argument("--out", type=Path, default=Path("out/gpu_pack"))
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    for name in tqdm(args.models, desc="packing", unit="model"):
        torch.save(pack(name), args.out / f"{name}.pt")
    size = sum(path.stat().st_size for path in args.out.iterdir())
    print(f"{args.out}: {size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
