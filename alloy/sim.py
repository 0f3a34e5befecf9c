"""The simulator: a scene's model and the state of all its worlds, by name.

    sim = alloy.build(scene, worlds=1024, seed=0)
    sim.step(ctrl)                      # one control step of every world
    sim.body("gripper/palm").pos        # [W, 3], of the present state

State and inputs change only through this class (or by writing into `sim.qpos` and its like, which
is noticed); everything else follows from them and is computed when somebody reads it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import mujoco
import numpy as np
import torch
from torch import Tensor

from alloy import scene_checks as check
from alloy.engines import Engine, Guard, make_engine, make_guard, where_worlds
from alloy.health import (
    Health,
    SolverStatistics,
    memory_report,
    raise_if_unhealthy,
    require_device,
    require_memory,
    solver_statistics,
    suggest_capacity,
)
from alloy.names import Names
from alloy.physics import io, io_keyframes, io_randomize, io_sensors_geometry, randomize, sensor
from alloy.physics.model import INPUTS, STATE, Data, Model, make_data, tensor_fields
from alloy.random import uniform, world_seeds
from alloy.scene import Scene
from alloy.scene_targets import Target, targets
from alloy.views import View, copy_like, described

Source = Scene | mujoco.MjModel | mujoco.MjSpec | str | os.PathLike[str]

_HELD = (*STATE, *INPUTS)  # the fields of Data that nothing else determines
_DERIVED = tuple(f.name for f in tensor_fields(Data) if f.name not in _HELD)
_RANDOMIZE = 0  # which draw of an episode the scene's randomizations take


class Draw(NamedTuple):
    """What the randomized quantities of each world were drawn with, [W] int64 each."""

    seed: Tensor
    episode: Tensor


@dataclass(frozen=True)
class State:
    """Everything that determines how a simulation goes on; `load_state` continues bit for bit."""

    tensors: dict[str, Tensor]  # fields of Data, Guard and Draw, [W, ...] each
    fingerprint: str  # of the model it belongs to


def build(
    scene: Source,
    worlds: int = 1,
    seed: int | Sequence[int] = 0,
    device: torch.device | str | None = None,
    dtype: torch.dtype = torch.float32,
    engine: str = "auto",
    strict: bool = False,
    max_contacts: int | None = None,
) -> Simulator:
    """Make a simulator of a scene, at rest in the model's initial configuration.

    Args:
        scene: a Scene; or the path or text of an MJCF or URDF file, or an MjSpec, all as
            `Scene.from_mjcf` takes them; or an MjModel, whose control step is its own timestep.
        worlds: number of worlds, W.
        seed: of the random numbers: s stands for s, s + 1, ...; a list gives one for each world.
        device: torch device; by default torch's own default device.
        dtype: torch.float32 or torch.float64.
        engine: "auto", "reference", "lanes" or "triton".
        strict: whether `step` raises when a world is invalid or contacts found no slot. It has to
            look at the flags then, which on a GPU waits for the device.
        max_contacts: how many contacts of each condim are solved for, in each world its nearest;
            None: all pairs that can touch. For models with many more pairs than touch at once:
            memory and the solver's time follow it. `suggest_capacity` finds a number,
            `health().dropped_contacts` counts what was left out.

    Raises:
        ValueError: an argument is not one of those; or MuJoCo refuses the model.
        NotImplementedError: the model uses what Alloy does not have; element and attribute are
            named.
        MemoryError: so many worlds do not fit.
        RuntimeError: the device is not there.
    """
    worlds = check.whole("worlds", worlds)
    if dtype not in (torch.float32, torch.float64):
        raise ValueError(f"dtype must be torch.float32 or torch.float64, not {dtype!r}")
    device = require_device(device)
    if isinstance(scene, mujoco.MjModel):
        mj_model, substeps, randomized = scene, 1, ()
    else:
        scene = scene if isinstance(scene, Scene) else Scene.from_mjcf(scene)
        mj_model, substeps = scene.compile(), scene.substeps
        randomized = targets(mj_model, scene.randomizations)
    if max_contacts is not None:
        max_contacts = check.whole("max_contacts", max_contacts)
    model = io_randomize.put_model(
        mj_model, randomized, dtype=dtype, device=device, max_contacts=max_contacts
    )
    chosen = make_engine(engine, model)
    require_memory(model, worlds)
    seeds = world_seeds(seed, worlds, device)
    return Simulator(mj_model, model, chosen, seeds, substeps, strict, randomized)


def _settable(field: str) -> Any:
    """The property of `View` with a setter that checks and copies."""
    read = getattr(View, field)
    return property(
        read.fget, lambda self, value: self._assign(field, value), doc=f"{read.__doc__} Settable."
    )


PLAIN = ("mj_model", "substeps", "strict")  # attributes that are no properties


class Simulator(View):
    """All worlds of a scene; made by `alloy.build`."""

    qpos = _settable("qpos")
    qvel = _settable("qvel")
    act = _settable("act")
    plastic = _settable("plastic")
    ctrl = _settable("ctrl")
    qfrc_applied = _settable("qfrc_applied")
    xfrc_applied = _settable("xfrc_applied")
    mocap_pos = _settable("mocap_pos")
    mocap_quat = _settable("mocap_quat")
    eq_active = _settable("eq_active")

    def __init__(
        self,
        mj_model: mujoco.MjModel,
        model: Model,
        engine: Engine,
        seeds: Tensor,
        substeps: int,
        strict: bool = False,
        randomized: Sequence[Target] = (),
    ) -> None:
        """Worlds at rest in the initial configuration of a nominal model, one for each seed."""
        worlds = seeds.shape[0]
        self._nominal, self._randomized = model, randomized
        self._draw = Draw(seeds, torch.zeros_like(seeds))
        model = self._drawn(self._draw)
        self._start = make_data(model, worlds)
        self._d = Data(**{name: getattr(self._start, name).clone() for name in _HELD})
        super().__init__(Names(mj_model), model, self._d)
        self._guard = make_guard(worlds, seeds.device)
        self._engine = engine
        self._versions: tuple[int, ...] = ()
        self._rays: dict[int, sensor.Rays] = {}  # what rays see, by the body that is excluded
        self.mj_model = mj_model
        self.substeps = substeps  # physics steps per control step
        self.strict = strict

    def __setattr__(self, name: str, value: Any) -> None:
        """Set what may be set; a name that is none of these is a slip of the pen.

        Raises:
            AttributeError: with near matches.
        """
        if not (name.startswith("_") or name in PLAIN or hasattr(type(self), name)):
            known = [n for n, kind in vars(Simulator).items() if getattr(kind, "fset", None)]
            hint = check.suggestion(name, known)
            raise AttributeError(f"a simulator has no {name!r} to set{hint} It takes {known}.")
        super().__setattr__(name, value)

    # what it is

    @property
    def physics_dt(self) -> float:
        """Physics step, s."""
        return self._model.opt.timestep

    @property
    def dt(self) -> float:
        """Control step, s."""
        return self.substeps * self._model.opt.timestep

    @property
    def device(self) -> torch.device:
        """Device of every tensor."""
        return self._d.qpos.device

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of every real quantity."""
        return self._d.qpos.dtype

    @property
    def data(self) -> Data:
        """The raw Data as MuJoCo's mjData: derived fields are those of the last substep's start."""
        return self._d

    def __repr__(self) -> str:
        sizes = f"nq {self._model.nq}, nv {self._model.nv}, nu {self._model.nu}"
        where = f"dt {self.dt:g} s, {self._engine.name} on {self.device}"
        return f"<Simulator of {self.num_worlds} worlds: {sizes}, {where}>"

    @property
    def seed(self) -> Tensor:
        """Seed of each world, [W] int64."""
        return self._draw.seed.clone()

    # what it does

    def step(self, ctrl: Any = None, substeps: int | None = None) -> None:
        """Advance every world by one control step.

        Args:
            ctrl: [W, nu], kept for later steps; None leaves the present controls. Controls that
                are not finite count as zero for that step, see `health().bad_ctrl`.
            substeps: physics steps; by default `self.substeps`.

        Raises:
            ValueError: ctrl of another shape, dtype or device; nothing has changed then.
            SimulationError: under strict, when a world is invalid or contacts found no slot.
        """
        count = self.substeps if substeps is None else check.whole("substeps", substeps)
        held = {name: getattr(self._d, name) for name in _HELD}
        if ctrl is not None:
            held["ctrl"] = copy_like("ctrl", ctrl, self._d.ctrl)
        d, guard = self._engine.step(self._model, Data(**held), self._guard, count)
        self._change(d, guard)
        if self.strict:
            raise_if_unhealthy(self._guard, self.time)

    def forward(self) -> None:
        """Compute everything of the present state into `data`, as mj_forward does."""
        self._d = self.at("acceleration")

    def reset(self, mask: Any = None, keyframe: str | int | None = None) -> None:
        """Put worlds back to the start, at rest, with inputs, solver memory and health cleared.

        Args:
            mask: [W] bool, which worlds; None resets all.
            keyframe: name or id of a keyframe of the model to start from instead of qpos0.

        Raises:
            ValueError: a mask of another shape, dtype or device; nothing has changed then.
            UnknownName: no such keyframe.
        """
        start = self._start
        if keyframe is not None:
            key = self._names.id("keyframe", keyframe)
            start = io_keyframes.at_keyframe(self._nominal, start, self.mj_model, key)
        clean = make_guard(self.num_worlds, self.device)
        self._put_worlds(mask, {name: getattr(start, name) for name in _HELD} | clean._asdict())

    def randomize(self, episode: Any) -> None:
        """Draw the quantities that the scene randomizes anew; `build` draws them for episode 0.

        Args:
            episode: [W] integers. A world's quantities depend on its seed and its number here
                alone, so a world whose number stays keeps what it has.

        Raises:
            ValueError: episode of another shape, dtype or device; nothing has changed then.
        """
        self._redraw(self._draw._replace(episode=copy_like("episode", episode, self._draw.episode)))

    def state(self) -> State:
        """A copy of everything that determines how the simulation goes on."""
        tensors = self._remembered()
        return State({name: t.clone() for name, t in tensors.items()}, self._fingerprint)

    def load_state(self, state: State, mask: Any = None) -> None:
        """Continue from a state of this model, in the worlds of mask or in all.

        Raises:
            ValueError: no State, one of another model, number of worlds or dtype, one that lacks
                something, or a bad mask; nothing has changed then.
        """
        if not isinstance(state, State):
            raise ValueError(f"expected a State, as state() gives it, not a {type(state).__name__}")
        if state.fingerprint != self._fingerprint:
            raise ValueError("the state belongs to another model; build the same scene for it")
        new = {}
        for name, ours in self._remembered().items():
            new[name] = theirs = state.tensors.get(name, torch.empty(0)).to(self.device)
            if (theirs.shape, theirs.dtype) != (ours.shape, ours.dtype):
                raise ValueError(
                    f"the state's {name}: expected {described(ours)}; received "
                    f"{described(theirs)}. Build with as many worlds, and in the same dtype"
                )
        self._put_worlds(mask, new)

    # how it is

    def health(self) -> Health:
        """Which worlds are in trouble."""
        none = torch.zeros(self.num_worlds, dtype=torch.int64, device=self.device)
        iterations = self._d.solver_niter
        return Health(
            invalid=self._guard.invalid.clone(),
            bad_ctrl=self._guard.bad_ctrl.clone(),
            dropped_contacts=self._guard.dropped.clone(),
            solver_iterations=none if iterations is None else iterations.clone(),
        )

    def solver_statistics(self) -> SolverStatistics:
        """How the constraint solver fares in the present state: see `SolverStatistics`.

        Its gradient is that of MuJoCo's mjSolverStat: below the option `tolerance`, 1e-8 by
        default, the solver has converged. In float32 rounding leaves more; noslip moves away.
        """
        return solver_statistics(self)

    def suggest_capacity(self, steps: int = 100) -> int:
        """A `max_contacts` for these worlds: 1.5 times the most contacts of one condim in a while.

        Args:
            steps: control steps to look ahead with the present controls; the state stays as it is.
        """
        return suggest_capacity(self, check.whole("steps", steps))

    def ray(self, pnt: Any, vec: Any, exclude: str | int | None = None) -> Tensor:
        """How far it is along rays to the first visible geom in the present state, [W, N].

        In lengths of `vec`, and -1 where nothing is hit, as mj_ray; differentiable.

        Args:
            pnt: where the rays begin, [W, N, 3], or [N, 3] in all worlds alike, m.
            vec: where they go, of the same shape.
            exclude: name or id of a body whose geoms are not seen.

        Raises:
            ValueError: pnt or vec of another shape.
            UnknownName: no such body.
            NotImplementedError: a visible geom has a shape that rays do not know.
        """
        body = -1 if exclude is None else self._names.id("body", exclude)
        pnt, vec = (torch.as_tensor(x, dtype=self.dtype, device=self.device) for x in (pnt, vec))
        lead = (self.num_worlds,) if pnt.ndim == 3 else ()
        flat = pnt.ndim not in (2, 3)
        if flat or pnt.shape != vec.shape or pnt.shape != (*lead, pnt.shape[-2], 3):
            raise ValueError(
                f"pnt and vec: expected [{self.num_worlds}, N, 3] or [N, 3] twice; received "
                f"{tuple(pnt.shape)} and {tuple(vec.shape)}"
            )
        if body not in self._rays:
            put = io.make_put(self.dtype, self.device)
            self._rays[body] = io_sensors_geometry.rays_from(self.mj_model, put, body)
        pnt, vec = (x.expand(self.num_worlds, *x.shape[-2:]) for x in (pnt, vec))
        return sensor.ray(self._model, self.at("kinematics"), self._rays[body], pnt, vec)

    def memory_report(self) -> dict[str, int]:
        """Bytes by group of tensors: model, start, state, inputs, derived; and the total."""
        both = (self._model, self._nominal)
        groups = {
            "model": [getattr(m, f.name) for m in both for f in tensor_fields(Model)],
            "start": [getattr(self._start, name) for name in _HELD],
            "state": [getattr(self._d, n) for n in STATE] + [*self._guard, *self._draw],
            "inputs": [getattr(self._d, name) for name in INPUTS],
            "derived": [getattr(d, n) for d in (self._d, self._computed) for n in _DERIVED],
        }
        return memory_report(groups)

    def engine_report(self) -> dict[str, str]:
        """Which engine runs, why, and on what."""
        return self._engine.report() | {"device": str(self.device), "dtype": str(self.dtype)}

    # inside

    def _drawn(self, draw: Draw) -> Model:
        """The model with every world's own values, all following from the nominal model."""
        if not self._randomized:
            return self._nominal
        count = randomize.draw_count(self._randomized)
        numbers = uniform(draw.seed, draw.episode, _RANDOMIZE, count, torch.float64)
        return randomize.apply(self._nominal, self._randomized, numbers)

    def _redraw(self, draw: Draw) -> None:
        self._draw, self._model = draw, self._drawn(draw)
        self._change(self._d)

    def _remembered(self) -> dict[str, Tensor]:
        held = {name: getattr(self._d, name) for name in _HELD}
        return held | self._guard._asdict() | self._draw._asdict()

    def at(self, stage: str) -> Data:
        """The Data with a stage of the present state computed."""
        if not torch.compiler.is_compiling():
            self._notice_writes()
        return super().at(stage)

    def _notice_writes(self) -> None:
        """Drop what was computed when somebody has written into a state or input tensor."""
        held = (getattr(self._d, name) for name in _HELD)
        # inference mode keeps no versions: there, only assignment is noticed
        versions = tuple(0 if t.is_inference() else t._version for t in held)
        if versions != self._versions:
            self._versions = versions
            self._computed, self._stage = self._d, "state"

    def _change(self, d: Data, guard: Guard | None = None) -> None:
        self._d = d
        self._guard = self._guard if guard is None else guard
        self._computed, self._stage, self._versions = d, "state", ()

    def _assign(self, field: str, value: Any) -> None:
        new = copy_like(field, value, getattr(self._d, field))
        self._change(replace(self._d, **{field: new}))

    def _put_worlds(self, mask: Any, new: dict[str, Tensor]) -> None:
        """Take some of what is remembered from `new`, in the worlds of mask or in all."""
        old = self._remembered()
        every = torch.ones_like(self._guard.invalid)
        mask = every if mask is None else copy_like("mask", mask, every)
        now = old | {name: where_worlds(mask, new[name], old[name]) for name in new}
        d = replace(self._d, **{name: now[name] for name in _HELD})
        self._change(d, Guard(*(now[name] for name in Guard._fields)))
        if self._randomized and new.keys() & set(Draw._fields):
            self._redraw(Draw(*(now[name] for name in Draw._fields)))

    @cached_property
    def _fingerprint(self) -> str:
        buffer = np.zeros(mujoco.mj_sizeModel(self.mj_model), np.uint8)
        mujoco.mj_saveModel(self.mj_model, None, buffer)
        drawn = repr(self._randomized).encode()
        return hashlib.sha256(buffer.tobytes() + drawn).hexdigest()
