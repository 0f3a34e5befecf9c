"""Model and Data: every physical quantity, each with its shape, declared once.

A field's shape is symbolic ("W" worlds, then MuJoCo's size names); allocation, checks and tests
read it. Model fields are "1|W": one row shared by all worlds, or a row for each world. Both classes
are frozen: a stage takes a Data and returns `replace(d, field=...)`.
"""

from __future__ import annotations

from dataclasses import Field, dataclass, field, fields
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from alloy.physics.layout import ConstraintLayout, PairGroup, Selection
    from alloy.physics.tree import Tree


def tensor(*shape: str | int, dtype: str = "float", stage: str = "") -> Any:
    """Declare a tensor field: symbolic shape, dtype kind, and for Data the stage that writes it."""
    return field(default=None, metadata={"shape": shape, "dtype": dtype, "stage": stage})


@dataclass(frozen=True)
class Option:
    """The scalar options of mjOption that a model honours; static, part of the compiled program."""

    timestep: float
    integrator: str  # euler, rk4, implicit, implicitfast
    cone: str  # pyramidal, elliptic
    impratio: float
    tolerance: float
    ls_tolerance: float
    iterations: int
    ls_iterations: int
    noslip_tolerance: float
    noslip_iterations: int
    density: float
    viscosity: float
    disable: frozenset[str]  # names of mjtDisableBit without the prefix, lower case


