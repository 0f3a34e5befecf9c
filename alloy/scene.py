"""A scene: MuJoCo's model builder with friendly verbs. It knows nothing of tensors.

Lengths are in metres, masses in kilograms, quaternions are (w, x, y, z), z is up. Every verb checks
what it is given and leaves the scene as it was when it refuses. What the verbs do not offer
(sites, sensors, equalities, tendons, contact pairs, options) is at hand in `scene.spec`, the
`mujoco.MjSpec` that they build:

    scene = Scene(dt=0.02)
    scene.add_ground()
    scene.add_box("cube", size=(0.05, 0.05, 0.05), pos=(0, 0, 0.025), mass=0.1)
    scene.add_robot("arm", mjcf="arm.xml")
    scene.spec.body("arm/hand").add_site(name="arm/tip", pos=[0, 0, 0.1])
"""

from __future__ import annotations

import math

import mujoco

from alloy import scene_checks as check
from alloy import scene_source as source
from alloy.scene_checks import Vector
from alloy.scene_parts import SceneParts
from alloy.scene_randomization import Bound, Mode, Randomization, UnknownName, randomization
from alloy.scene_targets import targets

__all__ = ["Randomization", "Scene", "UnknownName"]

COARSEST = 0.005  # physics step chosen when nobody states one [s]; a pinched cube holds at it
USUAL_DT = 0.02  # control step that `Scene.from_mjcf` comes nearest to [s]


