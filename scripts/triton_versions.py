"""Do the kernels work in every Triton release that Alloy supports? No GPU is needed.

    python scripts/triton_versions.py                       # 3.6 to 3.9, half an hour
    python scripts/triton_versions.py --versions 3.6 --tests tests/ops/triton/test_collide.py
    python scripts/triton_versions.py --write docs/gpu.md   # the table between the two markers

Each release is put, by pip, into a folder of its own that comes first on Python's path; nothing
that is installed changes. The tests of the kernels run in its interpreter, then all kernels of a
model are compiled ahead of time by scripts/triton_report.py. Exit status 1 if anything failed.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from triton_report import put_between

ROOT = Path(__file__).parent.parent
VERSIONS = ("3.6", "3.7", "3.8", "3.9")
# what a release needs beside itself: the interpreter of 3.6 makes scalars of arrays (n,), which
# NumPy allows until 2.3
BESIDE = {"3.6": ["numpy<2.4"]}
BEGIN, END = "<!-- versions -->", "<!-- end of versions -->"


@dataclass
class Outcome:
    """What one release did."""

    version: str
    tests: str
    compiled: str
    good: bool


def install(version: str, into: Path) -> Path:
    """A folder with a release, installed unless it is there already."""
    folder = into / f"triton-{version}"
    if not (folder / "triton").exists():
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps",
                   "--disable-pip-version-check", "--target", str(folder)]  # fmt: skip
        subprocess.run([*command, f"triton=={version}.*", *BESIDE.get(version, [])], check=True)
    return folder


def python(arguments: list[str], folder: Path, cache: Path) -> subprocess.CompletedProcess:
    """Run Python with a release first on its path."""
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    environment |= {"PYTHONPATH": f"{folder}{os.pathsep}{ROOT}", "TRITON_CACHE_DIR": str(cache)}
    return subprocess.run([sys.executable, *arguments], cwd=ROOT, env=environment,
                          capture_output=True, text=True)  # fmt: skip


def try_release(version: str, into: Path, tests: list[str], model: str, target: str) -> Outcome:
    """Install a release, run the tests, compile."""
    folder, cache = install(version, into), into / f"cache-{version}"
    found = python(["-c", "import triton; print(triton.__version__)"], folder, cache).stdout.strip()
    if not found.startswith(version):
        raise SystemExit(f"Triton {version} is not first on Python's path: {found!r} is")
    quiet = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-W", "ignore"]
    ran = python(["-m", "pytest", *quiet, "--deselect", COMPILE_TEST, *tests], folder, cache)
    summary = ran.stdout.strip().splitlines()[-1] if ran.stdout.strip() else "no output"
    report = ["scripts/triton_report.py", "--models", model, "--targets", target, "--check"]
    compiled = python(report, folder, cache)
    for done in (ran, compiled):
        if done.returncode:
            print(done.stdout[-3000:], done.stderr[-3000:], sep="\n")
    costs = re.findall(r"^\| .* \| \d+ \| (\d+) \| \d+ \| [\d.]+ \|$", compiled.stdout, re.M)
    said = f"{len(costs)} kernels, at most {max(map(int, costs), default=0)} bytes spilled"
    said = said if compiled.returncode == 0 else "failed"
    return Outcome(found, re.sub(r" in .*", "", summary.strip("= ")), said,
                   not (ran.returncode or compiled.returncode))  # fmt: skip


COMPILE_TEST = "tests/ops/triton/test_compile.py"  # the report does the same


def main() -> None:
    """Try every release, print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--versions", nargs="+", default=list(VERSIONS))
    parser.add_argument("--tests", nargs="+", default=["tests/ops/triton"])
    parser.add_argument("--model", default="HalfCheetah")
    parser.add_argument("--target", default="90")
    parser.add_argument("--into", type=Path, help="keep the releases in this folder")
    parser.add_argument("--write", type=Path, help="put the table between the file's markers")
    args = parser.parse_args()
    outcomes = []
    with tempfile.TemporaryDirectory() as throw_away:
        into = (args.into or Path(throw_away)).resolve()
        for version in args.versions:
            outcomes.append(try_release(version, into, args.tests, args.model, args.target))
            print(outcomes[-1], flush=True)
    table = [
        f"{time.strftime('%Y-%m-%d')}, Python {sys.version.split()[0]}, `{' '.join(args.tests)}`.",
        "",
        f"| Triton | tests in its interpreter | {args.model} compiled for sm_{args.target} |",
        "| --- | --- | --- |",
        *(f"| {o.version} | {o.tests} | {o.compiled} |" for o in outcomes),
    ]
    print("\n".join(table))
    if args.write:
        put_between(args.write, BEGIN, END, table)
    raise SystemExit(0 if all(o.good for o in outcomes) else 1)


if __name__ == "__main__":
    main()
