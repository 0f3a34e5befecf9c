"""What MuJoCo's compiler and mj_setConst derive from quantities that were drawn, for each world.

Derivations run in float64. Two things keep their nominal value, as they are no parameters of the
dynamics: `meaninertia`, which scales the solver's tolerance, and the sensors' and contacts' static
tables.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from alloy import ops
from alloy.math import cross, quat_conj, quat_mul, rotate
from alloy.ops.reference.transmission import transmission
from alloy.physics import passive, smooth
from alloy.physics.model import Data, Model, make_data, present

MINMU = 1e-5  # mjMINMU: least friction of a contact
_INERTIA = {"body_mass", "body_inertia", "body_ipos", "dof_armature", "tendon_armature"}
_PLACES = {"body_pos", "body_quat", "site_pos", "site_quat"}


@dataclass(frozen=True)
class Nominal:
    """What derivations need of a scene beside its Model; made by io_randomize."""

    geom_solref: Tensor  # (1, ngeom, 2)
    geom_solimp: Tensor  # (1, ngeom, 5)
    mix: Tensor  # (ncon, 2) share of each geom's solver parameters in a contact's
    by_priority: Tensor  # (ncon, 1) bool: all of them are one geom's
    connects: Tensor  # (n,) equalities whose second anchor follows from the first
    welds: Tensor  # (n,) equalities whose relative pose is that of the start
    eq_body1: Tensor  # (neq,)
    eq_body2: Tensor


class Values:
    """Fields in float64 with a row for each world; `new` has those that were put."""

    def __init__(self, m: Model, worlds: int) -> None:
        """Nothing is changed at first."""
        self.m, self.worlds = m, worlds
        self.new: dict[str, Tensor] = {}

    def __getitem__(self, name: str) -> Tensor:
        if name in self.new:
            return self.new[name]
        source = self.nominal if name in ("geom_solref", "geom_solimp") else self.m
        shared = getattr(source, name).double()
        return shared.expand(self.worlds, *shared.shape[1:])

    @property
    def nominal(self) -> Nominal:
        """Beside the model."""
        return self.m.derived["randomize"]

    def put(self, name: str, at: tuple[Tensor | slice | int, ...], value: Tensor) -> None:
        """Set a part of a field, at indices behind the world axis."""
        whole = self[name].clone()
        whole[(slice(None), *at)] = value
        self.new[name] = whole

    def constant(self, numbers: Sequence[float]) -> Tensor:
        """Float64 on the model's device, copied there once."""
        return _on_device(tuple(numbers), torch.float64, str(self.m.qpos0.device))

    def index(self, ids: Sequence[int]) -> Tensor:
        """Indices on the model's device, copied there once."""
        return _on_device(tuple(ids), torch.int64, str(self.m.qpos0.device))


@lru_cache(maxsize=512)
def _on_device(numbers: tuple[float, ...], dtype: torch.dtype, device: str) -> Tensor:
    return torch.tensor(numbers, dtype=dtype, device=device)


# ------------------------------------------------------------------ shapes

# what a scene calls the size of a shape, over what MuJoCo stores: radius, half lengths
SIZE_FACTORS = {
    "sphere": (1.0,),
    "capsule": (1.0, 2.0),
    "cylinder": (1.0, 2.0),
    "ellipsoid": (2.0, 2.0, 2.0),
    "box": (2.0, 2.0, 2.0),
}


def filled(shape: str, size: Tensor) -> tuple[Tensor, Tensor]:
    """Volume (W,) and inertia for a mass of 1 about the principal axes (W, 3), filled uniformly."""
    a, b, c = size.unbind(-1)
    if shape == "sphere":
        return 4 / 3 * math.pi * a**3, (0.4 * a * a).unsqueeze(-1).expand(-1, 3)
    if shape in ("ellipsoid", "box"):
        square = size * size
        others = square.sum(-1, keepdim=True) - square
        if shape == "box":
            return 8 * a * b * c, others / 3
        return 4 / 3 * math.pi * a * b * c, others / 5
    tube = 2 * math.pi * a * a * b  # a: radius, b: half length
    across, along = tube * (a * a / 4 + b * b / 3), tube * a * a / 2
    volume = tube
    if shape == "capsule":  # two half balls, their centres of mass 3/8 of a radius beyond the ends
        ball = 4 / 3 * math.pi * a**3
        volume = tube + ball
        across = across + ball * (0.4 * a * a + b * b + 0.75 * a * b)
        along = along + ball * 0.4 * a * a
    return volume, torch.stack([across, across, along], -1) / volume.unsqueeze(-1)


def bounding_radius(shape: str, size: Tensor) -> Tensor:
    """Radius (W,) about a geom's centre."""
    a, b, _ = size.unbind(-1)
    if shape == "sphere":
        return a
    if shape == "capsule":
        return a + b
    if shape == "cylinder":
        return torch.hypot(a, b)
    return size.amax(-1) if shape == "ellipsoid" else torch.linalg.vector_norm(size, dim=-1)


# ------------------------------------------------------------------ what follows


