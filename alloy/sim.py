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
from typing import Any

import mujoco
import numpy as np
import torch
from torch import Tensor

from alloy import health
from alloy.engines import Engine, Guard, make_engine, make_guard, where_worlds
from alloy.health import Health, SimulationError
from alloy.names import Names
from alloy.physics import io
from alloy.physics.model import INPUTS, STATE, Data, Model, make_data, tensor_fields
from alloy.random import world_seeds
from alloy.scene import Scene
from alloy.views import View

Source = Scene | mujoco.MjModel | mujoco.MjSpec | str | os.PathLike[str]

_HELD = (*STATE, *INPUTS)  # the fields of Data that nothing else determines


@dataclass(frozen=True)
class State:
    """Everything that determines how a simulation goes on; `load_state` continues bit for bit."""

    tensors: dict[str, Tensor]  # state and input fields of Data and the guard's, [W, ...]
    fingerprint: str  # of the model it belongs to


def build(
    scene: Source,
    worlds: int = 1,
    seed: int | Sequence[int] = 0,
    device: torch.device | str | None = None,
    dtype: torch.dtype = torch.float32,
    engine: str = "auto",
    strict: bool = False,
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
        strict: whether `step` raises when a world is invalid. It has to look at the flags then,
            which on a GPU waits for the device.

    Raises:
        ValueError: an argument is not one of those; or MuJoCo refuses the model.
        NotImplementedError: the model uses what Alloy does not have; element and attribute are
            named.
        MemoryError: so many worlds do not fit.
    """
    if not isinstance(worlds, int) or isinstance(worlds, bool) or worlds < 1:
        raise ValueError(f"worlds must be a whole number of at least 1, not {worlds!r}")
    if dtype not in (torch.float32, torch.float64):
        raise ValueError(f"dtype must be torch.float32 or torch.float64, not {dtype!r}")
    device = torch.empty(0, device=device).device  # with its index
    if isinstance(scene, mujoco.MjModel):
        mj_model, substeps, randomizations = scene, 1, ()
    else:
        scene = scene if isinstance(scene, Scene) else Scene.from_mjcf(scene)
        mj_model, substeps = scene.compile(), scene.substeps
        randomizations = scene.randomizations
    model = io.put_model(mj_model, dtype=dtype, device=device)
    if randomizations:
        fields = sorted({f"{r.field} of {r.entity!r}" for r in randomizations})
        raise NotImplementedError(
            f"the scene randomizes {', '.join(fields)}; randomization is not built yet. "
            f"Remove the calls of scene.randomize"
        )
    chosen = make_engine(engine, model)
    health.require_memory(model, worlds)
    return Simulator(mj_model, model, chosen, world_seeds(seed, worlds, device), substeps, strict)


def _settable(field: str) -> Any:
    """The property of `View` with a setter that checks and copies."""
    read = getattr(View, field)
    return property(
        read.fget, lambda self, value: self._assign(field, value), doc=f"{read.__doc__} Settable."
    )


class Simulator(View):
    """All worlds of a scene; made by `alloy.build`."""

    qpos = _settable("qpos")
    qvel = _settable("qvel")
    act = _settable("act")
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
    ) -> None:
        """Worlds at rest in the initial configuration, one for each seed."""
        worlds = seeds.shape[0]
        self._start = make_data(model, worlds)
        self._d = self._copy(self._start)
        super().__init__(Names(mj_model), model, self._d)
        self._guard = make_guard(worlds, seeds.device)
        self._engine = engine
        self._versions: tuple[int, ...] = ()
        self.mj_model = mj_model
        self.seed = seeds  # [W] int64
        self.substeps = substeps  # physics steps per control step
        self.strict = strict

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
        return (
            f"<Simulator of {self.num_worlds} worlds: nq {self._model.nq}, nv {self._model.nv}, "
            f"nu {self._model.nu}, dt {self.dt:g} s, {self._engine.name} on {self.device}>"
        )

    # what it does

    def step(self, ctrl: Any = None, substeps: int | None = None) -> None:
        """Advance every world by one control step.

        Args:
            ctrl: [W, nu], kept for later steps; None leaves the present controls. Controls that
                are not finite count as zero for that step, see `health().bad_ctrl`.
            substeps: physics steps; by default `self.substeps`.

        Raises:
            ValueError: ctrl of another shape, dtype or device; nothing has changed then.
            SimulationError: under strict, when a world is invalid.
        """
        count = self.substeps if substeps is None else substeps
        if not isinstance(count, int) or count < 1:
            raise ValueError(f"substeps must be a whole number of at least 1, not {substeps!r}")
        held = {name: getattr(self._d, name) for name in _HELD}
        if ctrl is not None:
            held["ctrl"] = self._checked("ctrl", ctrl)
        d, guard = self._engine.step(self._model, Data(**held), self._guard, count)
        self._change(d, guard)
        if self.strict:
            self._raise_if_unhealthy()

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
        start = self._start if keyframe is None else self._at_keyframe(keyframe)
        clean = make_guard(self.num_worlds, self.device)
        self._put_worlds(mask, {name: getattr(start, name) for name in _HELD} | clean._asdict())

    def state(self) -> State:
        """A copy of everything that determines how the simulation goes on."""
        tensors = {name: getattr(self._d, name) for name in _HELD} | self._guard._asdict()
        return State({name: t.clone() for name, t in tensors.items()}, self._fingerprint)

    def load_state(self, state: State, mask: Any = None) -> None:
        """Continue from a state of this model, in the worlds of mask or in all.

        Raises:
            ValueError: a state of another model, number of worlds or dtype, or a bad mask; nothing
                has changed then.
        """
        if state.fingerprint != self._fingerprint:
            raise ValueError(
                f"the state belongs to another model (fingerprint {state.fingerprint[:12]}, this "
                f"simulator has {self._fingerprint[:12]}); load it where the same scene was built"
            )
        theirs, ours = state.tensors["qpos"], self._d.qpos
        if (theirs.shape, theirs.dtype) != (ours.shape, ours.dtype):
            raise ValueError(
                f"the state has {theirs.shape[0]} worlds in {theirs.dtype} and the simulator "
                f"{ours.shape[0]} in {ours.dtype}; build one like the other"
            )
        self._put_worlds(mask, {name: t.to(self.device) for name, t in state.tensors.items()})

    # how it is

    def health(self) -> Health:
        """Which worlds are in trouble."""
        none = torch.zeros(self.num_worlds, dtype=torch.int64, device=self.device)
        iterations = self._d.solver_niter
        return Health(
            invalid=self._guard.invalid.clone(),
            bad_ctrl=self._guard.bad_ctrl.clone(),
            dropped_contacts=none,  # every pair that can touch has its own slots
            solver_iterations=none if iterations is None else iterations.clone(),
        )

    def memory_report(self) -> dict[str, int]:
        """Bytes by group of tensors: model, start, state, inputs, derived; and the total."""
        seen: set[int] = set()
        model = [getattr(self._model, f.name) for f in tensor_fields(Model)]
        groups = {"model": model, "start": [getattr(self._start, n) for n in _HELD]}
        for group, fields in (("state", STATE), ("inputs", INPUTS)):
            groups[group] = [getattr(self._d, name) for name in fields]
        groups["state"] += [*self._guard, self.seed]
        groups["derived"] = [
            getattr(d, f.name) for d in (self._d, self._computed) for f in tensor_fields(Data)
        ]
        report = {group: health.bytes_of(tensors, seen) for group, tensors in groups.items()}
        return report | {"total": sum(report.values())}

    def engine_report(self) -> dict[str, str]:
        """Which engine runs, why, and on what."""
        return self._engine.report() | {"device": str(self.device), "dtype": str(self.dtype)}

    # inside

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

    @staticmethod
    def _copy(d: Data) -> Data:
        return Data(**{name: getattr(d, name).clone() for name in _HELD})

    def _assign(self, field: str, value: Any) -> None:
        self._change(replace(self._d, **{field: self._checked(field, value)}))

    def _checked(self, field: str, value: Any) -> Tensor:
        """A copy of value laid out like the field, if it has the field's shape, kind and device."""
        like = getattr(self._d, field)
        if not isinstance(value, Tensor):
            try:
                value = torch.as_tensor(np.asarray(value)).to(self.device)
            except (TypeError, ValueError) as error:
                raise ValueError(f"{field}: expected {_described(like)}; {error}") from None
        boolean = like.dtype == torch.bool
        right_kind = (value.dtype == torch.bool) == boolean and not value.is_complex()
        if value.shape != like.shape or value.device != like.device or not right_kind:
            raise ValueError(f"{field}: expected {_described(like)}; received {_described(value)}")
        world_last = value.to(like.dtype).movedim(0, -1)
        return world_last.clone(memory_format=torch.contiguous_format).movedim(-1, 0)

    def _checked_mask(self, mask: Any) -> Tensor:
        like = self._guard.invalid
        mask = mask if isinstance(mask, Tensor) else torch.as_tensor(mask).to(self.device)
        if (mask.shape, mask.dtype, mask.device) != (like.shape, like.dtype, like.device):
            raise ValueError(f"mask: expected {_described(like)}; received {_described(mask)}")
        return mask

    def _put_worlds(self, mask: Any, new: dict[str, Tensor]) -> None:
        """Replace state, inputs and guard by copies in the worlds of mask, or in all."""
        if mask is None:
            new = {name: value.clone() for name, value in new.items()}
        else:
            mask = self._checked_mask(mask)
            old = {name: getattr(self._d, name) for name in _HELD} | self._guard._asdict()
            new = {name: where_worlds(mask, new[name], old[name]) for name in new}
        guard = Guard(**{name: new.pop(name) for name in Guard._fields})
        self._change(replace(self._d, **new), guard)

    def _at_keyframe(self, keyframe: str | int) -> Data:
        """The start with what a keyframe of the model says of time, state and inputs."""
        mj, key = self.mj_model, self._names.id("keyframe", keyframe)
        values = {
            "qpos": mj.key_qpos[key],
            "qvel": mj.key_qvel[key],
            "act": mj.key_act[key],
            "ctrl": mj.key_ctrl[key],
            "mocap_pos": mj.key_mpos[key].reshape(-1, 3),
            "mocap_quat": mj.key_mquat[key].reshape(-1, 4),
            "step_count": np.asarray(round(mj.key_time[key] / self.physics_dt)),
        }
        tensors = {}
        for name, value in values.items():
            like = getattr(self._start, name)
            row = torch.as_tensor(value, dtype=like.dtype, device=like.device)
            tensors[name] = torch.zeros_like(like) + row
        return replace(self._start, **tensors)

    def _raise_if_unhealthy(self) -> None:
        worlds = self._guard.invalid.nonzero().flatten().tolist()
        if worlds:
            raise SimulationError(
                f"worlds {worlds[:20]} ({len(worlds)} of {self.num_worlds}) turned non-finite; the "
                f"first stands at time {self.time[worlds[0]].item():g} s. Reset them, or build "
                f"with strict=False to go on with the others"
            )

    @cached_property
    def _fingerprint(self) -> str:
        buffer = np.zeros(mujoco.mj_sizeModel(self.mj_model), np.uint8)
        mujoco.mj_saveModel(self.mj_model, None, buffer)
        return hashlib.sha256(buffer.tobytes()).hexdigest()


def _described(t: Tensor) -> str:
    return f"shape {tuple(t.shape)}, {t.dtype}, on {t.device}"
