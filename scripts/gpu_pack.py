"""Export what scripts/gpu_check.py needs on a machine that has neither mujoco nor gymnasium.

    python scripts/gpu_pack.py            # into out/gpu_pack, a few MB

For each model: the compiled model in float64, states after a while of random controls under
MuJoCo, and where the float64 reference takes them in 1 and in 10 steps.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import mujoco
import numpy as np
import torch
from suite import LANES
from tqdm import tqdm

from alloy.physics import forward, io
from alloy.physics.model import INPUTS, STATE, Data, Model, make_data

MODELS = ("HalfCheetah", "Ant", "Humanoid", "Go2", "GripperLift")
WORLDS = 64
SECONDS = 0.5  # of random controls before a state is taken
STEPS = (1, 10)


def states(mj: mujoco.MjModel, m: Model, worlds: int) -> Data:
    """A state under random controls for each world, and the controls."""
    d, mjd = make_data(m, worlds), mujoco.MjData(mj)
    low, high = np.where(mj.actuator_ctrllimited[:, None], mj.actuator_ctrlrange, [-1, 1]).T
    for w in range(worlds):
        rng = np.random.default_rng(w)
        mujoco.mj_resetData(mj, mjd)
        if mj.nkey:
            mujoco.mj_resetDataKeyframe(mj, mjd, 0)
        for k in range(round(SECONDS / mj.opt.timestep)):
            if k % 5 == 0:
                mjd.ctrl[:] = rng.uniform(low, high)
            mujoco.mj_step(mj, mjd)
        for name in (*STATE[:4], "ctrl"):
            getattr(d, name)[w] = torch.as_tensor(getattr(mjd, name))
    return d


def pack(name: str) -> dict[str, object]:
    """Model, states and the reference's results."""
    mj = LANES[name]().compile()
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
