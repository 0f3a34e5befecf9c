"""Recipes by environment: one file for each that has been tuned, and a default for the others."""

from alloy.envs.recipes.go2 import GO2
from alloy.envs.recipes.gripper_lift import GRIPPER_LIFT
from alloy.envs.recipes.half_cheetah import HALF_CHEETAH
from alloy.envs.recipes.recipe import ACTIVATIONS, SCHEDULES, Recipe

__all__ = ["ACTIVATIONS", "RECIPES", "SCHEDULES", "Recipe", "recipe"]

RECIPES = {recipe.env_id: recipe for recipe in (GO2, GRIPPER_LIFT, HALF_CHEETAH)}


def recipe(env_id: str) -> Recipe:
    """The recipe of an environment; one that nobody has tuned where there is none of its own."""
    return RECIPES.get(env_id, Recipe(env_id))
