"""Compare corpora of models with MuJoCo C, stage by stage, and write docs/conformance.md.

    python scripts/conformance.py                               # features and Gymnasium's assets
    python scripts/conformance.py --packages FOLDER --write     # every corpus, and the page
    python scripts/conformance.py --packages FOLDER --corpus robosuite --corpus mjlab
    python scripts/conformance.py --folder PATH                 # MJCF files of your own
    python scripts/conformance.py --fast                        # a few models, for the tests

scripts/conformance_corpora.py says how FOLDER is filled. With `--results FILE` a run that was
interrupted goes on where it stopped: models that the file knows are not compared again.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import datetime
import json
import os
import platform
import sys
from pathlib import Path

import mujoco
import torch
from tqdm import tqdm

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

from conformance_compare import BOUNDS, STATES, Result, examine  # noqa: E402
from conformance_corpora import NAMES, PACKAGES, Entry, corpus, folder  # noqa: E402

FAST = ("half_cheetah.xml", "tendon: side site", "actuator: muscle", "contact: plane with box")
RUNS, SOUND = ("equal", "differs"), ("equal", "refused")
VERDICTS = ("equal", "differs", "refused", "too slow", "failed")
HEAD = """# Models beside MuJoCo

Each model is refused by name, or compared from random states in float64: the smooth stages
(1e-9 of the largest entry), contacts as sets (distances and points 1e-6, normals 1e-5),
acceleration and sensors (1e-5, and 300 times what the contacts differ by), MuJoCo's own cost of our
acceleration, which may not be above that of its own by more than 1e-6 of it, and the state after a
step (as the acceleration). What follows from contacts is compared where they agree; of an adhering
body the forces of its actuator are of that kind. A column shows the largest error of all states.

MuJoCo goes to the end here: no tolerance of its solver, and 1e-14 in its search for the contacts of
convex shapes. That search stops at 1e-6 by default, which moves such a contact by up to 1e-4 m; a
sphere on an ellipsoid then differs by 2e-5 in the acceleration, and by 1e-7 if the search goes on.
Even then the normals of round shapes are known to 1e-7 or so only: of two ellipsoids, MuJoCo's was
off by 1e-6 at 1e-12, and ours by 1e-13 from the solution of the equations. Contacts that jump in
MuJoCo itself when the state, or the pose of a geom in its body, changes by 1e-7 are decided by its
rounding; a note says "(wavers)". "(ends early)" is a single contact along whose normal here the
geoms overlap less than along MuJoCo's, by their support functions: its search ended before.
Its reset of a state whose acceleration is beyond 1e10 is off: a step there would forget the state.

On height fields "(ends early)" says that MuJoCo's contacts are ours once it has a margin of 1e-6 m,
and "(sunk)" that they are, but for the rule by which those of a shape whose centre is below the
surface push it upwards here; with that rule off they are the same. "(full)": more prisms touch than
there are slots, and those that have one are all among MuJoCo's ([collision.md](collision.md)).

The fingers of `jaco_three_finger_gripper` have their centre of mass on their hinge: MuJoCo takes
them for bodies that no force moves (body_invweight0 is 1e-30), and contacts push with 1e17 N
against each other. How hard, the least R decides, which MuJoCo takes before a pyramid's scale and
Alloy after it; the acceleration is equal, and what sums those forces to a step is rounding.

