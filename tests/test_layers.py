"""The import ladder of docs/design.md, and the size and purity rules of the code base.

Every rule is a function from sources to complaints, so that each is also shown to complain.
"""

import ast
import fnmatch
import graphlib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent

# From the ground up. A module may import what stands on a lower line; units on one line never
# import each other; the files of one unit may, without cycles.
LADDER = [
    [["alloy/math.py"], ["alloy/random.py"], ["alloy/structure.py"], ["alloy/ops/control.py"]],
    [["alloy/ops/reference/*"], ["alloy/ops/triton/*"]],
    [["alloy/ops/*"]],
    [["alloy/physics/tree.py"], ["alloy/physics/layout.py"]],
    [["alloy/physics/model.py"]],
    [
        ["alloy/physics/smooth*.py"],
        ["alloy/physics/passive*.py"],
        ["alloy/physics/actuation*.py"],
        ["alloy/physics/collision*"],
        ["alloy/physics/constraint*"],
        ["alloy/physics/selection.py"],
        ["alloy/physics/occupancy.py"],
        ["alloy/physics/solver*.py"],
        ["alloy/physics/sensor*.py"],
    ],
    [["alloy/physics/randomize*.py"]],
    [["alloy/physics/io*"], ["alloy/physics/forward.py"]],
    [["alloy/physics/__init__.py"]],
    [["alloy/lanes/errors.py"], ["alloy/lanes/scalar*.py"]],
    [
        # from a torch graph to scalar statements
        [f"alloy/lanes/{part}*.py" for part in ("trace", "ops", "linalg", "approx")],
        # from scalar statements to machine code
        [f"alloy/lanes/{part}*.py" for part in ("emit", "passes", "schedule", "slots", "target")],
    ],
    [["alloy/lanes/*"]],
    [["alloy/guard.py"], ["alloy/fingerprint.py"]],
    [["alloy/engines*.py"], ["alloy/scene*"]],
    [["alloy/names.py"], ["alloy/health.py"]],
    [["alloy/views.py"]],
    [["alloy/sim.py"]],
    [["alloy/envs/checks.py"], ["alloy/envs/actions_spec.py"], ["alloy/envs/resets.py"]],
    [["alloy/envs/observations.py"], ["alloy/envs/robots*"], ["alloy/envs/view.py"]],
    [["alloy/envs/task.py"], ["alloy/envs/actions.py"]],
    [["alloy/envs/program.py"], ["alloy/envs/backend.py"], ["alloy/envs/rendering.py"]],
    [["alloy/envs/vector_env.py"]],
    [["alloy/envs/gymnasium_suite.py"]],
    [
        [f"alloy/envs/{task}.py"]
        for task in (
            "ant",
            "gripper_lift",
            "half_cheetah",
            "hopper",
            "humanoid",
            "humanoid_standup",
            "inverted_double_pendulum",
            "inverted_pendulum",
            "pusher",
            "reacher",
            "swimmer",
            "walker2d",
        )
    ]
    + [
        # the task; the commands beside it are further up
        [f"alloy/envs/loco/{part}.py" for part in ("__init__", "go2*", "task*", "terms*")],
        ["alloy/envs/recipes/*"],
    ],
    [
        ["alloy/envs/single.py"],
        # what wraps an environment; the commands that train are further up
        [
            f"alloy/envs/wrappers/{part}.py"
            for part in (
                "__init__",
                "normalize",
                "policy",
                "restarts",
                "rsl_rl",
                "sb3",
                "scaling",
                "skrl",
                "statistics",
                "torchrl",
            )
        ],
    ],
    [["alloy/envs/registry.py"]],
    [["alloy/envs/__init__.py"]],
    # commands: python -m alloy.envs.wrappers.train
    [["alloy/envs/wrappers/*"]],
    [["alloy/envs/loco/*"]],
    [["alloy/__init__.py"]],
]

