"""Sensors: what a model has of them, and their stage.

As in MuJoCo what they measure has no noise; `alloy.envs.observations.sensor` adds it if asked.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from alloy import ops
from alloy.math import quat_mul
from alloy.ops.reference import ray as reference_ray
from alloy.ops.reference.convex import Mesh
from alloy.ops.reference.sensor import body_acceleration
from alloy.ops.reference.sensor_cameras import camera_mat, camera_pos
from alloy.ops.reference.sensor_history import Histories, later, recorded, shown
from alloy.physics.model import Data, Model

__all__ = [
    "Cameras",
    "ContactSensors",
    "Distances",
    "FramePart",
    "Frames",
    "GeomPairs",
    "HeightField",
    "RayGroup",
    "Rays",
    "SensorGroup",
    "SensorNoise",
    "SensorTables",
    "Tactile",
    "TactileSide",
    "TouchTables",
    "Zones",
    "body_acceleration",
    "later",
    "ray",
    "recorded",
    "sensor",
    "shown",
]  # fmt: skip

# kind of object -> position and orientation in Data, orientation in its body in Model
_POSES = {
    "inertia": ("xipos", "ximat", "body_iquat"),
    "body": ("xpos", "xmat", None),
    "geom": ("geom_xpos", "geom_xmat", "geom_quat"),
    "site": ("site_xpos", "site_xmat", "site_quat"),
}


@dataclass(frozen=True)
class Cameras:
    """Cameras that follow bodies in the same way."""

    mode: str  # mjtCamLight: fixed, track, trackcom, targetbody, targetbodycom
    body: Tensor  # (n,)
    pos: Tensor  # (n, 3) in the body's frame; from what is tracked, in world axes
    mat: Tensor  # (n, 3, 3) in the body; of those that track, in the world
    quat: Tensor  # (n, 4) in the body
    target: Tensor | None  # (n,) bodies that they look at; None: at none


@dataclass(frozen=True)
class FramePart:
    """Frames of objects of one kind."""

    kind: str  # a key of _POSES, or camera
    ids: Tensor  # (n,)
    body: Tensor  # (n,)
    cameras: Cameras | None = None

    def pos(self, d: Data) -> Tensor:
        """World positions, (W, n, 3)."""
        if self.cameras is not None:
            return camera_pos(d, self.cameras)
        return getattr(d, _POSES[self.kind][0])[:, self.ids]

    def mat(self, d: Data) -> Tensor:
        """World orientations, (W, n, 3, 3)."""
        if self.cameras is not None:
            return camera_mat(d, self.cameras)
        return getattr(d, _POSES[self.kind][1])[:, self.ids]

    def quat(self, m: Model, d: Data) -> Tensor:
        """World orientations, with the sign of MuJoCo's product; (W, n, 4).

        As in MuJoCo that of a camera is its body's turned by the camera's, whatever its mode.
        """
        quat = d.xquat[:, self.body]
        if self.cameras is not None:
            return quat_mul(quat, self.cameras.quat)
        local = _POSES[self.kind][2]
        return quat if local is None else quat_mul(quat, getattr(m, local)[:, self.ids])


@dataclass(frozen=True)
class Frames:
    """Frames of objects, and the bodies and trees they belong to."""

    parts: tuple[FramePart, ...]
    order: Tensor | None  # (n,) parts one after another -> frames; None: the same
    body: Tensor  # (n,)
    root: Tensor  # (n,) root body of the tree

    def pos(self, d: Data) -> Tensor:
        """World positions, (W, n, 3)."""
        return self._join([part.pos(d) for part in self.parts])

    def mat(self, d: Data) -> Tensor:
        """World orientations, (W, n, 3, 3)."""
        return self._join([part.mat(d) for part in self.parts])

    def quat(self, m: Model, d: Data) -> Tensor:
        """World orientations, with the sign of MuJoCo's product; (W, n, 4)."""
        return self._join([part.quat(m, d) for part in self.parts])

    def _join(self, parts: list[Tensor]) -> Tensor:
        x = parts[0] if len(parts) == 1 else torch.cat(parts, 1)
        return x if self.order is None else x[:, self.order]


@dataclass(frozen=True)
class SensorGroup:
    """Sensors of one kind. What the fields hold depends on the kind, see `_EVALUATE`."""

    kind: str
    frames: Frames | None = None
    reference: Frames | None = None  # None: all against the world
    fields: tuple[str, ...] = ()  # fields of Data, flattened one after another
    index: Tensor | None = None
    select: Tensor | None = None  # a constant matrix
    count: int = 0  # of sensors that need nothing else
    rays: Rays | None = None
    distances: Distances | None = None
    contacts: ContactSensors | None = None
    zones: Zones | None = None
    tactile: Tactile | None = None

    @property
    def looks(self) -> int:
        """How many pairs there are of a ray or taxel and a geom that it may meet."""
        if self.tactile is not None:
            sides = self.tactile.sides
            return len(self.tactile.taxels) * sum(len(side.geoms) for side in sides)
        every = self.select if self.index is None else self.index
        if self.rays is None or every is None:
            return 0
        return len(every) * sum(len(group.geoms) for group in self.rays.groups)


@dataclass(frozen=True)
class RayGroup:
    """Geoms of one type, and which rays see them."""

    kind: int  # mjtGeom
    geoms: Tensor  # (n,)
    seen: Tensor | None  # (rays, n) bool; None: all by all
    triangles: Tensor | None = None  # (blocks, n, 3, 3) of a mesh, in its frame
    field: HeightField | None = None