@dataclass(frozen=True)
class Model:
    """What MuJoCo calls mjModel, as tensors. Built by `alloy.physics.io.put_model` only."""

    # sizes
    nq: int
    nv: int
    nu: int  # controls
    nactuator: int
    nout: int  # forces of actuators
    na: int
    nbody: int
    njnt: int
    ngeom: int
    nsite: int
    nmocap: int
    ntendon: int
    neq: int
    nsensor: int
    nsensordata: int
    nhistory: int  # past controls that delayed actuators read
    nsensorhistory: int  # length of the record of sensors
    nplastic: int  # where springs that yield are at rest
    ncon: int  # contact slots
    nefc: int  # base constraint rows, see ConstraintLayout
    nunit: int  # units of constraint: equalities, dofs with friction, limits, contacts

    opt: Option
    tree: Tree  # topology as constant indices and matrices
    pairs: tuple[PairGroup, ...]  # enabled geom pairs by collider
    efc: ConstraintLayout  # order and blocks of the constraint rows
    meaninertia: float  # mjStatistic.meaninertia, scales the solver's tolerance
    selection: Selection | None = None  # which contacts get rows; None: all
    derived: dict[str, Any] = field(default_factory=dict)  # static tables of the stages, by name

    @property
    def drops_contacts(self) -> bool:
        """Whether there can be more contacts than slots."""
        return self.selection is not None or any(group.drops for group in self.pairs)

    @property
    def nchosen(self) -> int:
        """Contacts that get rows, where these are chosen world by world."""
        return 0 if self.selection is None else self.selection.ncon

    @property
    def nlimit(self) -> int:
        """Limits of hinges and slides."""
        return self.efc.nl - self.efc.n_ball_limits - self.efc.n_tendon_limits

    gravity: Tensor = tensor("1|W", 3)
    wind: Tensor = tensor("1|W", 3)
    qpos0: Tensor = tensor("1|W", "nq")
    qpos_spring: Tensor = tensor("1|W", "nq")
    body_pos: Tensor = tensor("1|W", "nbody", 3)
    body_quat: Tensor = tensor("1|W", "nbody", 4)
    body_ipos: Tensor = tensor("1|W", "nbody", 3)
    body_iquat: Tensor = tensor("1|W", "nbody", 4)
    body_imat: Tensor = tensor("1|W", "nbody", 3, 3)  # rotation matrix of body_iquat
    body_mass: Tensor = tensor("1|W", "nbody")
    body_subtreemass: Tensor = tensor("1|W", "nbody")
    body_inertia: Tensor = tensor("1|W", "nbody", 3)
    body_invweight0: Tensor = tensor("1|W", "nbody", 2)
    body_gravcomp: Tensor = tensor("1|W", "nbody")
    jnt_pos: Tensor = tensor("1|W", "njnt", 3)
    jnt_axis: Tensor = tensor("1|W", "njnt", 3)
    jnt_stiffness: Tensor = tensor("1|W", "njnt")
    jnt_stiffnesspoly: Tensor = tensor("1|W", "njnt", 2)  # of displacement squared and cubed
    jnt_springyield: Tensor = tensor("1|W", "njnt")
    jnt_range: Tensor = tensor("1|W", "njnt", 2)
    jnt_actfrcrange: Tensor = tensor("1|W", "njnt", 2)
    jnt_margin: Tensor = tensor("1|W", "njnt")
    jnt_solref: Tensor = tensor("1|W", "njnt", 2)
    jnt_solimp: Tensor = tensor("1|W", "njnt", 5)
    dof_damping: Tensor = tensor("1|W", "nv")
    dof_dampingpoly: Tensor = tensor("1|W", "nv", 2)  # of velocity squared and cubed
    dof_armature: Tensor = tensor("1|W", "nv")
    dof_frictionloss: Tensor = tensor("1|W", "nv")
    dof_invweight0: Tensor = tensor("1|W", "nv")
    dof_solref: Tensor = tensor("1|W", "nv", 2)
    dof_solimp: Tensor = tensor("1|W", "nv", 5)
    geom_pos: Tensor = tensor("1|W", "ngeom", 3)
    geom_quat: Tensor = tensor("1|W", "ngeom", 4)
    geom_mat: Tensor = tensor("1|W", "ngeom", 3, 3)  # rotation matrix of geom_quat
    geom_size: Tensor = tensor("1|W", "ngeom", 3)
    geom_rbound: Tensor = tensor("1|W", "ngeom")
    geom_fluid: Tensor = tensor("1|W", "ngeom", 12)  # as mjModel: fluidcoef and added masses
    geom_friction: Tensor = tensor("1|W", "ngeom", 3)
    site_pos: Tensor = tensor("1|W", "nsite", 3)
    site_quat: Tensor = tensor("1|W", "nsite", 4)
    site_mat: Tensor = tensor("1|W", "nsite", 3, 3)  # rotation matrix of site_quat
    tendon_stiffness: Tensor = tensor("1|W", "ntendon")
    tendon_damping: Tensor = tensor("1|W", "ntendon")
    tendon_stiffnesspoly: Tensor = tensor("1|W", "ntendon", 2)
    tendon_dampingpoly: Tensor = tensor("1|W", "ntendon", 2)
    tendon_armature: Tensor = tensor("1|W", "ntendon")
    tendon_lengthspring: Tensor = tensor("1|W", "ntendon", 2)
    tendon_springyield: Tensor = tensor("1|W", "ntendon")
    tendon_length0: Tensor = tensor("1|W", "ntendon")
    tendon_invweight0: Tensor = tensor("1|W", "ntendon")
    tendon_range: Tensor = tensor("1|W", "ntendon", 2)
    tendon_margin: Tensor = tensor("1|W", "ntendon")
    tendon_frictionloss: Tensor = tensor("1|W", "ntendon")
    tendon_solref_lim: Tensor = tensor("1|W", "ntendon", 2)
    tendon_solimp_lim: Tensor = tensor("1|W", "ntendon", 5)
    tendon_solref_fri: Tensor = tensor("1|W", "ntendon", 2)
    tendon_solimp_fri: Tensor = tensor("1|W", "ntendon", 5)
    eq_data: Tensor = tensor("1|W", "neq", 11)
    eq_solref: Tensor = tensor("1|W", "neq", 2)
    eq_solimp: Tensor = tensor("1|W", "neq", 5)
    actuator_acc0: Tensor = tensor("1|W", "nactuator")
    actuator_lengthrange: Tensor = tensor("1|W", "nactuator", 2)
    actuator_cranklength: Tensor = tensor("1|W", "nactuator")
    actuator_gear: Tensor = tensor("1|W", "nactuator", 6)
    actuator_gainprm: Tensor = tensor("1|W", "nactuator", 10)
    actuator_biasprm: Tensor = tensor("1|W", "nactuator", 10)
    actuator_dynprm: Tensor = tensor("1|W", "nactuator", 10)
    actuator_ctrlrange: Tensor = tensor("1|W", "nu", 2)
    actuator_forcerange: Tensor = tensor("1|W", "nactuator", 2)
    actuator_actrange: Tensor = tensor("1|W", "nactuator", 2)
    # contact parameters by slot, mixed from the geoms or given by the pair
    con_friction: Tensor = tensor("1|W", "ncon", 5)
    con_solref: Tensor = tensor("1|W", "ncon", 2)
    con_solreffriction: Tensor = tensor("1|W", "ncon", 2)
    con_solimp: Tensor = tensor("1|W", "ncon", 5)
    con_margin: Tensor = tensor("1|W", "ncon")
    con_gap: Tensor = tensor("1|W", "ncon")
    # constants of the constraint rows, see constraint.constants
    efc_k: Tensor = tensor("1|W", "nefc")
    efc_b: Tensor = tensor("1|W", "nefc")
    efc_diag: Tensor = tensor("1|W", "nefc")
    efc_imp: Tensor = tensor("1|W", "nunit", 7)  # see constraint._impedance
    efc_margin: Tensor = tensor("1|W", "nunit")
    efc_range: Tensor = tensor("1|W", "nlimit", 2)  # of hinge and slide limits