# Packages that only these files import (at run time; imports for type checkers are free).
HOMES = {
    "mujoco": [
        "alloy/physics/io*",
        "alloy/scene*",
        "alloy/names.py",
        "alloy/sim.py",
        "alloy/envs/rendering.py",
    ],
    "gymnasium": ["alloy/envs/*"],
    "tensordict": ["alloy/envs/*"],
    "llvmlite": ["alloy/lanes/*"],
    "triton": ["alloy/ops/triton/*"],
    "rsl_rl": ["alloy/envs/*"],
    "torchrl": ["alloy/envs/*"],
    "stable_baselines3": ["alloy/envs/*"],
    "skrl": ["alloy/envs/*"],
    "safetensors": ["alloy/envs/*"],
    "onnx": ["alloy/envs/*"],
}

# What these files do without.
STRANGERS = {"alloy/scene*": {"torch"}, "alloy/lanes/*": {"mujoco"}}

# Code inside a step: batched, static, traceable.
HOT = ["alloy/math.py", "alloy/ops/reference/*", "alloy/physics/*"]
COLD = ["alloy/physics/io*", "alloy/physics/tree.py", "alloy/physics/layout.py"]
HOT_FORBIDDEN = {"item", "tolist", "nonzero", "numpy", "vmap"}

# About 400 lines a file and 60 a function is the aim; these are the limits.
FILE_LINES = 450
FUNCTION_LINES = 70
KERNEL_LINES = 120

# path, or path::function -> why it may be longer.
LONGER: dict[str, str] = {}


def test_imports_point_down():
    assert ladder_complaints(sources()) == []


def test_ladder_complains():
    upward = {"alloy/math.py": "from alloy.sim import Simulator", "alloy/sim.py": ""}
    peers = {"alloy/physics/smooth.py": "from . import solver", "alloy/physics/solver.py": ""}
    facade = {"alloy/sim.py": "import alloy", "alloy/__init__.py": ""}
    cycle = {
        "alloy/physics/collision/a.py": "from .b import f",
        "alloy/physics/collision/b.py": "import alloy.physics.collision.a",
    }
    homeless = {"alloy/misc.py": ""}
    for tree in (upward, peers, facade, cycle, homeless):
        assert len(ladder_complaints(tree)) == 1, tree
    for_types = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import alloy.sim"
    assert ladder_complaints({"alloy/math.py": for_types, "alloy/sim.py": ""}) == []


def test_packages_stay_at_home():
    assert home_complaints(sources()) == []


def test_homes_complain():
    assert len(home_complaints({"alloy/sim.py": "def f():\n    import gymnasium.spaces"})) == 1
    assert len(home_complaints({"alloy/scene.py": "from torch import Tensor"})) == 1
    assert home_complaints({"alloy/envs/task.py": "import gymnasium as gym"}) == []


def test_library_does_not_print():
    assert print_complaints(sources()) == []


def test_print_complains():
    assert len(print_complaints({"alloy/sim.py": "print(1)"})) == 1


def test_hot_code_is_batched_and_traceable():
    assert hot_complaints(sources()) == []


def test_hot_complains():
    assert len(hot_complaints({"alloy/physics/smooth.py": "y = x.sum().item()"})) == 1
    assert hot_complaints({"alloy/physics/io.py": "y = x.sum().item()"}) == []


def test_files_and_functions_are_short():
    assert size_complaints(sources() | sources("scripts"), LONGER) == []


def test_sizes_complain():
    long_file = {"alloy/sim.py": "x = 1\n" * (FILE_LINES + 1)}
    long_function = {"alloy/sim.py": "def f():\n" + "    x = 1\n" * FUNCTION_LINES}
    assert len(size_complaints(long_file, {})) == 1
    assert len(size_complaints(long_function, {})) == 1
    assert size_complaints(long_function, {"alloy/sim.py::f": "one table"}) == []
    assert len(size_complaints({"alloy/sim.py": ""}, {"alloy/sim.py::f": "gone"})) == 1


def sources(folder: str = "alloy") -> dict[str, str]:
    """Source text of every module under a folder, by path relative to the repository."""
    paths = sorted((ROOT / folder).rglob("*.py"))
    return {path.relative_to(ROOT).as_posix(): path.read_text() for path in paths}