class Scene(SceneParts):
    """Bodies, robots, cameras and lights, and the two time steps.

    Attributes:
        spec: the `mujoco.MjSpec` being built, for whatever the verbs do not offer.
    """

    def __init__(self, dt: float = USUAL_DT, physics_dt: float | None = None) -> None:
        """An empty scene.

        Args:
            dt: control step [s], a whole number of physics steps.
            physics_dt: physics step [s]. By default the step that the robots' own files state (the
                smallest of them), else the largest equal part of `dt` that is at most 5 ms.

        Raises:
            ValueError: a step is not positive, or `dt` is not a whole number of `physics_dt`.
        """
        super().__init__()
        self._label = "the scene"  # in messages: what it was read from
        self._dt = check.positive("dt", dt)
        self._asked = None if physics_dt is None else check.positive("physics_dt", physics_dt)
        self._stated: float | None = None  # by the file of a robot or of the whole scene
        self._randomizations: list[Randomization] = []
        check.substeps(self._dt, self.physics_dt)

    @classmethod
    def from_mjcf(
        cls, mjcf: source.Source, dt: float | None = None, physics_dt: float | None = None
    ) -> Scene:
        """A scene from a whole MJCF or URDF file.

        Args:
            mjcf: path, XML text (it starts with `<`) or `mujoco.MjSpec`, which is copied.
            dt: control step [s]; by default the whole number of physics steps nearest to 20 ms.
            physics_dt: physics step [s]; by default the file's own timestep (MuJoCo's 2 ms when it
                states none).

        Raises:
            FileNotFoundError: the path does not exist.
            ValueError: MuJoCo refuses the file, or the steps do not fit.
        """
        spec, label = source.read(mjcf, "scene")
        source.settle_mass(spec, label)
        physics = spec.option.timestep if physics_dt is None else physics_dt
        check.positive("physics_dt", physics)
        scene = cls(max(1, round(USUAL_DT / physics)) * physics if dt is None else dt, physics)
        scene.spec, scene._label = spec, label
        return scene

    # time

    @property
    def dt(self) -> float:
        """Control step [s]."""
        return self._dt

    @property
    def physics_dt(self) -> float:
        """Physics step [s]."""
        if self._asked is not None:
            return self._asked
        if self._stated is not None:
            return self._stated
        return self._dt / math.ceil(self._dt / COARSEST - 1e-9)

    @property
    def substeps(self) -> int:
        """Physics steps per control step."""
        return check.substeps(self._dt, self.physics_dt)

    # robots

    def add_robot(
        self,
        name: str,
        mjcf: source.Source,
        pos: Vector = (0, 0, 0),
        quat: Vector = (1, 0, 0, 0),
        floating: bool = False,
    ) -> None:
        """Add a robot from its own MJCF or URDF; what it names `hand` is then `name/hand`.

        The file's physics options join the scene's: what only one of them sets is taken, what both
        set differently is refused. Its timestep becomes the scene's physics step (the smallest
        one, with several robots) unless the scene was given a `physics_dt`. Its visual settings
        are not taken.

        Args:
            name: the robot's name, and the prefix of all names inside.
            mjcf: path, XML text (it starts with `<`) or `mujoco.MjSpec`, which is copied.
            pos: where the file's origin comes to lie.
            quat: how the file's frame is turned, a unit quaternion.
            floating: give the robot's root bodies free joints; for files of legged robots that
                come without one, as URDF files do.

        Raises:
            FileNotFoundError: the path does not exist.
            ValueError: MuJoCo refuses the file, the name is taken, the timestep does not divide
                `dt`, or an option conflicts; the scene is unchanged.
        """
        what = self._claim("robot", name)
        pos = check.numbers(f"{what}: pos", pos, (3,))
        quat = check.quaternion(f"{what}: quat", quat)
        robot, label = source.read(mjcf, what)
        stated = self._stated
        if self._asked is None and source.states_timestep(robot):
            stated = min(robot.option.timestep, stated or math.inf)
            try:
                check.substeps(self._dt, stated)
            except ValueError as error:
                raise ValueError(f"{label} states timestep={stated}: {error}") from None
        source.settle_robot(robot, label)
        if floating:
            source.float_roots(robot, label)
        options = source.merged_options(self.spec, robot, label)
        trial = self.spec.copy()
        for spec in (trial, self.spec):  # a refusal of the first leaves the second alone
            for option, value in options.items():
                setattr(spec.option, option, value)
            child = robot.copy()
            source.adopt_settings(spec, child)
            frame = spec.worldbody.add_frame(pos=pos, quat=quat)
            spec.attach(child, prefix=f"{name}/", frame=frame)
            if spec is trial:
                source.compile_spec(trial, f"scene with {label}")
        self._stated = stated

    # randomization

    @property
    def randomizations(self) -> tuple[Randomization, ...]:
        """What `randomize` has recorded, in order."""
        return tuple(self._randomizations)

    def randomize(
        self, entity: str, field: str, low: Bound, high: Bound, mode: Mode = "value"
    ) -> None:
        """Draw a quantity anew for every world and episode, uniformly between two bounds.

        One draw holds for the whole entity: with `scale`, a robot's masses all change by the same
        factor. What follows from a quantity (inertia, bounding radius, the solver's weights)
        follows it.

        Args:
            entity: name of a robot or of an element; a pattern such as `"*_foot"`; or `"world"`.
            field: what to draw, among others

                * of geoms: `friction` (sliding), `size` (as the body verbs take it: radius,
                  (radius, length), full edges), `geom_pos`, `geom_quat`, `geom_solref`
                * of bodies: `mass` (of all the entity's bodies together), `density`, `com`,
                  `inertia`, `body_pos`, `body_quat`
                * of joints: `damping`, `armature`, `stiffness`, `frictionloss`, `joint_range`
                * of actuators: `kp` and `kv` (of position and velocity servos), `gain` (of motors),
                  `gear`, `forcerange`, `timeconst`
                * of the world: `gravity` (its z component, or a vector), `wind`

                docs/randomization.md has them all, those of sites, tendons and equalities too.
            low: least draw; one number, or one per component, drawn independently.
            high: greatest draw, shaped like `low`.
            mode: `"value"` sets what is drawn, `"scale"` multiplies the scene's value by it,
                `"add"` adds it.

        Raises:
            UnknownName: no such entity or field; the message has the near matches.
            ValueError: the entity has nothing of the kind, or the bounds do not fit.
        """
        new = randomization(entity, field, low, high, mode)
        if any((r.entity, r.field, r.mode) == (entity, field, mode) for r in self._randomizations):
            raise ValueError(f"{field} of {entity!r} is randomized already, as a {mode}")
        targets(self.compile(), [new])
        self._randomizations.append(new)

    # results

    def compile(self) -> mujoco.MjModel:
        """The scene as a MuJoCo model whose timestep is `physics_dt`.

        Raises:
            ValueError: MuJoCo's compiler refuses the scene (after changes through `spec`).
        """
        self.spec.option.timestep = self.physics_dt
        return source.compile_spec(self.spec, self._label)

    def to_mjcf(self) -> str:
        """The scene as MJCF text, in full precision; `from_mjcf` of it is the same model.

        Files of meshes and textures are referred to by absolute path. The text holds the physics
        step, but neither `dt` nor the randomizations, for which MJCF has no place.
        """
        spec = self.spec.copy()
        spec.option.timestep = self.physics_dt
        source.compile_spec(spec, self._label)
        spec.compiler.savecompiled = False
        return spec.to_xml()
