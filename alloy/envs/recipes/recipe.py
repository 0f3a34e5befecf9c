"""A recipe: how an environment is trained, in words that every library understands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

ACTIVATIONS = ("elu", "relu", "selu", "tanh", "gelu")
SCHEDULES = ("fixed", "adaptive")

COUNTS = ("worlds", "steps", "epochs", "minibatches", "iterations", "episodes")
RANGES = {
    "learning_rate": (1e-9, 1.0),
    "desired_kl": (1e-9, 1e3),
    "gamma": (0.0, 1.0),
    "lam": (0.0, 1.0),
    "clip": (1e-9, 1e3),
    "entropy_coef": (0.0, 1e3),
    "value_coef": (0.0, 1e3),
    "max_grad_norm": (1e-9, 1e9),
    "init_noise_std": (1e-9, 1e3),
    "reward_scale": (1e-9, 1e9),
}


@dataclass(frozen=True)
class Recipe:
    """PPO on one environment, and when it counts as solved.

    Attributes:
        env_id: the environment, one of `alloy.envs.list()`.
        env: arguments of the environment beside it.
        worlds: number of worlds, in each process.
        steps: steps of every world between two updates.
        epochs: passes over what an iteration collected.
        minibatches: updates in each pass.
        actor: widths of the policy's hidden layers.
        critic: widths of the value function's hidden layers.
        activation: between the layers, one of `ACTIVATIONS`.
        learning_rate: of Adam; where an adaptive schedule begins.
        schedule: "fixed", or "adaptive": the learning rate follows the KL divergence of an update.
        desired_kl: what an adaptive schedule aims at.
        gamma: discount per step.
        lam: of generalised advantage estimation.
        clip: of the probability ratio.
        clip_value: clip the value's change by the same amount.
        entropy_coef: weight of the entropy in the loss.
        value_coef: weight of the value's error in the loss.
        max_grad_norm: gradients are scaled down to it.
        init_noise_std: standard deviation of the actions in the beginning, in units of half the
            action space.
        normalize_observations: centre and scale them by running moments.
        reward_scale: the learner sees rewards times this; logs and evaluations do not.
        random_start: begin the first episodes at random lengths, so that not all end together.
        iterations: updates after which training ends.
        minutes: wall time after which training ends, if that is sooner; None for no limit.
        success_bar: share of held-out episodes that should succeed, or None.
        return_bar: mean return that held-out episodes should reach, or None.
        episodes: number of held-out episodes.
    """

    env_id: str
    env: Mapping[str, Any] = field(default_factory=dict)
    worlds: int = 1024
    steps: int = 24
    epochs: int = 5
    minibatches: int = 4
    actor: tuple[int, ...] = (128, 128)
    critic: tuple[int, ...] = (128, 128)
    activation: str = "elu"
    learning_rate: float = 1e-3
    schedule: str = "adaptive"
    desired_kl: float = 0.01
    gamma: float = 0.99
    lam: float = 0.95
    clip: float = 0.2
    clip_value: bool = True
    entropy_coef: float = 0.001
    value_coef: float = 1.0
    max_grad_norm: float = 1.0
    init_noise_std: float = 0.6
    normalize_observations: bool = True
    reward_scale: float = 1.0
    random_start: bool = True
    iterations: int = 500
    minutes: float | None = None
    success_bar: float | None = None
    return_bar: float | None = None
    episodes: int = 256

    def __post_init__(self) -> None:
        """Refuse what no library could train with, by name."""
        for name in COUNTS:
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} must be a whole number of at least 1, not {value!r}")
        for name, (low, high) in RANGES.items():
            value = getattr(self, name)
            if (
                isinstance(value, bool)
                or not isinstance(value, int | float)
                or not low <= value <= high
            ):
                raise ValueError(f"{name} must be a number from {low} to {high}, not {value!r}")
        for name in ("actor", "critic"):
            widths = getattr(self, name)
            if not isinstance(widths, Sequence) or not all(isinstance(n, int) for n in widths):
                raise ValueError(f"{name} must be a list of widths, as [128, 128], not {widths!r}")
            object.__setattr__(self, name, tuple(widths))
        if self.worlds * self.steps < self.minibatches:
            raise ValueError(
                f"{self.worlds} worlds x {self.steps} steps cannot be cut into "
                f"{self.minibatches} minibatches; take fewer"
            )
        for name, known in (("activation", ACTIVATIONS), ("schedule", SCHEDULES)):
            if getattr(self, name) not in known:
                raise ValueError(f"{name} must be one of {[*known]}, not {getattr(self, name)!r}")

    def changed(self, **changes: Any) -> Recipe:
        """A recipe with some of its values changed.

        Raises:
            TypeError: a name that is not a recipe's; with the names.
        """
        known = [f.name for f in fields(self)]
        for name in changes:
            if name not in known:
                raise TypeError(f"a recipe has no {name!r}; it has {known}")
        return replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for a checkpoint or a file."""
        return asdict(self) | {"env": dict(self.env)}

    @staticmethod
    def from_dict(values: Mapping[str, Any]) -> Recipe:
        """The recipe of such values."""
        return Recipe(**values)