@dataclass(frozen=True)
class HeightField:
    """Heights on a grid."""

    size: Tensor  # (4,) half of the width and of the depth, height of 1, depth of the base, m
    heights: Tensor  # (rows * columns,) row by row along y, within 0 and 1
    rows: int
    columns: int


@dataclass(frozen=True)
class Rays:
    """What rays can hit."""

    groups: tuple[RayGroup, ...]


@dataclass(frozen=True)
class GeomPairs:
    """Pairs of geoms of the same two types, as the collider of these types takes them."""

    kind: tuple[int, int]  # mjtGeom of geom1 and geom2
    geom1: Tensor  # (n,)
    geom2: Tensor  # (n,)
    margin: Tensor  # (1, n) largest distance that is measured
    back: Tensor | None  # (n, 1) bool: the sensor asks from geom2 to geom1; None: never
    mesh1: Mesh | None = None  # hulls of geom1 where it is a mesh
    mesh2: Mesh | None = None


@dataclass(frozen=True)
class Distances:
    """Queries for the nearest of some pairs of geoms, and which query each sensor reads."""

    pairs: tuple[GeomPairs, ...]
    choices: Tensor  # (queries, most) pairs of each query, one group after another, repeated
    cutoff: Tensor  # (queries,)
    dist: Tensor  # (n,) queries of the sensors of each kind
    normal: Tensor
    fromto: Tensor


@dataclass(frozen=True)
class Zones:
    """Convex volumes of sites."""

    sites: Tensor  # (n,)
    size: Tensor  # (n, 3), three semi-axes of a sphere or ellipsoid
    is_round: Tensor  # (n,) bool: sphere or ellipsoid
    is_box: Tensor  # (n,) bool
    is_capsule: Tensor  # (n,) bool; else a cylinder

    def by_shape(self, round_: Tensor, box: Tensor, capsule: Tensor, cylinder: Tensor) -> Tensor:
        """Each zone's answer (W, n, k) of those that hold for zones of one shape."""
        out = torch.where(self.is_capsule.unsqueeze(-1), capsule, cylinder)
        out = torch.where(self.is_box.unsqueeze(-1), box, out)
        return torch.where(self.is_round.unsqueeze(-1), round_, out)


@dataclass(frozen=True)
class ContactSensors:
    """Contact sensors that report the same of as many contacts."""

    slots: Tensor  # (n,) contacts that some of them may report, in MuJoCo's order
    match: Tensor  # (sensors, n) bool
    back: Tensor | None  # (sensors, n) bool: seen from geom2's side; None: none is
    signs: Tensor | None  # (sensors, n, fields) +1, or -1 where seen from the other side flips it
    zones: Zones | None  # in which the contacts must lie
    fields: tuple[str, ...]
    num: int
    reduce: str  # none, mindist, maxforce, netforce
    wrench_order: Tensor | None  # contacts by rows -> slots; None: the same


@dataclass(frozen=True)
class TactileSide:
    """Geoms of one type that may touch a tactile sensor."""

    kind: int  # mjtGeom
    geoms: Tensor  # (k,)
    body: Tensor  # (k,)
    slots: Tensor  # (n,) contacts with the sensor's welded bodies
    match: Tensor  # (k, n) bool, which are those of each geom


@dataclass(frozen=True)
class Tactile:
    """A tactile sensor."""

    geom: Tensor  # (1,)
    body: Tensor  # (1,)
    taxels: Tensor  # (taxels, 3) in the geom's frame
    tangents: Tensor | None  # (2, taxels, 3) in the geom's frame; None: speeds are not felt
    sides: tuple[TactileSide, ...]


@dataclass(frozen=True)
class TouchTables:
    """Zones of the touch sensors, and the bodies that feel in them."""

    zones: Zones
    body: Tensor  # (n, 1)


@dataclass(frozen=True)
class SensorNoise:
    """What a model says of the noise of a sensor."""

    std: float  # standard deviation, in the sensor's unit or rad
    kind: str  # mjtDataType: real, positive, axis, quaternion


@dataclass(frozen=True)
class SensorTables:
    """What the sensor stage knows of a model beforehand; built by io_tables.sensor_tables."""

    groups: tuple[SensorGroup, ...]
    order: Tensor | None  # (nsensordata,) groups one after another -> sensordata
    cutoff: tuple[Tensor, Tensor] | None  # lowest and highest value of each entry
    touch: TouchTables | None
    acceleration: bool  # some sensor needs body accelerations
    forces: bool  # some sensor needs forces between bodies
    magnetic: Tensor  # (3,) magnetic flux of the world
    history: Histories | None  # of those that are delayed, or not sampled in every step
    noise: tuple[SensorNoise, ...]  # by sensor


def sensor(m: Model, d: Data) -> Data:
    """All sensors as they measure: sets sensordata (W, nsensordata), after the constraint solve."""
    return ops.sensor(m, d)


def ray(m: Model, d: Data, rays: Rays, pnt: Tensor, vec: Tensor) -> Tensor:
    """Distance (W, N) from pnt along vec, (W, N, 3) each, in lengths of vec; -1: nothing there."""
    dist, _ = reference_ray.nearest(m, d, rays, pnt, vec)
    return torch.where(torch.isfinite(dist), dist, -1.0)