"Runs" counts the models that are built and stepped, "equal or refused" those that are right or
rejected with a reason. A file that is but a part of a model, so that MuJoCo does not read it or
nothing in it moves, is none of them; those are listed at the end.
"""


def page(results: list[Result], about: str = "") -> str:
    """The results as Markdown."""
    groups = list(dict.fromkeys(r.corpus for r in results))
    lines = [HEAD, about, ""] if about else [HEAD]
    lines += [
        f"| corpus | models | {' | '.join(VERDICTS)} | runs | equal or refused |", "|---" * 9 + "|"
    ]  # fmt: skip
    for group in [*groups, "total"]:
        some = [r for r in results if group in (r.corpus, "total") and r.verdict != "no model"]
        lines.append(f"| {group} | {counts(some)} |")
    columns = " | ".join(BOUNDS)
    for group in groups:
        lines += ["", f"## {group[0].upper()}{group[1:]}", ""]
        lines += [f"| model | verdict | {columns} | states | |", "|---" * (len(BOUNDS) + 4) + "|"]
        lines += [row(r) for r in results if r.corpus == group and r.verdict != "no model"]
    parts = [r for r in results if r.verdict == "no model"]
    if parts:
        lines += ["", "## Not models by themselves", "", "| corpus | file | why |", "|---|---|---|"]
        lines += [f"| {r.corpus} | {r.name} | {r.note} |" for r in parts]
    return "\n".join(lines) + "\n"


def counts(results: list[Result]) -> str:
    """How many models came to what, and the two shares."""
    found = collections.Counter(r.verdict for r in results)
    shares = (sum(found[v] for v in some) / max(1, len(results)) for some in (RUNS, SOUND))
    numbers = [len(results), *(found[v] for v in VERDICTS), *(f"{s:.1%}" for s in shares)]
    return " | ".join(map(str, numbers))


def row(r: Result) -> str:
    """One model as a row of the table."""
    errors = [f"{r.errors[what]:.0e}" if r.errors else "" for what in BOUNDS]
    states = r.states if r.errors else ""
    return f"| {r.name} | {r.verdict} | {' | '.join(errors)} | {states} | {r.note} |"


def circumstances(args: argparse.Namespace, went_on: bool) -> str:
    """When, where and how, for the page."""
    flags = ["--packages FOLDER"] if args.packages else []
    flags += ["--results FILE"] if args.results else []
    flags += [f"--corpus {name!r}" for name in args.corpus]
    command = " ".join(["python scripts/conformance.py", *flags, "--write"])
    when = datetime.datetime.now(datetime.timezone.utc).date()
    machine = f"{platform.machine()}, {os.cpu_count()} cores"
    versions = f"MuJoCo {mujoco.__version__}, torch {torch.__version__}"
    kept = "\nEarlier results in FILE were kept; how many states each had, its row says."
    return f"Measured on {when}, {machine}, {versions}, by\n`{command}`.{kept * went_on}"


def chosen(args: argparse.Namespace) -> list[Entry]:
    """The models that the arguments ask for."""
    names = args.corpus or ([] if args.folder else [*NAMES] if args.packages else [*NAMES[:2]])
    entries = [e for name in names for e in corpus(name, args.packages)]
    entries += [e for path in args.folder for e in folder(path)]
    return [e for e in entries if e.name in FAST] if args.fast else entries


def arguments() -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--packages", type=Path, help=f"where {', '.join(PACKAGES)} are")
    parser.add_argument("--corpus", action="append", default=[], choices=NAMES, help="only these")
    parser.add_argument("--folder", action="append", default=[], type=Path, help="MJCF files")
    parser.add_argument(
        "--seconds", type=float, default=300, help="of the processor, for one model"
    )
    parser.add_argument("--states", type=int, default=STATES, help="random states of a model")
    parser.add_argument("--results", type=Path, help="a file of results, to go on with and add to")
    parser.add_argument("--write", action="store_true", help="write docs/conformance.md")
    parser.add_argument("--fast", action="store_true", help="a few models; nothing is written")
    return parser.parse_args()


def earlier(path: Path | None) -> dict[tuple[str, str], Result]:
    """The results of a file, if there is one."""
    if path is None or not path.exists():
        return {}
    found = (Result(**json.loads(line)) for line in path.read_text().splitlines())
    return {(r.corpus, r.name): r for r in found}


def main() -> int:
    """Run the corpora; exit with 1 if --fast finds a model that is not as it should be."""
    args = arguments()
    results = []
    known = earlier(args.results)
    with tqdm(chosen(args), unit="model", leave=False, disable=None) as bar:
        for entry in bar:
            bar.set_postfix_str(f"{entry.corpus} {entry.name}")
            result = known.get((entry.corpus, entry.name))
            if result is None:
                model = (entry.corpus, entry.name, entry.source)
                result = examine(*model, args.seconds, args.states)
                tqdm.write(row(result))
                sys.stdout.flush()
                if args.results:
                    with args.results.open("a") as file:
                        file.write(json.dumps(dataclasses.asdict(result)) + "\n")
            results.append(result)
    if args.fast:
        return int(len(results) != len(FAST) or any(r.verdict != "equal" for r in results))
    if args.write:
        about = circumstances(args, bool(known))
        (ROOT / "docs" / "conformance.md").write_text(page(results, about))
    for group in [*dict.fromkeys(r.corpus for r in results), "total"]:
        some = [r for r in results if group in (r.corpus, "total") and r.verdict != "no model"]
        print(f"{group}: {counts(some)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
