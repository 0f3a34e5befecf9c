"""What Alloy makes of a model, element by element, before anything is built."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass

import mujoco

from alloy.physics.io_support import STATUSES, Element, elements
from alloy.scene import Scene


@dataclass(frozen=True)
class SupportReport:
    """Every element of a model with its status; `str` of it is a table."""

    elements: tuple[Element, ...]

    @property
    def ok(self) -> bool:
        """Whether `alloy.build` takes the model."""
        return not self.with_status("refused")

    def with_status(self, status: str) -> tuple[Element, ...]:
        """The elements that are "honoured", "refused" or "ignored".

        Raises:
            ValueError: no such status.
        """
        if status not in STATUSES:
            raise ValueError(f"status must be one of {list(STATUSES)}, not {status!r}")
        return tuple(e for e in self.elements if e.status == status)

    def as_dict(self) -> dict[str, list[dict[str, str]]]:
        """The elements by status, as plain data for JSON."""
        return {status: [e._asdict() for e in self.with_status(status)] for status in STATUSES}

    def __str__(self) -> str:
        """Refused and ignored elements one by one, honoured ones counted."""
        lines = [
            f"{e.status:9}{e.name}: {e.reason}"
            for status in STATUSES[:2]
            for e in self.with_status(status)
        ]
        honoured = Counter((e.kind, e.reason) for e in self.with_status("honoured"))
        lines += [
            f"{'honoured':9}{count} x {kind}: {what}" for (kind, what), count in honoured.items()
        ]
        verdict = "alloy.build takes this model" if self.ok else "alloy.build refuses this model"
        return "\n".join([verdict, *lines])


def support_report(
    scene: Scene | mujoco.MjModel | mujoco.MjSpec | str | os.PathLike[str],
) -> SupportReport:
    """Say of every element of a model whether it is honoured, refused or ignored, and why.

    A model that is refused gives a report like any other; so does one that MuJoCo itself cannot
    read or compile, whose one element is the file with MuJoCo's message.

    Args:
        scene: what `alloy.build` takes: a Scene, an MjModel, an MjSpec, or the path or the text of
            an MJCF or URDF file.

    Raises:
        FileNotFoundError: the path does not exist.
        TypeError: the scene is none of these.
    """
    try:
        if not isinstance(scene, mujoco.MjModel | Scene):
            scene = Scene.from_mjcf(scene)
        mj = scene if isinstance(scene, mujoco.MjModel) else scene.compile()
    except ValueError as error:
        return SupportReport((Element("model", "model", "refused", str(error)),))
    return SupportReport(tuple(elements(mj)))
