"""The project around the code: the cases page, the scripts, and life without triton."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
CASES = "01 02 03 04 06 07 08 10 11 13 14 16 17 18 20 21 22 23 24 26 27 28 30 31 32 34 35 36 37 39"
CASES = [f"C{number}" for number in f"{CASES} 40 42 44 45 46 48 50 51".split()]
TEST = re.compile(r"(tests/[\w/]+\.py)::(test_\w+)")


def test_every_case_has_a_row():
    assert list(case_rows()) == CASES


def test_every_case_names_its_tests_or_what_it_waits_for():
    for case, (_about, state, where) in case_rows().items():
        assert state in ("in", "partly", "waits"), case
        if state != "waits":
            assert TEST.search(where), f"{case} is {state} but names no test"
        if state != "in":
            assert "Waits for" in where, f"{case} does not say what it waits for"


def test_tests_named_by_the_cases_page_exist():
    for case, (*_, where) in case_rows().items():
        for file, name in TEST.findall(where):
            text = (ROOT / file).read_text() if (ROOT / file).is_file() else ""
            assert f"def {name}(" in text, f"{case}: {file} has no {name}"


def test_c35_whole_path_works_without_triton():
    program = (
        "import sys\n"
        "sys.modules['triton'] = None  # an import of it now raises ImportError\n"
        "import alloy\n"
        "env = alloy.envs.make('HalfCheetah-v5', num_envs=2)\n"
        "env.reset(seed=0)\n"
        "print(env.step(env.action_space.sample())[0].shape)\n"
    )
    assert run("-c", program).stdout.strip() == "torch.Size([2, 17])"


def test_demo_prints_and_draws_or_says_how(tmp_path):
    done = run("scripts/demo.py", "--worlds", "2", "--steps", "3", "--out", str(tmp_path))
    assert done.stdout.count("env-steps/s") == 2
    assert "observation (2, 22)" in done.stdout
    assert "observation (2, 17)" in done.stdout
    pictures = len(list(tmp_path.glob("*.png")))
    assert pictures == 2 or "apt-get install" in done.stdout


def test_bench_reports_medians_beside_rollout():
    args = ("--worlds", "2", "--steps", "2", "--threads", "1", "--json")
    result = json.loads(run("scripts/bench.py", "HalfCheetah-v5", *args).stdout)
    assert [row["what"] for row in result["rows"]] == ["physics", "environment"]
    for row in result["rows"]:
        assert len(row["seconds"]) == len(row["mujoco_seconds"]) == 5
        assert row["steps_per_s"] == 4 / sorted(row["seconds"])[2]


def test_bench_prints_nothing_when_its_check_fails():
    args = ("--worlds", "2", "--steps", "2", "--what", "physics", "--tolerance", "0")
    done = run("scripts/bench.py", "HalfCheetah-v5", *args, code=1)
    assert done.stdout == ""
    assert "differs from MuJoCo" in done.stderr


def test_bench_refuses_unknown_targets_and_too_few_repeats():
    done = run("scripts/bench.py", "NoSuchRobot-v0", code=2)
    assert "HalfCheetah-v5" in done.stderr
    assert "at least 5" in run("scripts/bench.py", "--repeats", "3", code=2).stderr


def case_rows() -> dict[str, tuple[str, str, str]]:
    """Rows of the table in docs/cases.md: case -> what it is about, its state, tests or reason."""
    rows = {}
    for line in (ROOT / "docs/cases.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("| ").split(" | ")]
        if re.fullmatch(r"C\d\d", cells[0]):
            assert len(cells) == 4, line
            assert cells[0] not in rows, line
            rows[cells[0]] = tuple(cells[1:])
    return rows


def run(*args: str, code: int = 0) -> subprocess.CompletedProcess:
    """A Python process in the repository's root that ends with the given code."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, *args],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == code, done.stderr
    return done
