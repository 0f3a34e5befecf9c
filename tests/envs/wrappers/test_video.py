"""A picture of a policy, and what is said where none can be drawn."""

import argparse

import imageio.v3 as iio
import numpy as np
import pytest
import torch

from alloy.envs import VectorEnv
from alloy.envs.recipes import Recipe
from alloy.envs.wrappers import train, video
from alloy.envs.wrappers.policy import Policy
from tests.envs import toy


def test_draws_in_the_time_of_the_simulation(tmp_path, monkeypatch):
    env = toy.env(1, toy.always_three())  # 100 steps a second
    shades = iter(range(0, 250, 10))
    monkeypatch.setattr(env, "render", lambda: (np.full((8, 6, 3), next(shades), np.uint8),))
    file = video.record(lambda obs: torch.zeros(1, 1), env, tmp_path / "a/b.gif", seed=0, seconds=1)
    frames = iio.imread(file)
    assert frames.shape == (25, 8, 6, 3)
    assert iio.immeta(file)["duration"] == 40


def test_says_so_where_there_is_no_opengl(tmp_path, monkeypatch, caplog):
    def render(self):
        raise RuntimeError("rendering needs OpenGL, and MuJoCo found none")

    monkeypatch.setattr(VectorEnv, "render", render)
    args = argparse.Namespace(engine="reference", device="cpu")
    recipe = Recipe("InvertedPendulum-v5")
    with caplog.at_level("WARNING"):
        train.draw(recipe, Policy([4, 1], "elu"), args, tmp_path / "policy.gif")
    assert "no picture was drawn: rendering needs OpenGL" in caplog.text
    assert not (tmp_path / "policy.gif").exists()


@pytest.mark.parametrize("bar", [None, True, False])
def test_the_evaluation_in_a_line(bar):
    result = {"episodes": 4, "return": {"mean": 2.5, "stderr": 0.25}, "bar": bar}
    share = {"rate": 0.75, "wilson95": [0.3, 0.95]}
    said = train.said(Recipe("Ant-v5"), result | {"success": share})
    assert "mean return 2.50 +- 0.25" in said
    assert "success 75.0% (95 % interval 30.0% to 95.0%)" in said
    assert said.endswith({None: ")", True: "the bar is reached", False: "below the bar"}[bar])
