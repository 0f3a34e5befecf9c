"""A trained policy as one torch module, the same for every library that trained it."""

import itertools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import skip_init

ACTIVATIONS = {"elu": nn.ELU, "relu": nn.ReLU, "selu": nn.SELU, "tanh": nn.Tanh, "gelu": nn.GELU}
SQUASH = ("clip", "tanh")


class Policy(nn.Module):
    """From observations to deterministic actions, its normaliser inside.

    normalise and clip the observation, a multi-layer perceptron, clip or tanh to +-1, and scale to
    the bounds of the environment's actions.
    """

    mean: Tensor
    scale: Tensor
    low: Tensor
    high: Tensor

    def __init__(
        self,
        sizes: Sequence[int],
        activation: str,
        *,
        groups: Sequence[str] = ("policy",),
        squash: str = "clip",
        clip_observations: float = float("inf"),
    ) -> None:
        """A network of zeros: see `copy_layers`, and `load_state_dict`.

        Args:
            sizes: widths: of the observation, of every hidden layer, of the action.
            activation: between the layers.
            groups: groups of the observation that are laid side by side to make the input.
            squash: how the last layer is brought to +-1: "clip" or "tanh".
            clip_observations: normalised observations are kept within +-this.

        Raises:
            ValueError: an activation or squash that is not known.
        """
        super().__init__()
        if activation not in ACTIVATIONS or squash not in SQUASH:
            raise ValueError(
                f"activation must be one of {[*ACTIVATIONS]} and squash one of {[*SQUASH]}, "
                f"not {activation!r} and {squash!r}"
            )
        self.config: dict[str, Any] = {
            "sizes": [int(n) for n in sizes],
            "activation": activation,
            "groups": list(groups),
            "squash": squash,
            "clip_observations": clip_observations,
        }
        layers: list[nn.Module] = []
        for inputs, outputs in itertools.pairwise(sizes):
            layer = skip_init(nn.Linear, inputs, outputs)  # which draws no random numbers
            for parameter in layer.parameters():
                nn.init.zeros_(parameter)
            layers += [layer, ACTIVATIONS[activation]()]
        self.net = nn.Sequential(*layers[:-1])
        self.clip_observations = clip_observations
        self.tanh = squash == "tanh"
        self.register_buffer("mean", torch.zeros(sizes[0]))
        self.register_buffer("scale", torch.ones(sizes[0]))
        self.register_buffer("low", -torch.ones(sizes[-1]))
        self.register_buffer("high", torch.ones(sizes[-1]))
        self.requires_grad_(False)

    def forward(self, obs: Tensor) -> Tensor:
        """Actions [W, A] in the environment's units, for observations [W, n]."""
        obs = (obs - self.mean) * self.scale
        obs = torch.clamp(obs, -self.clip_observations, self.clip_observations)
        action = self.net(obs)
        action = torch.tanh(action) if self.tanh else torch.clamp(action, -1.0, 1.0)
        return self.low + (self.high - self.low) * (action + 1.0) / 2.0

    @torch.jit.unused
    def input(self, obs: Any) -> Tensor:
        """What `forward` takes, of what an environment says: a tensor, dict or TensorDict."""
        if not isinstance(obs, Tensor):
            obs = torch.cat([obs[group] for group in self.config["groups"]], -1)
        return obs.to(self.mean.dtype)

    @torch.jit.unused
    def act(self, obs: Any) -> Tensor:
        """Actions [W, A] for what an environment says, without a gradient."""
        with torch.no_grad():
            return self(self.input(obs))

    @torch.jit.unused
    def copy_layers(self, layers: Sequence[nn.Module]) -> None:
        """Take the weights of the linear layers of another network, in order.

        Raises:
            ValueError: not as many, or of other sizes.
        """
        theirs = [layer for layer in layers if isinstance(layer, nn.Linear)]
        mine = [layer for layer in self.net if isinstance(layer, nn.Linear)]
        shapes = [[tuple(layer.weight.shape) for layer in side] for side in (theirs, mine)]
        if shapes[0] != shapes[1]:
            raise ValueError(f"the layers have shapes {shapes[0]}, and the policy {shapes[1]}")
        for to, at in zip(mine, theirs, strict=True):
            to.load_state_dict(at.state_dict())

    @torch.jit.unused
    def set_normalizer(self, mean: Tensor, scale: Tensor) -> None:
        """Normalise by (obs - mean) * scale, each [n]."""
        self.mean.copy_(mean)
        self.scale.copy_(scale)

    @torch.jit.unused
    def set_bounds(self, low: Any, high: Any) -> None:
        """Scale actions from +-1 to these bounds, each [A]."""
        self.low.copy_(torch.as_tensor(low))
        self.high.copy_(torch.as_tensor(high))

    @torch.jit.unused
    def packed(self) -> dict[str, Any]:
        """Plain values and tensors that `Policy.unpacked` makes the policy of again."""
        state = {name: value.detach().cpu().clone() for name, value in self.state_dict().items()}
        return {"config": self.config, "state": state}

    @staticmethod
    def unpacked(packed: dict[str, Any]) -> "Policy":
        """The policy of what `packed` gave."""
        config = dict(packed["config"])
        policy = Policy(config.pop("sizes"), config.pop("activation"), **config)
        policy.load_state_dict(packed["state"])
        return policy.eval()
