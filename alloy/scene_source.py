"""Reading MJCF and URDF: from a path, a text or a spec, with errors that name the source."""

from __future__ import annotations

import difflib
import os
from pathlib import Path

import mujoco
import numpy as np

Source = str | os.PathLike[str] | mujoco.MjSpec

# How two values of one option meet when both differ from MuJoCo's default; others must agree.
_MEET = {"iterations": max, "ls_iterations": max, "tolerance": min, "ls_tolerance": min}
_SIZES = (
    "memory", "nuserdata", "nuser_body", "nuser_jnt", "nuser_geom", "nuser_site", "nuser_cam",
    "nuser_tendon", "nuser_actuator", "nuser_sensor",
)  # fmt: skip
_FLAGS = ("disableflags", "enableflags", "disableactuator")


def read(source: Source, what: str) -> tuple[mujoco.MjSpec, str]:
    """A fresh spec of an MJCF or URDF source, and a label of it for error messages.

    A string that starts with `<` (after white space) is XML text, any other string is a path. A
    spec is copied, so that the caller's is left alone.

    Raises:
        FileNotFoundError: the path does not exist.
        ValueError: MuJoCo cannot read it; its own message with the file's name.
        TypeError: the source is none of the three.
    """
    if isinstance(source, mujoco.MjSpec):
        return source.copy(), f"{what} (spec {source.modelname!r})"
    if isinstance(source, str) and source.lstrip("\ufeff \t\r\n").startswith("<"):
        return _parse(mujoco.MjSpec.from_string, source.lstrip("\ufeff \t\r\n"), f"{what} (text)")
    if not isinstance(source, str | os.PathLike):
        raise TypeError(
            f"{what}: expected a path, an XML text or a mujoco.MjSpec, got {type(source).__name__}"
        )
    if not str(source).strip():
        raise ValueError(f"{what}: the text is empty; expected a path or an XML text")
    path = existing(source, what)
    spec, label = _parse(mujoco.MjSpec.from_file, str(path), f"{what} ({path})")
    _anchor_assets(spec, path.parent.resolve())
    return spec, label


def existing(file: str | os.PathLike[str], what: str) -> Path:
    """The absolute path of a file; FileNotFoundError, with near matches, when it is not there."""
    path = Path(file).absolute()
    if not path.is_file():
        found = "is a folder" if path.is_dir() else f"there is no such file{_near_files(path)}"
        raise FileNotFoundError(f"{what} ({file}): {found}")
    return path


def compile_spec(spec: mujoco.MjSpec, label: str) -> mujoco.MjModel:
    """Compile a spec; MuJoCo's own message behind the label when it refuses."""
    try:
        return spec.compile()
    except (ValueError, RuntimeError) as error:
        raise ValueError(f"{label} does not compile: {str(error).strip()}") from error


def states_timestep(spec: mujoco.MjSpec) -> bool:
    """Whether the source wrote a timestep of its own, be it MuJoCo's default value."""
    probe = mujoco.MjSpec.from_string('<mujoco><option timestep="0.002"/></mujoco>')
    written = bool(spec.authored.option & probe.authored.option)
    return written or spec.option.timestep != mujoco.MjSpec().option.timestep


def merged_options(
    scene: mujoco.MjSpec, robot: mujoco.MjSpec, label: str
) -> dict[str, float | int | np.ndarray]:
    """Physics options of a scene once a robot joins, the timestep aside; changes neither spec.

    What only one of the two sets (differs from MuJoCo's default) is taken; iteration counts take
    the larger, tolerances the smaller value, flags add up; anything else must agree.

    Raises:
        ValueError: both set an option, to different values.
    """
    default = mujoco.MjSpec().option
    out = {}
    for name in (n for n in dir(default) if not n.startswith("_") and n != "timestep"):
        ours, theirs = getattr(scene.option, name), getattr(robot.option, name)
        neutral = getattr(default, name)
        if name in _FLAGS:
            value = ours | theirs
        elif np.array_equal(theirs, neutral) or np.array_equal(theirs, ours):
            value = ours
        elif np.array_equal(ours, neutral):
            value = theirs
        elif name in _MEET:
            value = _MEET[name](ours, theirs)
        else:
            raise ValueError(
                f"{label} sets option {name} to {theirs}, the scene has {ours}; they must agree. "
                f"Change the file's <option>, or scene.spec.option.{name}"
            )
        out[name] = np.array(value) if isinstance(value, np.ndarray) else value
    return out