def ladder_complaints(tree: dict[str, str]) -> list[str]:
    complaints, graph = [], {}
    for path, text in tree.items():
        place = place_of(path)
        if place is None:
            complaints.append(f"{path} has no line in LADDER; add it there and to docs/design.md")
            continue
        targets = {t for t in imported_files(path, text, tree) if t != path}
        graph[path] = targets
        for target in sorted(targets):
            other = place_of(target)
            if other is not None and other != place and other[0] >= place[0]:
                complaints.append(f"{path} imports {target}, which does not stand below it")
    unit_edges = {p: {t for t in ts if place_of(t) == place_of(p)} for p, ts in graph.items()}
    return complaints + cycle_complaints(unit_edges)


def place_of(path: str) -> tuple[int, int] | None:
    """Line and unit of a file: the first pattern that matches, more specific lines come first."""
    for line, units in enumerate(LADDER):
        for unit, patterns in enumerate(units):
            if matches(path, patterns):
                return line, unit
    return None


def cycle_complaints(graph: dict[str, set[str]]) -> list[str]:
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return [f"import cycle: {' -> '.join(error.args[1])}"]
    return []


def home_complaints(tree: dict[str, str]) -> list[str]:
    complaints = []
    for path, text in tree.items():
        for name in sorted({n.split(".")[0] for n in imported_names(path, text)}):
            if name in HOMES and not matches(path, HOMES[name]):
                complaints.append(f"{path} imports {name}; only {HOMES[name]} may")
            if any(name in names and matches(path, [p]) for p, names in STRANGERS.items()):
                complaints.append(f"{path} imports {name}, of which it knows nothing")
    return complaints


def print_complaints(tree: dict[str, str]) -> list[str]:
    return [
        f"{path}:{node.lineno} prints; use logging or warnings"
        for path, text in tree.items()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "print"
    ]


def hot_complaints(tree: dict[str, str]) -> list[str]:
    return [
        f"{path}:{node.lineno} calls {node.func.attr}; a step has no host sync and no vmap"
        for path, text in tree.items()
        if matches(path, HOT) and not matches(path, COLD)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in HOT_FORBIDDEN
    ]


def size_complaints(tree: dict[str, str], longer: dict[str, str]) -> list[str]:
    found = {}
    for path, text in tree.items():
        if (lines := len(text.splitlines())) > FILE_LINES:
            found[path] = f"{path}: {lines} lines, at most {FILE_LINES}"
        limit = KERNEL_LINES if path.startswith("alloy/ops/triton/") else FUNCTION_LINES
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > limit:
                    key = f"{path}::{node.name}"
                    found[key] = f"{key}: {lines} lines, at most {limit}"
    stale = [f"LONGER excuses {key}, which needs no excuse" for key in longer if key not in found]
    return [text for key, text in found.items() if key not in longer] + stale


def matches(path: str, patterns: list[str]) -> bool:
    return any(fnmatch.fnmatch(path, pattern) for pattern in patterns)


def imported_files(path: str, text: str, tree: dict[str, str]) -> Iterator[str]:
    """Files of the tree that a module imports, each dotted name taken as far as files exist.

    `from alloy.physics import forward` is an import of forward.py, not of the package's facade.
    """
    for name in imported_names(path, text):
        parts = name.split(".")
        for end in range(len(parts), 0, -1):
            stem = "/".join(parts[:end])
            target = next((f for f in (f"{stem}.py", f"{stem}/__init__.py") if f in tree), None)
            if target:
                yield target
                break


def imported_names(path: str, text: str) -> Iterator[str]:
    """Absolute dotted names that a module imports at run time, inside functions too."""
    module = ast.parse(text)
    for_types = {
        id(inner)
        for node in ast.walk(module)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for part in node.body
        for inner in ast.walk(part)
    }
    package = list(Path(path).parent.parts)
    for node in ast.walk(module):
        if id(node) in for_types:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield from (f"{base}.{alias.name}" for alias in node.names)
