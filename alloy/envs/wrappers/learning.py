"""What the trainers share whose library leaves it to them: layers, learning rates, first steps."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from torch import nn

from alloy.envs.recipes import Recipe
from alloy.envs.vector_env import VectorEnv
from alloy.envs.wrappers.policy import ACTIVATIONS

CLIP_OBSERVATIONS = 10.0  # of normalised observations, where the library does not say
SLOWEST, FASTEST, FACTOR = 1e-5, 1e-2, 1.5  # of an adaptive learning rate, as rsl_rl has it


def perceptron(sizes: Sequence[int], activation: str) -> nn.Sequential:
    """Layers of these widths, from the input to the output, with the activation between them."""
    layers: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(sizes):
        layers += [nn.Linear(inputs, outputs), ACTIVATIONS[activation]()]
    return nn.Sequential(*layers[:-1])


class AdaptiveRate:
    """A learning rate that keeps the KL divergence of an update near what the recipe desires.

    Attributes:
        value: the learning rate now.
    """

    def __init__(self, recipe: Recipe) -> None:
        """Begin with the recipe's; a "fixed" schedule stays there."""
        self.value = recipe.learning_rate
        self._desired = recipe.desired_kl if recipe.schedule == "adaptive" else None

    def after(self, kl: float) -> float:
        """The learning rate after an update that moved the policy by `kl`."""
        if self._desired is not None:
            if kl > 2.0 * self._desired:
                self.value = max(self.value / FACTOR, SLOWEST)
            elif 0.0 < kl < 0.5 * self._desired:
                self.value = min(self.value * FACTOR, FASTEST)
        return self.value


def scatter_starts(env: VectorEnv) -> None:
    """Let the time limit of every world's episode count from a random step, once.

    Worlds that begin together would otherwise all be truncated together, again and again.
    """
    assert env.task.max_steps is not None  # a run sees to it
    env.episode_length = torch.randint_like(env.episode_length, env.task.max_steps)
