"""The cache on disk: hits without tracing, damage, read-only folders, two processes at once."""

import os
import subprocess
import sys
import warnings

import pytest
import torch

from alloy import lanes
from alloy.lanes import cache as store

X = torch.linspace(-1, 1, 21)[:, None]


def wave(x):
    return torch.sin(x) * 2 + x.exp()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("ALLOY_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(store, "_warned", set())
    return tmp_path / "cache"


def compiled(**kw):
    return lanes.compile(wave, (X,), **kw)


def check(c):
    torch.testing.assert_close(c(X), wave(X))


def test_the_same_code_is_found_again(folder):
    first, second = compiled(), compiled()
    assert not first.report()["cache_hit"]
    assert second.report()["cache_hit"]
    check(first)
    check(second)
    assert len(list(folder.glob("*.lanes"))) == 1


def test_other_code_or_options_are_not(folder):
    compiled()
    other = lanes.compile(lambda x: x * 3, (X,))
    assert not other.report()["cache_hit"]
    torch.testing.assert_close(other(X), X * 3)
    assert not compiled(width=2 * other.width).report()["cache_hit"]


def test_a_key_skips_tracing(folder):
    compiled(key="wave 1")

    def never(x):
        raise AssertionError("traced")

    c = lanes.compile(never, (X,), key="wave 1", name="wave")
    assert c.report()["cache_hit"]
    check(c)
    with pytest.raises(AssertionError, match="traced"):
        lanes.compile(never, (X,), key="wave 2", name="wave")
    with pytest.raises(AssertionError, match="traced"):  # another shape is another program
        lanes.compile(never, (X.expand(21, 2),), key="wave 1", name="wave")


@pytest.mark.parametrize("damage", ["cut", "flip", "empty", "text"])
def test_damage_is_noticed_and_mended(folder, damage):
    compiled(key="k")
    for path in folder.glob("*.lanes"):
        data = bytearray(path.read_bytes())
        if damage == "cut":
            data = data[: len(data) // 2]
        elif damage == "flip":
            data[-100] ^= 0xFF
        elif damage == "empty":
            data = bytearray()
        else:
            data = bytearray(b"not an entry at all")
        path.write_bytes(data)
    with pytest.warns(RuntimeWarning, match="damaged entry"):
        c = compiled(key="k")
    assert not c.report()["cache_hit"]
    check(c)
    assert compiled(key="k").report()["cache_hit"]


def test_a_folder_that_cannot_be_written(folder, monkeypatch):
    blocked = folder.parent / "file"
    blocked.write_text("a file where the folder should be")
    monkeypatch.setenv("ALLOY_CACHE_DIR", str(blocked / "below"))
    with pytest.warns(RuntimeWarning, match="Set ALLOY_CACHE_DIR"):
        c = compiled(key="k")
    check(c)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # said once
        check(compiled(key="k"))


def test_a_full_disk(folder, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(store.os, "replace", full)
    with pytest.warns(RuntimeWarning, match="cannot be written"):
        check(compiled())
    assert list(folder.iterdir()) == []


def test_the_least_recently_used_go_first(folder, monkeypatch):
    compiled(key="a")
    size = sum(p.stat().st_size for p in folder.iterdir())
    for i, path in enumerate(sorted(folder.iterdir())):
        os.utime(path, (i, i))
    monkeypatch.setenv("ALLOY_CACHE_BYTES", str(size))
    lanes.compile(lambda x: x.cos() * 2 + x.exp(), (X,))
    left = sum(p.stat().st_size for p in folder.iterdir())
    assert 0 < left <= size
    assert lanes.compile(lambda x: x.cos() * 2 + x.exp(), (X,)).report()["cache_hit"]


def test_no_cache(folder):
    compiled(cache=False)
    assert not folder.exists()


def test_two_processes_at_once(folder):
    code = (
        "import torch; from alloy import lanes; x = torch.linspace(-1, 1, 21)[:, None]; "
        "c = lanes.compile(lambda x: torch.sin(x) * 2 + x.exp(), (x,), key='both'); "
        "torch.testing.assert_close(c(x), torch.sin(x) * 2 + x.exp())"
    )
    runs = [subprocess.Popen([sys.executable, "-W", "error::RuntimeWarning", "-c", code])
            for _ in range(2)]  # fmt: skip
    assert [r.wait(timeout=120) for r in runs] == [0, 0]
    assert not list(folder.glob("*.tmp"))
    name = next(iter(folder.glob("*.lanes")))
    assert store.read(name.stem) is not None


def test_what_was_over_budget_is_remembered_and_not_traced_again(folder):
    traced = []

    def program(x):
        traced.append(1)
        return x.sin().cumsum(-1)

    x = torch.randn(3, 20)
    for _ in range(2):
        with pytest.raises(lanes.OverBudget, match="over its budget of 4"):
            lanes.compile(program, (x,), key="long", budget=4)
    assert len(traced) == 1
    torch.testing.assert_close(
        lanes.compile(program, (x,), key="long", budget=10**5)(x), program(x)
    )
    with pytest.raises(lanes.OverBudget):
        lanes.compile(program, (x,), key="long", budget=4)
