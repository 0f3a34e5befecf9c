"""What a scene is made of besides robots: ground, bodies of one shape, cameras and lights."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, TypedDict

import mujoco
import numpy as np

from alloy import scene_checks as check
from alloy import scene_source as source
from alloy.scene_checks import Vector
from alloy.scene_randomization import UnknownName

if TYPE_CHECKING:
    from typing_extensions import Unpack

_GEOM = mujoco.mjtGeom
_INHERITED = (
    "contype", "conaffinity", "condim", "group", "priority", "friction", "solmix", "solref",
    "solimp", "margin", "gap", "density", "rgba", "material",
)  # fmt: skip


class BodyOptions(TypedDict, total=False):
    """Keywords shared by the body verbs; see `SceneParts.add_sphere`."""

    pos: Vector
    quat: Vector
    mass: float | None
    density: float | None
    friction: float | Vector | None
    fixed: bool
    mocap: bool
    rgba: Vector


class SceneParts:
    """The verbs of a scene that add one thing each to its `mujoco.MjSpec`."""

    def __init__(self) -> None:
        self.spec = mujoco.MjSpec()

    def add_ground(
        self,
        name: str = "ground",
        height: float = 0.0,
        friction: float | Vector | None = None,
        rgba: Vector = (0.42, 0.46, 0.5, 1.0),
    ) -> None:
        """Add an unbounded horizontal plane, drawn as squares of half a metre.

        Args:
            name: name of the plane's geom.
            height: where it lies along z.
            friction: see `add_sphere`.
            rgba: colour of the darker squares.
        """
        what = self._claim("ground", name)
        pos = [0.0, 0.0, check.numbers(f"{what}: height", height, (1,))[0]]
        dark = check.colour(f"{what}: rgba", rgba)
        extra = {} if friction is None else {"friction": check.friction(what, friction)}
        self.spec.add_texture(
            name=name,
            type=mujoco.mjtTexture.mjTEXTURE_2D,
            builtin=mujoco.mjtBuiltin.mjBUILTIN_CHECKER,
            rgb1=dark[:3],
            rgb2=0.8 * dark[:3] + 0.2,
            width=256,
            height=256,
        )
        material = self.spec.add_material(name=name, texrepeat=[1, 1], texuniform=True)
        material.textures[mujoco.mjtTextureRole.mjTEXROLE_RGB] = name
        _add_geom(
            self.spec.worldbody,
            name=name,
            type=_GEOM.mjGEOM_PLANE,
            size=[0, 0, 0.05],
            pos=pos,
            material=name,
            rgba=[1, 1, 1, dark[3]],
            **extra,
        )

    def add_sphere(self, name: str, radius: float, **body: Unpack[BodyOptions]) -> None:
        """Add a sphere.

        Every body verb takes the same keywords, and moves freely unless `fixed` or `mocap`.

        Args:
            name: name of the body, of its geom and of its free joint.
            radius: radius.
            **body: keywords shared by all body verbs:

                * pos (0, 0, 0): where it starts.
                * quat (1, 0, 0, 0): how it is turned, a unit quaternion.
                * mass or density: one of the two; 1000 kg/m^3 when neither is given.
                * friction: sliding, or sliding, torsional and rolling; MuJoCo's 1, 0.005, 0.0001.
                * fixed (False): part of the static world.
                * mocap (False): moved by the user through `mocap_pos` and `mocap_quat`.
                * rgba: colour, and opacity, from 0 to 1.

        Raises:
            ValueError: a value is out of bounds or the name is taken; the scene is unchanged.
        """
        size = [check.positive(f"{name!r}: radius", radius), 0, 0]
        self._add_body(name, {"type": _GEOM.mjGEOM_SPHERE, "size": size}, **body)

    def add_box(self, name: str, size: Vector, **body: Unpack[BodyOptions]) -> None:
        """Add a box of full edge lengths `size` (x, y, z); keywords as `add_sphere`."""
        half = check.sizes(f"{name!r}: size", size, 3) / 2
        self._add_body(name, {"type": _GEOM.mjGEOM_BOX, "size": half}, **body)

    def add_ellipsoid(self, name: str, size: Vector, **body: Unpack[BodyOptions]) -> None:
        """Add an ellipsoid of full axis lengths `size` (x, y, z); keywords as `add_sphere`."""
        half = check.sizes(f"{name!r}: size", size, 3) / 2
        self._add_body(name, {"type": _GEOM.mjGEOM_ELLIPSOID, "size": half}, **body)

    def add_capsule(
        self, name: str, radius: float, length: float, **body: Unpack[BodyOptions]
    ) -> None:
        """Add a capsule along z, overall 2 `radius` longer than its straight part of `length`.

        Keywords as `add_sphere`.
        """
        self._add_body(name, _round_geom(name, _GEOM.mjGEOM_CAPSULE, radius, length), **body)

    def add_cylinder(
        self, name: str, radius: float, length: float, **body: Unpack[BodyOptions]
    ) -> None:
        """Add a cylinder along z of full `length`; keywords as `add_sphere`."""
        self._add_body(name, _round_geom(name, _GEOM.mjGEOM_CYLINDER, radius, length), **body)

    def add_mesh(
        self,
        name: str,
        file: str | os.PathLike[str],
        scale: float | Vector = 1.0,
        **body: Unpack[BodyOptions],
    ) -> None:
        """Add a body shaped like a mesh file (OBJ, STL, MSH); it collides as its convex hull.

        Args:
            name: name of the body, of its geom, free joint and mesh.
            file: path of the mesh.
            scale: one factor, or one per axis; a negative factor mirrors.
            **body: keywords as `add_sphere`.

        Raises:
            FileNotFoundError: the path does not exist.
            ValueError: as `add_sphere`, or MuJoCo refuses the mesh.
        """
        factors = check.numbers(f"{name!r}: scale", scale, (1, 3)) * np.ones(3)
        path = source.existing(file, f"mesh {name!r}")
        mesh = {"name": name, "file": str(path), "scale": factors}
        geom = {"type": _GEOM.mjGEOM_MESH, "meshname": name}
        self._add_body(name, geom, mesh=mesh, **body)

    def add_camera(
        self,
        name: str,
        pos: Vector,
        lookat: Vector | str | None = None,
        quat: Vector | None = None,
        fovy: float = 45.0,
        body: str | None = None,
    ) -> None:
        """Add a camera.

        Args:
            name: name of the camera.
            pos: where it is, in the frame of `body`.
            lookat: a point in the same frame that it looks at, upright; or the name of a body that
                it keeps in view.
            quat: instead of `lookat`, its orientation; it looks along its -z, with y up.
            fovy: vertical field of view [degrees].
            body: name of the body that carries it; the world by default.

        Raises:
            UnknownName: no such body.
            ValueError: the name is taken, both or none of `lookat` and `quat`, or bad numbers.
        """
        what = self._claim("camera", name)
        pos = check.numbers(f"{what}: pos", pos, (3,))
        if not 0 < check.positive(f"{what}: fovy", fovy) < 180:
            raise ValueError(f"{what}: fovy is {fovy} degrees; it must be below 180")
        if (lookat is None) == (quat is None):
            raise ValueError(f"{what} needs either lookat= or quat=")
        view: dict[str, Any] = {}
        if isinstance(lookat, str):
            self._body(lookat)
            view = {"mode": mujoco.mjtCamLight.mjCAMLIGHT_TARGETBODY, "targetbody": lookat}
        elif lookat is not None:
            view = {"xyaxes": check.camera_axes(what, pos, lookat)}
        elif quat is not None:
            view = {"quat": check.quaternion(f"{what}: quat", quat)}
        self._body(body or "world").add_camera(name=name, pos=pos, fovy=fovy, **view)

    def add_light(
        self,
        name: str,
        pos: Vector = (0, 0, 4),
        direction: Vector = (0, 0, -1),
        diffuse: Vector = (0.7, 0.7, 0.7),
        directional: bool = False,
        body: str | None = None,
    ) -> None:
        """Add a light.

        Args:
            name: name of the light.
            pos: where it is, in the frame of `body`.
            direction: where it shines.
            diffuse: its colour, red, green and blue from 0 to 1.
            directional: parallel rays, like the sun's.
            body: name of the body that carries it; the world by default.

        Raises:
            UnknownName: no such body.
            ValueError: the name is taken, or bad numbers.
        """
        what = self._claim("light", name)
        place = check.numbers(f"{what}: pos", pos, (3,))
        along = check.numbers(f"{what}: direction", direction, (3,))
        if not along.any():
            raise ValueError(f"{what}: direction is zero")
        kinds = mujoco.mjtLightType
        self._body(body or "world").add_light(
            name=name,
            pos=place,
            dir=along,
            diffuse=check.colour(f"{what}: diffuse", diffuse)[:3],
            type=kinds.mjLIGHT_DIRECTIONAL if directional else kinds.mjLIGHT_SPOT,
        )

    def _claim(self, kind: str, name: str) -> str:
        """Check that a name is free; how to call its bearer in messages."""
        s = self.spec
        groups = (s.bodies, s.geoms, s.joints, s.sites, s.cameras, s.lights, s.actuators)
        groups += (s.meshes, s.materials, s.textures)
        check.new_name(kind, name, [e.name for group in groups for e in group])
        return f"{kind} {name!r}"

    def _body(self, name: str) -> mujoco.MjsBody:
        body = self.spec.worldbody if name == "world" else self.spec.body(name)
        if body is None:
            raise UnknownName("body", name, [b.name for b in self.spec.bodies])
        return body

    def _add_body(
        self,
        name: str,
        geom: dict[str, Any],
        *,
        pos: Vector = (0, 0, 0),
        quat: Vector = (1, 0, 0, 0),
        mass: float | None = None,
        density: float | None = None,
        friction: float | Vector | None = None,
        fixed: bool = False,
        mocap: bool = False,
        rgba: Vector = (0.8, 0.45, 0.25, 1.0),
        mesh: dict[str, Any] | None = None,
    ) -> None:
        """Add a body of one geom, after trying it in a spec of its own."""
        what = self._claim("body", name)
        if fixed and mocap:
            raise ValueError(f"{what} is both fixed and mocap; choose one")
        place = {
            "pos": check.numbers(f"{what}: pos", pos, (3,)),
            "quat": check.quaternion(f"{what}: quat", quat),
            "mocap": mocap,
        }
        geom = {
            **geom,
            **check.weight(what, mass, density),
            "rgba": check.colour(f"{what}: rgba", rgba),
        }
        if friction is not None:
            geom["friction"] = check.friction(f"{what}: friction", friction)
        for spec in (mujoco.MjSpec(), self.spec):
            if mesh is not None:
                spec.add_mesh(**mesh)
            body = spec.worldbody.add_body(name=name, **place)
            _add_geom(body, name=name, **geom)
            if not (fixed or mocap):
                body.add_freejoint(name=name)
            if spec is not self.spec:
                source.compile_spec(spec, what)


def _add_geom(body: mujoco.MjsBody, **attributes: Any) -> None:
    """Add a geom whose other attributes are MuJoCo's, not those of a loaded file's defaults."""
    neutral = mujoco.MjSpec().worldbody.add_geom()
    geom = body.add_geom()
    for name in _INHERITED:
        setattr(geom, name, getattr(neutral, name))
    for name, value in attributes.items():
        setattr(geom, name, value)


def _round_geom(name: str, kind: mujoco.mjtGeom, radius: float, length: float) -> dict[str, Any]:
    half = check.positive(f"{name!r}: length", length) / 2
    return {"type": kind, "size": [check.positive(f"{name!r}: radius", radius), half, 0]}
