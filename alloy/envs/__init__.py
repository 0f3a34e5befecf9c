"""Vector environments: tasks in scenes, with Gymnasium's vector API, in many worlds at once."""

from alloy.envs import checks, observations, resets, robots
from alloy.envs.actions_spec import ActionTerm
from alloy.envs.registry import list, make, register, register_gymnasium
from alloy.envs.rendering import RenderOptions
from alloy.envs.single import SingleEnv
from alloy.envs.task import Task
from alloy.envs.vector_env import VectorEnv

__all__ = [
    "ActionTerm",
    "RenderOptions",
    "SingleEnv",
    "Task",
    "VectorEnv",
    "checks",
    "list",
    "make",
    "observations",
    "register",
    "register_gymnasium",
    "resets",
    "robots",
]