def adopt_settings(scene: mujoco.MjSpec, robot: mujoco.MjSpec) -> None:
    """Give a robot the scene's options, visual settings and sizes: attaching finds no conflict."""
    _copy_fields(robot.option, scene.option)
    for name in ("global_", "headlight", "map", "quality", "rgba", "scale"):
        _copy_fields(getattr(robot.visual, name), getattr(scene.visual, name))
    for name in _SIZES:
        setattr(robot, name, getattr(scene, name))


def float_roots(robot: mujoco.MjSpec, label: str) -> None:
    """Give the top-level bodies of a robot free joints."""
    for body in robot.worldbody.bodies:
        if body.joints:
            names = ", ".join(repr(joint.name) for joint in body.joints)
            raise ValueError(f"{label}: floating=True, but {body.name!r} has joints: {names}")
        body.add_freejoint(name=f"{body.name}_free")


def settle_mass(spec: mujoco.MjSpec, label: str) -> None:
    """Check that a spec compiles, and scale masses and densities to its `settotalmass`, if any.

    The compiler would do so too, but not for a part of another spec, and it deprecates the setting.
    """
    total, spec.compiler.settotalmass = spec.compiler.settotalmass, -1
    compiled = compile_spec(spec.copy(), label)
    if total > 0:
        ratio = total / compiled.body_mass.sum()
        for body in spec.bodies:
            body.mass, body.inertia = body.mass * ratio, body.inertia * ratio
            body.fullinertia = body.fullinertia * ratio
        for geom in spec.geoms:
            geom.mass, geom.density = geom.mass * ratio, geom.density * ratio


def settle_robot(spec: mujoco.MjSpec, label: str) -> None:
    """Check a robot, and carry out the settings of its compiler that attaching it would lose.

    `fusestatic` is switched off, so that the bodies keep their names.
    """
    if not spec.worldbody.bodies:
        raise ValueError(f"{label} has no body")
    spec.compiler.fusestatic = False
    if spec.compiler.discardvisual:
        spec.discard_visual()
    settle_mass(spec, label)


def _parse(parser: object, source: str, label: str) -> tuple[mujoco.MjSpec, str]:
    try:
        return parser(source), label  # type: ignore[operator]
    except (ValueError, RuntimeError) as error:
        raise ValueError(f"{label} cannot be read: {str(error).strip()}") from error


def _near_files(path: Path) -> str:
    if not path.parent.is_dir():
        return f" (nor a folder {path.parent})"
    near = difflib.get_close_matches(path.name, [p.name for p in path.parent.iterdir()], n=3)
    return f" (near it: {', '.join(near)})" if near else ""


def _anchor_assets(spec: mujoco.MjSpec, folder: Path) -> None:
    """Make asset paths absolute, so that they are found whatever the spec becomes a part of."""
    mesh_folder = folder / spec.compiler.meshdir
    texture_folder = folder / spec.compiler.texturedir
    for assets, base in (
        (spec.meshes, mesh_folder),
        (spec.hfields, mesh_folder),
        (spec.skins, mesh_folder),
        (spec.textures, texture_folder),
    ):
        for asset in assets:
            asset.file = _anchored(asset.file, base, spec.strippath)
    for texture in spec.textures:
        for i, file in enumerate(texture.cubefiles):
            texture.cubefiles[i] = _anchored(file, texture_folder, spec.strippath)


def _anchored(file: str, base: Path, strip: bool) -> str:
    path = base / (Path(file).name if strip else file)
    return str(path) if file and path.is_file() else file


def _copy_fields(target: object, source: object) -> None:
    for name in (n for n in dir(source) if not n.startswith("_")):
        setattr(target, name, getattr(source, name))
