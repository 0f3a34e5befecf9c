"""Environments by id: `make`, `list`, and their registration with Gymnasium."""

from __future__ import annotations

import builtins
import inspect
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import gymnasium as gym

from alloy.envs.ant import ant
from alloy.envs.gripper_lift import gripper_lift
from alloy.envs.half_cheetah import half_cheetah
from alloy.envs.hopper import hopper
from alloy.envs.humanoid import humanoid
from alloy.envs.humanoid_standup import humanoid_standup
from alloy.envs.inverted_double_pendulum import inverted_double_pendulum
from alloy.envs.inverted_pendulum import inverted_pendulum
from alloy.envs.loco import go2_velocity_task
from alloy.envs.pusher import pusher
from alloy.envs.reacher import reacher
from alloy.envs.rendering import RenderOptions
from alloy.envs.single import SingleEnv
from alloy.envs.swimmer import swimmer
from alloy.envs.task import Task
from alloy.envs.vector_env import VectorEnv
from alloy.envs.walker2d import walker2d
from alloy.scene_checks import suggestion

Factory = Callable[..., tuple[Any, Task]]
NAMESPACE = "alloy"

_FACTORIES: dict[str, Factory] = {}


def register(env_id: str, factory: Factory) -> None:
    """Make an environment known by an id such as "Name-v0".

    Args:
        env_id: the id.
        factory: function of keyword arguments that returns (scene, task).

    Raises:
        ValueError: the id is taken or not of the form name-v0.
    """
    if env_id in _FACTORIES:
        raise ValueError(f"environment {env_id!r} is registered already")
    if gym.envs.registration.parse_env_id(env_id)[2] is None:
        raise ValueError(f"environment id {env_id!r} needs a version, such as '{env_id}-v0'")
    _FACTORIES[env_id] = factory


def list() -> builtins.list[str]:
    """Ids of the environments that `make` knows."""
    return sorted(_FACTORIES)


def make(env_id: str, num_envs: int = 1, **kwargs: Any) -> VectorEnv:
    """An environment by id, in many worlds.

    Args:
        env_id: one of `list()`, with or without "alloy/" before it.
        num_envs: number of worlds.
        **kwargs: arguments of `VectorEnv`, of the environment's own factory (`half_cheetah`, ...),
            of `RenderOptions`, and `max_episode_steps`, which replaces the task's time limit.

    Raises:
        ValueError: no environment of that id.
        TypeError: an argument that none of them has; with near matches.
    """
    name = env_id.removeprefix(f"{NAMESPACE}/")
    if name not in _FACTORIES:
        hint = suggestion(name, list())
        raise ValueError(f"environment {env_id!r} is not known{hint} There is {list()}.")
    own, env, render, limit = _sort(name, kwargs)
    scene, task = _FACTORIES[name](**own)
    if limit is not ...:
        task = replace(task, max_steps=limit)
    return VectorEnv(scene, task, num_envs, render=RenderOptions(**render), **env)


def _sort(name: str, kwargs: dict[str, Any]) -> tuple[dict, dict, dict, Any]:
    """Keyword arguments by whom they are for: factory, VectorEnv, pictures, time limit."""
    own = set(inspect.signature(_FACTORIES[name]).parameters)
    env = set(inspect.signature(VectorEnv).parameters) - {
        "scene",
        "task",
        "worlds",
        "num_envs",
        "render",
    }
    pictures = {f.name for f in fields(RenderOptions)}
    known = own | env | pictures | {"max_episode_steps"}
    for argument in kwargs:
        if argument not in known:
            hint = suggestion(argument, known)
            raise TypeError(
                f"{name} takes no argument {argument!r}{hint} It takes {sorted(known)}."
            )
    parts = [{k: v for k, v in kwargs.items() if k in names} for names in (own, env, pictures)]
    return parts[0], parts[1], parts[2], kwargs.get("max_episode_steps", ...)


def make_gymnasium(env_id: str, **kwargs: Any) -> SingleEnv:
    """The single form for `gym.make`; Gymnasium's TimeLimit wrapper keeps the time."""
    fixed = {"backend": "numpy", "autoreset": "disabled", "max_episode_steps": None}
    return SingleEnv(make(env_id, 1, **kwargs, **fixed))


def make_gymnasium_vector(env_id: str, num_envs: int = 1, **kwargs: Any) -> VectorEnv:
    """The vector form for `gym.make_vec`: numpy and next_step, unless asked for otherwise."""
    return make(env_id, num_envs, **{"backend": "numpy", "autoreset": "next_step", **kwargs})


def register_gymnasium() -> None:
    """Register every environment with Gymnasium as "alloy/<id>"; may be called again."""
    for name, factory in _FACTORIES.items():
        env_id = f"{NAMESPACE}/{name}"
        if env_id in gym.registry:
            continue
        limit = inspect.signature(factory).parameters.get("max_steps")
        gym.register(
            env_id,
            entry_point="alloy.envs.registry:make_gymnasium",
            vector_entry_point="alloy.envs.registry:make_gymnasium_vector",
            kwargs={"env_id": name},
            max_episode_steps=factory()[1].max_steps if limit is None else limit.default,
        )


register("GripperLift-v0", gripper_lift)
register("Go2Velocity-v0", go2_velocity_task)
register("HalfCheetah-v5", half_cheetah)
register("Ant-v5", ant)
register("Hopper-v5", hopper)
register("Humanoid-v5", humanoid)
register("HumanoidStandup-v5", humanoid_standup)
register("InvertedDoublePendulum-v5", inverted_double_pendulum)
register("InvertedPendulum-v5", inverted_pendulum)
register("Pusher-v5", pusher)
register("Reacher-v5", reacher)
register("Swimmer-v5", swimmer)
register("Walker2d-v5", walker2d)
