"""Recipes: there is one for every environment, they survive a file, and refuse nonsense."""

import json

import pytest

import alloy
from alloy.envs.recipes import RECIPES, Recipe, recipe


def test_every_recipe_is_of_an_environment_and_survives_a_file():
    assert set(RECIPES) <= set(alloy.envs.list())
    for env_id in alloy.envs.list():
        mine = recipe(env_id)
        assert mine.env_id == env_id
        assert Recipe.from_dict(json.loads(json.dumps(mine.to_dict()))) == mine


def test_changes_leave_the_recipe_alone():
    mine = recipe("Ant-v5")
    assert mine.changed(worlds=8, actor=[4]).actor == (4,)
    assert mine == recipe("Ant-v5")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"worlds": 0}, "worlds must be a whole number"),
        ({"steps": 2.5}, "steps must be a whole number"),
        ({"worlds": 1, "steps": 2}, "4 minibatches"),
        ({"learning_rate": "fast"}, "learning_rate must be a number from"),
        ({"gamma": 1.5}, "gamma must be a number from 0.0 to 1.0, not 1.5"),
        ({"actor": 64}, "actor must be a list of widths"),
        ({"activation": "sine"}, "'elu', 'relu'"),
        ({"schedule": "linear"}, "'fixed', 'adaptive'"),
    ],
)
def test_nonsense_is_refused(changes, says):
    with pytest.raises(ValueError, match=says):
        recipe("Ant-v5").changed(**changes)
    with pytest.raises(TypeError, match=r"no 'world'.*'worlds'"):
        recipe("Ant-v5").changed(world=3)
