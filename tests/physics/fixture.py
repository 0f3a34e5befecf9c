"""MuJoCo's model and data beside ours, and comparisons that know what may be reordered."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import gymnasium
import mujoco
import numpy as np
import torch
from torch import Tensor

import alloy
from alloy.physics import io
from alloy.physics.model import Data, Model

GYM_ASSETS = Path(gymnasium.__file__).parent / "envs" / "mujoco" / "assets"
GYM_MODELS = (
    "half_cheetah.xml", "hopper.xml", "walker2d_v5.xml", "ant.xml", "humanoid.xml",
    "inverted_pendulum.xml", "inverted_double_pendulum.xml", "reacher.xml", "swimmer.xml",
)  # fmt: skip


@dataclass
class Fixture:
    """One world: MuJoCo's model and data, and the same in tensors."""

    mj: mujoco.MjModel
    mjd: mujoco.MjData
    m: Model
    d: Data


def load(source: str) -> mujoco.MjModel:
    """A model from MJCF text or from the name of one of Gymnasium's files."""
    if source.lstrip().startswith("<"):
        return mujoco.MjModel.from_xml_string(source)
    return mujoco.MjModel.from_xml_path(str(GYM_ASSETS / source))


def tighten(mj: mujoco.MjModel) -> None:
    """Let MuJoCo's solver run to the minimum: Newton, no tolerance, dense."""
    mj.opt.solver = mujoco.mjtSolver.mjSOL_NEWTON
    mj.opt.tolerance = 0
    mj.opt.ls_tolerance = 1e-10
    mj.opt.iterations = 200


def random_state(mj: mujoco.MjModel, mjd: mujoco.MjData, rng: np.random.Generator) -> None:
    """A random state near qpos0, quaternions normalised, controls and wrenches included."""
    mujoco.mj_resetData(mj, mjd)
    mjd.qpos[:] = mj.qpos0 + 0.4 * rng.normal(size=mj.nq)
    mujoco.mj_normalizeQuat(mj, mjd.qpos)
    mjd.qvel[:] = rng.normal(size=mj.nv)
    mjd.ctrl[:] = rng.uniform(-1.2, 1.2, mj.nu)
    mjd.act[:] = rng.uniform(0, 0.5, mj.na)
    mjd.plastic[:] += 0.2 * rng.normal(size=mj.nplastic)
    upper = mj.tendon_plasticadr[mj.tendon_plasticadr >= 0] + 1
    mjd.plastic[upper] = mjd.plastic[upper - 1] + rng.uniform(0, 0.4, len(upper))
    mjd.xfrc_applied[1:] = 0.3 * rng.normal(size=(mj.nbody - 1, 6))
    mjd.qfrc_applied[:] = 0.3 * rng.normal(size=mj.nv)


def fixture(source: str, seed: int = 0, tight: bool = True, **option: object) -> Fixture:
    """Model, random state and both engines' data; `option` sets fields of mjOption."""
    mj = load(source)
    if tight:
        tighten(mj)
    for name, value in option.items():
        setattr(mj.opt, name, value)
    mjd = mujoco.MjData(mj)
    random_state(mj, mjd, np.random.default_rng(seed))
    m = io.put_model(mj, dtype=torch.float64)
    mujoco.mj_forward(mj, mjd)
    return Fixture(mj, mjd, m, io.put_data(m, mj, mjd))


def assert_close(actual: Tensor, expected: np.ndarray, name: str, rtol: float = 1e-9) -> None:
    """Equal relative to the largest entry; `actual` is one world, (1, ...)."""
    actual_array = actual[0].detach().numpy()
    expected_array = np.asarray(expected, dtype=float).reshape(actual_array.shape)
    scale = 1 + np.abs(expected_array).max(initial=0)
    error = np.abs(actual_array - expected_array).max(initial=0) / scale
    assert error <= rtol, f"{name}: relative error {error:.2e} above {rtol:.0e}"


def sort_rows(rows: np.ndarray) -> np.ndarray:
    """Rows in a canonical order that rounding does not change."""
    return rows[np.lexsort(np.round(rows, 6).T)]