def derive(values: Values) -> None:
    """Everything that follows from the fields put so far, the constants of the rows aside."""
    m, new = values.m, values.new
    held = m.neq > 0 and len(values.nominal.connects) + len(values.nominal.welds) > 0
    moved = _PLACES | ({"eq_data"} if held else set())
    if new.keys() & (_INERTIA | moved | {"actuator_gear"}) and m.nv:
        new["body_subtreemass"] = values["body_mass"] @ m.tree.subtree.double().mT
        start = _double(values)
        d = smooth.kinematics(start, make_data(start, values.worlds))
        d = smooth.mass_matrix(start, passive.tendon(start, d) if m.ntendon else d)
        new |= _inverse_weights(start, d)
        if m.ntendon and new.keys() & _PLACES:
            new["tendon_length0"] = d.ten_length
        if held and new.keys() & moved:
            new["eq_data"] = _equality_data(values, d)
    con = m.derived["contact"]
    if "geom_friction" in new and m.ncon:
        both = torch.stack([values["geom_friction"][:, g] for g in (con.geom1, con.geom2)], -1)
        mixed = (both * con.take.double().unsqueeze(1)).amax(-1)[..., [0, 0, 1, 2, 2]]
        friction = torch.where(con.is_pair, con.pair_friction.double(), mixed)
        new["con_friction"] = friction.clamp(min=MINMU)
    for name in ("solref", "solimp"):
        if f"geom_{name}" in new and m.ncon:
            new[f"con_{name}"] = _contact_solver(values, name)
        new.pop(f"geom_{name}", None)


def _equality_data(values: Values, d: Data) -> Tensor:
    """Anchors of connects and relative poses of welds that hold at qpos0."""
    n, data = values.nominal, values["eq_data"].clone()

    def poses(ids: Tensor) -> list[tuple[Tensor, Tensor, Tensor]]:
        bodies = (n.eq_body1[ids], n.eq_body2[ids])
        return [(d.xpos[:, b], d.xmat[:, b], d.xquat[:, b]) for b in bodies]

    (pos1, mat1, _), (pos2, mat2, _) = poses(n.connects)
    anchor = pos1 + rotate(mat1, data[:, n.connects, :3])
    data[:, n.connects, 3:6] = rotate(mat2.mT, anchor - pos2)
    (pos1, mat1, quat1), (pos2, mat2, quat2) = poses(n.welds)
    anchor = pos2 + rotate(mat2, data[:, n.welds, :3])
    data[:, n.welds, 3:6] = rotate(mat1.mT, anchor - pos1)
    data[:, n.welds, 6:10] = quat_mul(quat_conj(quat1), quat2)
    return data


def _contact_solver(values: Values, name: str) -> Tensor:
    """`solref` or `solimp` of every contact slot, mixed from its geoms' unless a pair gives it."""
    n, con = values.nominal, values.m.derived["contact"]
    one, two = (values[f"geom_{name}"][:, g] for g in (con.geom1, con.geom2))
    mixed = n.mix[:, :1] * one + n.mix[:, 1:] * two
    if name == "solref":  # direct ones, which are negative, do not mix
        standard = (one[..., :1] > 0) & (two[..., :1] > 0) | n.by_priority
        mixed = torch.where(standard, mixed, torch.minimum(one, two))
    return torch.where(con.is_pair, values[f"con_{name}"], mixed)


def _inverse_weights(m: Model, d: Data) -> dict[str, Tensor]:
    """What mj_setConst says of inertia at qpos0: of bodies, dofs, tendons, and actuators' acc0."""
    tree = m.tree
    # factorised from the leaves to the root, which keeps the zeros of M
    unit = torch.eye(m.nv, dtype=d.M.dtype, device=d.M.device).expand_as(d.M)
    inverse = torch.cholesky_solve(unit, ops.factor(d.M)).flip(-1, -2)

    joint, turns = tree.dof_anchor, tree.dof_is_rot
    alike = ((joint == joint.unsqueeze(-1)) & (turns == turns.mT)).double()
    dof = torch.diagonal(inverse, dim1=-2, dim2=-1) @ (alike / alike.sum(0))

    arm = (d.xipos - d.subtree_com[:, tree.body_root]).unsqueeze(2)  # (W, nbody, 1, 3)
    rot, lin = d.cdof.unsqueeze(1).split(3, -1)  # (W, 1, nv, 3)
    moves = tree.moves.unsqueeze(-1)
    jacobian = torch.stack([lin + cross(rot, arm), rot.expand(-1, arm.shape[1], -1, -1)], 1)
    jacobian = (jacobian * moves).transpose(-1, -2)  # (W, 2, nbody, 3, nv)
    weight = ((jacobian @ inverse[:, None, None]) * jacobian).sum(-1).mean(-1)  # (W, 2, nbody)
    weights = {"body_invweight0": weight.mT, "dof_invweight0": dof}
    if m.ntendon:
        weights["tendon_invweight0"] = ((d.ten_J @ inverse) * d.ten_J).sum(-1)
    if m.nactuator:
        t = m.derived["actuation"]
        moment = transmission(m, d, replace(t, adhesion=None))[2]
        moment = m.actuator_gear[..., :1] * t.moment if moment is None else moment
        weights["actuator_acc0"] = torch.linalg.vector_norm(moment @ inverse, dim=-1)
    return weights


def _double(values: Values) -> Model:
    """The model with its new values in float64; without geoms and sites if nothing needs them."""
    m = values.m
    own = {f.name for f in present(m)}
    new = {name: getattr(m, name).double() for name in own}
    new |= {name: value for name, value in values.new.items() if name in own}
    new["derived"] = m.derived | {k: _in_double(m.derived[k]) for k in ("passive", "actuation")}
    t = m.derived["actuation"]
    if not m.ntendon and t.sites is None and t.cranks is None:
        new |= {"ngeom": 0, "nsite": 0}
    return replace(m, tree=_in_double(m.tree), **new)


def _in_double(table: Any) -> Any:
    """Tables of a stage with their constants in float64."""
    if isinstance(table, Tensor):
        return table.double() if table.is_floating_point() else table
    if isinstance(table, tuple):
        return tuple(_in_double(x) for x in table)
    if not is_dataclass(table) or isinstance(table, type):
        return table
    return replace(table, **{f.name: _in_double(getattr(table, f.name)) for f in fields(table)})
