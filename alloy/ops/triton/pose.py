"""Integration of positions. Twin of `alloy.ops.reference.pose`."""

# Parameters of kernels are blocks, fields, tables and numbers, without annotations.
# ruff: noqa: ANN001, ANN201, ANN202

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from alloy.ops.triton.lane import empty, launch, load, load3, load4, store, worlds_of
from alloy.ops.triton.tables import table
from alloy.ops.triton.vector import MINVAL, quat_from_axis_angle, quat_mul, quat_normalize


@triton.jit
def _turned(quat, omega, DT: tl.constexpr):
    """Quaternion after turning with body-frame velocity omega for DT: q * exp(omega DT / 2)."""
    speed = tl.sqrt(omega[0] * omega[0] + omega[1] * omega[1] + omega[2] * omega[2])
    tiny = speed < MINVAL
    inverse = 1.0 / tl.where(tiny, 1.0, speed)
    x = tl.where(tiny, 1.0, omega[0] * inverse)
    y, z = tl.where(tiny, 0.0, omega[1] * inverse), tl.where(tiny, 0.0, omega[2] * inverse)
    turn = quat_from_axis_angle((x, y, z), DT * speed)
    return quat_normalize(quat_mul(quat_normalize(quat), turn))


@triton.jit
def _integrate_quat_kernel(
    # in
    quat, omega,
    # out
    out,
    # sizes
    n, DT: tl.constexpr, n_world, BLOCK: tl.constexpr,
):  # fmt: skip
    """Out = quat * exp(omega DT / 2). Source: MuJoCo's mju_quatIntegrate."""
    w, m = worlds_of(n_world, BLOCK)
    for i in range(n):
        q = _turned(load4(quat, 4 * i, w, m), load3(omega, i, w, m), DT)
        for k in tl.static_range(4):
            store(out, 4 * i + k, w, m, q[k])


@triton.jit
def move(qpos, qvel, out, linear_ptr, quat_ptr, n_linear, n_quat, w, m, DT: tl.constexpr):
    """Out = qpos + DT qvel, and quaternions turn. Source: MuJoCo's mj_integratePos.

    The tables are pairs of addresses in qpos and qvel, of what moves linearly and of quaternions.
    """
    for i in range(n_linear):
        q, v = tl.load(linear_ptr + 2 * i), tl.load(linear_ptr + 2 * i + 1)
        store(out, q, w, m, load(qpos, q, w, m) + DT * load(qvel, v, w, m))
    for i in range(n_quat):
        q, v = tl.load(quat_ptr + 2 * i), tl.load(quat_ptr + 2 * i + 1)
        omega = load(qvel, v, w, m), load(qvel, v + 1, w, m), load(qvel, v + 2, w, m)
        turned = _turned(load4(qpos, q, w, m), omega, DT)
        for k in tl.static_range(4):
            store(out, q + k, w, m, turned[k])


def integrate_quat(quat: Tensor, omega: Tensor, dt: float) -> Tensor:
    """See `alloy.ops.integrate_quat`."""
    worlds, n, _ = quat.shape
    out = empty(worlds, n, 4, like=quat)
    launch(_integrate_quat_kernel, worlds, quat, omega, out, n, DT=dt)
    return out


@lru_cache(maxsize=64)
def addresses(
    nq: int, tables: tuple[Tensor | None, ...], device: torch.device
) -> tuple[Tensor, Tensor, int, int]:
    """The tables of `move` and their lengths, from Model.derived["integrate"]."""
    linear_qpos, linear_dof, quat_qpos, quat_dof, _ = tables
    everything = np.arange(nq)
    pairs = []
    for q, v, all_linear in (
        (linear_qpos, linear_dof, quat_qpos is None),
        (quat_qpos, quat_dof, False),
    ):
        if q is None or v is None:
            pairs.append(np.stack([everything] * 2, 1) if all_linear else np.zeros((0, 2), int))
        else:
            first = (x.cpu().numpy().reshape(len(x), -1)[:, 0] for x in (q, v))
            pairs.append(np.stack(list(first), 1))
    return *(table(p, device) for p in pairs), len(pairs[0]), len(pairs[1])
