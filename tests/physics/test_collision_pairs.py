"""Which pairs of shapes a model may have, and what becomes of MuJoCo's flags about them."""

import itertools

import mujoco
import pytest
import torch

from alloy.physics import io

SIZES = {
    "sphere": ".1", "capsule": ".1 .1", "ellipsoid": ".1 .12 .14", "cylinder": ".1 .1",
    "box": ".1 .1 .1",
}  # fmt: skip


def model(one, two, flags=""):
    geoms = [
        f'<geom name="{n}" type="{t}" size="{SIZES[t]}"/>' for n, t in (("a", one), ("b", two))
    ]
    return mujoco.MjModel.from_xml_string(
        f"<mujoco><option><flag {flags}/></option><worldbody>{geoms[0]}"
        f"<body><freejoint/>{geoms[1]}</body></worldbody></mujoco>"
    )


@pytest.mark.parametrize(("one", "two"), list(itertools.combinations_with_replacement(SIZES, 2)))
def test_every_pair_of_shapes_has_a_collider(one, two):
    assert io.put_model(model(one, two)).ncon


@pytest.mark.parametrize(
    ("one", "two", "flag", "refused"),
    [
        ("capsule", "cylinder", "nativeccd", True),
        ("capsule", "cylinder", "multiccd", True),
        ("sphere", "ellipsoid", "nativeccd", True),
        ("sphere", "ellipsoid", "multiccd", False),
        ("capsule", "ellipsoid", "nativeccd", True),
        ("cylinder", "box", "nativeccd", True),
        ("cylinder", "box", "multiccd", True),
        ("ellipsoid", "cylinder", "multiccd", False),
        ("capsule", "box", "nativeccd", False),
        ("capsule", "box", "multiccd", False),
    ],
)
def test_another_convex_solver_is_refused_where_it_would_run(one, two, flag, refused):
    mj = model(one, two, f'{flag}="disable"')
    if refused:
        with pytest.raises(NotImplementedError, match=f"flag {flag}='disable': leave it out"):
            io.put_model(mj)
    else:
        assert io.put_model(mj, dtype=torch.float64).ncon
