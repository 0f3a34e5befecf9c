"""The README's programs run as they stand and print what stands below them."""

import contextlib
import io
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
PROGRAM = re.compile(r"```python\n(.*?)```(?:\n+```text\n(.*?)```)?", re.DOTALL)
PROGRAMS = [(match[1], match[2]) for match in PROGRAM.finditer(README)]


@pytest.mark.parametrize(("program", "printed"), PROGRAMS)
def test_program_prints_what_the_readme_says(program, printed):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(program, "README.md", "exec"), {"__name__": "readme"})
    assert out.getvalue() == (printed or "")


def test_readme_shows_both_programs():
    assert len(PROGRAMS) >= 2
    assert sum(printed is not None for _, printed in PROGRAMS) >= 2


def test_commands_and_files_of_the_readme_exist():
    targets = re.findall(r"^(\w[\w-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    commands = re.findall(r"(?:`|^    )make ([a-z][a-z-]*)", README, re.MULTILINE)
    assert {"demo", "test"} <= set(commands)
    assert set(commands) <= set(targets)
    files = re.findall(r"\]\(([\w./-]+)\)|\b((?:scripts|docs|constraints)/[\w./-]+\w)", README)
    for name in filter(None, (name for pair in files for name in pair)):
        assert (ROOT / name).exists(), name