def mujoco_rows(m: Model, d: Data) -> np.ndarray:
    """Our active base rows in MuJoCo's form: [J, D, aref], pyramid edges spelled out; one world."""
    jac, weight, aref = (x[0].numpy() for x in (d.efc_J, d.efc_D, d.efc_aref))
    active = d.efc_active[0].numpy()
    rows = [(jac[i], weight[i], aref[i]) for i in range(m.efc.n_scalar) if active[i]]
    for cone in m.efc.cones:
        slots = range(m.ncon) if cone.slots is None else cone.slots.tolist()
        for k, slot in enumerate(slots):
            first = cone.start + k * cone.dim
            if not active[first]:
                continue
            if not m.efc.pyramidal:
                rows += [(jac[i], weight[i], aref[i]) for i in range(first, first + cone.dim)]
                continue
            for j in range(1, cone.dim):
                slide = m.con_friction[0, slot, j - 1].item()
                for sign in (slide, -slide):
                    rows.append(
                        (jac[first] + sign * jac[first + j], weight[first],
                         aref[first] + sign * aref[first + j])
                    )  # fmt: skip
    flat = [np.concatenate([j, [w, a]]) for j, w, a in rows]
    return np.array(flat).reshape(len(flat), m.nv + 2)


def oracle_rows(mj: mujoco.MjModel, mjd: mujoco.MjData) -> np.ndarray:
    """MuJoCo's constraint rows [J, D, aref]."""
    jac = np.zeros((mjd.nefc, mj.nv))
    if mjd.nefc:
        if mujoco.mj_isSparse(mj):
            mujoco.mju_sparse2dense(
                jac, mjd.efc_J, mjd.efc_J_rownnz, mjd.efc_J_rowadr, mjd.efc_J_colind
            )
        else:
            jac = mjd.efc_J.reshape(mjd.nefc, mj.nv).copy()
    return np.column_stack([jac, mjd.efc_D, mjd.efc_aref])


def oracle_cost(mj: mujoco.MjModel, mjd: mujoco.MjData, qacc: np.ndarray) -> float:
    """MuJoCo's own primal cost at an acceleration, on MuJoCo's own rows."""
    force = np.zeros(mj.nv)
    mujoco.mj_mulM(mj, mjd, force, qacc)
    gauss = 0.5 * (force - mjd.qfrc_smooth) @ (qacc - mjd.qacc_smooth)
    rows = oracle_rows(mj, mjd)
    cost = np.zeros(1)
    if mjd.nefc:
        mujoco.mj_constraintUpdate(mj, mjd, rows[:, : mj.nv] @ qacc - mjd.efc_aref, cost, 0)
    return float(gauss + cost[0])


def assert_stopped_world_keeps(sim: alloy.Simulator, record: str) -> None:
    """Of two worlds the one that blows up leaves a field of Data as it was, the other does not."""
    sim.step(torch.ones_like(sim.ctrl))
    qvel = sim.qvel.clone()
    qvel[1] = torch.nan
    sim.qvel = qvel
    before = getattr(sim.data, record).clone()
    sim.step(2 * torch.ones_like(sim.ctrl))
    after = getattr(sim.data, record)
    assert sim.health().invalid.tolist() == [False, True]
    assert torch.equal(after[1], before[1])
    assert not torch.equal(after[0], before[0])


def assert_lanes_agrees(
    ours: alloy.Simulator, theirs: alloy.Simulator, atol: float, rtol: float
) -> None:
    """A compiled simulation and an exact one, after a few steps with random controls."""
    ctrl = torch.from_numpy(np.random.default_rng(3).normal(size=tuple(theirs.ctrl.shape)))
    for sim in (ours, theirs):
        for _ in range(3):
            sim.step(ctrl.to(sim.dtype), substeps=4)
    assert "reference" not in str(ours.engine_report())
    torch.testing.assert_close(ours.qvel.double(), theirs.qvel, atol=atol, rtol=rtol)
    torch.testing.assert_close(ours.act.double(), theirs.act, atol=1e-4, rtol=1e-4)