@dataclass(frozen=True)
class Data:
    """What MuJoCo calls mjData: the state, the inputs, and what the stages of a step derive."""

    # state
    qpos: Tensor = tensor("W", "nq", stage="state")
    qvel: Tensor = tensor("W", "nv", stage="state")
    act: Tensor = tensor("W", "na", stage="state")
    qacc_warmstart: Tensor = tensor("W", "nv", stage="state")
    ctrl_history: Tensor = tensor("W", "nhistory", stage="state")  # the youngest of each first
    sensor_history: Tensor = tensor("W", "nsensorhistory", stage="state")  # see sensor_history.py
    plastic: Tensor = tensor("W", "nplastic", stage="state")  # rest of springs that yield
    step_count: Tensor = tensor("W", dtype="int", stage="state")
    # inputs
    ctrl: Tensor = tensor("W", "nu", stage="input")
    qfrc_applied: Tensor = tensor("W", "nv", stage="input")
    xfrc_applied: Tensor = tensor("W", "nbody", 6, stage="input")
    mocap_pos: Tensor = tensor("W", "nmocap", 3, stage="input")
    mocap_quat: Tensor = tensor("W", "nmocap", 4, stage="input")
    eq_active: Tensor = tensor("W", "neq", dtype="bool", stage="input")

    # kinematics
    xpos: Tensor = tensor("W", "nbody", 3, stage="kinematics")
    xquat: Tensor = tensor("W", "nbody", 4, stage="kinematics")
    xmat: Tensor = tensor("W", "nbody", 3, 3, stage="kinematics")
    xipos: Tensor = tensor("W", "nbody", 3, stage="kinematics")
    ximat: Tensor = tensor("W", "nbody", 3, 3, stage="kinematics")
    xanchor: Tensor = tensor("W", "njnt", 3, stage="kinematics")
    xaxis: Tensor = tensor("W", "njnt", 3, stage="kinematics")
    geom_xpos: Tensor = tensor("W", "ngeom", 3, stage="kinematics")
    geom_xmat: Tensor = tensor("W", "ngeom", 3, 3, stage="kinematics")
    site_xpos: Tensor = tensor("W", "nsite", 3, stage="kinematics")
    site_xmat: Tensor = tensor("W", "nsite", 3, 3, stage="kinematics")
    subtree_com: Tensor = tensor("W", "nbody", 3, stage="kinematics")
    cdof: Tensor = tensor("W", "nv", 6, stage="kinematics")
    cinert: Tensor = tensor("W", "nbody", 10, stage="kinematics")

    # the rest of the position stage
    M: Tensor = tensor("W", "nv", "nv", stage="position")
    ten_length: Tensor = tensor("W", "ntendon", stage="position")
    ten_J: Tensor = tensor("W", "ntendon", "nv", stage="position")
    contact_dist: Tensor = tensor("W", "ncon", stage="position")
    contact_pos: Tensor = tensor("W", "ncon", 3, stage="position")
    contact_frame: Tensor = tensor("W", "ncon", 3, 3, stage="position")
    contact_dropped: Tensor = tensor("W", dtype="int", stage="position")  # None: none can be
    contact_chosen: Tensor = tensor("W", "nchosen", dtype="int", stage="position")  # see selection
    contact_least: Tensor = tensor("W", "ncon", stage="position")  # over a control step, if kept
    efc_J: Tensor = tensor("W", "nefc", "nv", stage="position")
    efc_pos: Tensor = tensor("W", "nefc", stage="position")  # distance less margin
    efc_kip: Tensor = tensor("W", "nefc", stage="position")  # stiffness * impedance * efc_pos
    efc_D: Tensor = tensor("W", "nefc", stage="position")
    efc_active: Tensor = tensor("W", "nefc", dtype="bool", stage="position")

    # velocity
    ten_velocity: Tensor = tensor("W", "ntendon", stage="velocity")
    cvel: Tensor = tensor("W", "nbody", 6, stage="velocity")
    cdof_dot: Tensor = tensor("W", "nv", 6, stage="velocity")
    qfrc_bias: Tensor = tensor("W", "nv", stage="velocity")
    qfrc_spring: Tensor = tensor("W", "nv", stage="velocity")
    qfrc_damper: Tensor = tensor("W", "nv", stage="velocity")
    qfrc_gravcomp: Tensor = tensor("W", "nv", stage="velocity")
    qfrc_fluid: Tensor = tensor("W", "nv", stage="velocity")
    qfrc_passive: Tensor = tensor("W", "nv", stage="velocity")
    efc_aref: Tensor = tensor("W", "nefc", stage="velocity")

    # acceleration
    act_dot: Tensor = tensor("W", "na", stage="acceleration")
    actuator_length: Tensor = tensor("W", "nout", stage="acceleration")
    actuator_velocity: Tensor = tensor("W", "nout", stage="acceleration")
    actuator_force: Tensor = tensor("W", "nout", stage="acceleration")
    qfrc_actuator: Tensor = tensor("W", "nv", stage="acceleration")
    qfrc_smooth: Tensor = tensor("W", "nv", stage="acceleration")
    qacc: Tensor = tensor("W", "nv", stage="acceleration")
    qfrc_constraint: Tensor = tensor("W", "nv", stage="acceleration")
    efc_force: Tensor = tensor("W", "nefc", stage="acceleration")
    solver_niter: Tensor = tensor("W", dtype="int", stage="acceleration")
    sensordata: Tensor = tensor("W", "nsensordata", stage="acceleration")

    # forces on bodies, which no other stage needs
    cacc: Tensor = tensor("W", "nbody", 6, stage="forces")
    cfrc_ext: Tensor = tensor("W", "nbody", 6, stage="forces")
    cfrc_int: Tensor = tensor("W", "nbody", 6, stage="forces")


