"""Kinematics, inertia, mass matrix and bias against MuJoCo, stage by stage in float64."""

import mujoco
import numpy as np
import pytest
import torch

from alloy.physics import io, smooth
from tests.physics.fixture import GYM_MODELS, assert_close, fixture
from tests.physics.models import EQUALITIES, JOINTS, LIMITS

MODELS = (*GYM_MODELS, JOINTS, LIMITS, EQUALITIES)
KINEMATICS = (
    "xpos xquat xmat xipos ximat xanchor geom_xpos geom_xmat site_xpos site_xmat subtree_com "
    "cinert cdof"
).split()


def name(source: str) -> str:
    return source if source.endswith(".xml") else source.split('"')[1][:8].strip() or "text"


@pytest.mark.parametrize("source", MODELS, ids=name)
@pytest.mark.parametrize("seed", range(3))
def test_smooth_stages_equal_mujoco(source, seed):
    f = fixture(source, seed)
    d = smooth.kinematics(f.m, f.d)
    for field in KINEMATICS:
        assert_close(getattr(d, field), getattr(f.mjd, field), field)
    d = smooth.mass_matrix(f.m, d)
    mass = np.zeros((f.mj.nv, f.mj.nv))
    mujoco.mj_fullM(f.mj, f.mjd, mass)
    assert_close(d.M, mass, "M")
    d = smooth.velocity(f.m, d)
    for field in ("cvel", "cdof_dot", "qfrc_bias"):
        assert_close(getattr(d, field), getattr(f.mjd, field), field)
    expected = f.mjd.qfrc_smooth - f.mjd.qfrc_passive - f.mjd.qfrc_actuator + f.mjd.qfrc_bias
    assert_close(smooth.applied_force(f.m, d), expected, "applied force", 1e-8)


def test_quaternions_are_used_normalised_and_worlds_do_not_mix():
    f = fixture(JOINTS)
    scaled = f.d.qpos.clone()
    scaled[:, 3:7] *= 3
    scaled[:, 7:11] *= 0.2
    worlds = {name: getattr(f.d, name).expand(3, *getattr(f.d, name).shape[1:]) for name in (
        "qvel", "mocap_pos", "mocap_quat")}  # fmt: skip
    other = f.d.qpos + 0.3
    d = smooth.kinematics(
        f.m, type(f.d)(**worlds, qpos=torch.cat([other, scaled, torch.full_like(other, torch.nan)]))
    )
    torch.testing.assert_close(d.xpos[1], smooth.kinematics(f.m, f.d).xpos[0], rtol=0, atol=1e-12)
    assert torch.isnan(d.xpos[2]).any() and torch.isfinite(d.xpos[:2]).all()


def test_float32_keeps_its_dtype():
    f = fixture("ant.xml")
    m32 = io.put_model(f.mj)
    d32 = io.put_data(m32, f.mj, f.mjd)
    out = smooth.velocity(m32, smooth.mass_matrix(m32, smooth.kinematics(m32, d32)))
    assert out.M.dtype == out.qfrc_bias.dtype == torch.float32
    assert_close(out.qfrc_bias, f.mjd.qfrc_bias, "qfrc_bias", 1e-5)
