"""Write docs/support.md: MuJoCo's features, and what becomes of each, from the code itself.

    python scripts/support_table.py            # writes docs/support.md
    python scripts/support_table.py --check    # exits with 1 if that file is out of date

Every row is a small model of features.py: it is handed to the refusals of `alloy.build`, and to the
questions by which the ops choose between a kernel and the reference.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import mujoco
import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

from features import FEATURES  # noqa: E402

from alloy.physics import io, io_refuse  # noqa: E402
from alloy.physics.model import Model  # noqa: E402

HEAD = """# Which of MuJoCo's features are there

`scripts/support_table.py` writes this page from the code: each row is a small model that is built,
or refused by name with what to do instead. `alloy.support_report(model)` says the same of a model
of yours, element by element.

The engine `lanes` compiles the reference's step and so has what `reference` has; a program that is
too large for it, or whose contacts have to be searched for ([collision.md](collision.md)), runs on
the reference, and `sim.engine_report()` says so. The last column is about
GPU kernels: a stage in which a model has something that its kernel does not know runs on the
reference, on the same device; stages that are named there do.
"""


def main() -> int:
    """Write or check the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only say whether it is up to date")
    args = parser.parse_args()
    page, text = ROOT / "docs" / "support.md", table()
    if args.check:
        fresh = page.is_file() and page.read_text() == text
        print("docs/support.md is up to date" if fresh else "run scripts/support_table.py")
        return 0 if fresh else 1
    page.write_text(text)
    return 0


def table() -> str:
    """The page."""
    parts = [HEAD]
    for section, features in FEATURES.items():
        rows = [f"| {name} | {' | '.join(status(text))} |" for name, text in features.items()]
        head = f"## {section.capitalize()}\n\n| feature | reference, lanes | without a kernel |"
        parts.append("\n".join([head, "|---|---|---|", *rows, ""]))
    return "\n".join(parts)


def status(text: str) -> tuple[str, str]:
    """What becomes of a model on the reference, and which stages have no kernel for it."""
    mj = mujoco.MjModel.from_xml_string(text)
    refused = io_refuse.unsupported(mj)
    if refused:
        return f"refused: {refused[0].text.split('; ')[0]}", ""
    stages = without_kernel(io.put_model(mj, dtype=torch.float32))
    return "yes", ", ".join(stages)


def without_kernel(m: Model) -> list[str]:
    """Stages of a model that run on the reference on a GPU, too."""
    from alloy.ops.triton import actuation, constraint, contacts, integrate, passive, sensor

    known = {
        "passive forces": passive.has_kernel(m),
        "contacts": contacts.has_kernel(m),
        "constraint rows": constraint.has_kernel(m.efc),
        "solver": not (m.efc.n_tendon_losses or m.opt.noslip_iterations),
        "actuation": actuation.has_kernel(m),
        "integration": integrate.has_kernel(m),
        "sensors": not m.nsensor or sensor.has_kernel(m.derived["sensor"]),
    }
    return [name for name, has in known.items() if not has]


if __name__ == "__main__":
    sys.exit(main())