STATE = tuple(f.name for f in fields(Data) if f.metadata["stage"] == "state")
INPUTS = tuple(f.name for f in fields(Data) if f.metadata["stage"] == "input")


def tensor_fields(cls: type) -> tuple[Field, ...]:
    """The fields of Model or Data that were declared with `tensor`."""
    return tuple(f for f in fields(cls) if "shape" in f.metadata)


def present(x: Model | Data) -> tuple[Field, ...]:
    """The tensor fields of a Model or Data that are there."""
    return tuple(f for f in tensor_fields(type(x)) if getattr(x, f.name) is not None)


def field_shape(m: Model, f: Field) -> tuple[int, ...]:
    """Concrete shape of a declared field behind its world axis."""
    return tuple(n if isinstance(n, int) else getattr(m, n) for n in f.metadata["shape"][1:])


def empty_world_last(worlds: int, shape: tuple[int, ...], **kw: Any) -> Tensor:
    """Zeros of shape (worlds, *shape) whose world axis is last in memory.

    No view of another tensor: torch.compile would look at what it is a view of, too.
    """
    strides = [worlds] * len(shape)
    for k in range(len(shape) - 2, -1, -1):
        strides[k] = strides[k + 1] * max(shape[k + 1], 1)
    return torch.empty_strided((worlds, *shape), (1, *strides), **kw).zero_()


def make_data(m: Model, worlds: int) -> Data:
    """State and inputs of `worlds` worlds at qpos0; the rest is unset until a stage writes it."""
    float_like = m.qpos0
    out: dict[str, Tensor] = {}
    for f in tensor_fields(Data):
        if f.metadata["stage"] not in ("state", "input"):
            continue
        dtype = {"int": torch.int64, "bool": torch.bool}.get(f.metadata["dtype"], float_like.dtype)
        out[f.name] = empty_world_last(
            worlds, field_shape(m, f), dtype=dtype, device=float_like.device
        )
    start = {"qpos": m.qpos0} | m.derived["start"]  # mocap poses, eq_active and plastic as compiled
    for name, value in start.items():
        out[name].copy_(value.expand_as(out[name]))
    return Data(**out)
