"""A cart on a rail: the smallest scene with a state, an action and a way to end."""

import torch

from alloy.envs import SingleEnv, Task, VectorEnv, resets
from alloy.envs import checks as C

CART = """
<mujoco>
  <option timestep="0.01"/>
  <worldbody>
    <body name="cart">
      <joint name="rail" type="slide" axis="1 0 0" damping="1" range="-9 9" limited="true"/>
      <geom name="box" type="box" size=".1 .1 .1" mass="1"/>
      <site name="tip" pos=".1 0 0"/>
    </body>
  </worldbody>
  <actuator><motor name="push" joint="rail" ctrlrange="-1 1" gear="20"/></actuator>
  <sensor><framepos name="tip" objtype="site" objname="tip"/></sensor>
</mujoco>
"""


def position(sim):
    return sim.qpos[:, 0]


def task(**changes):
    """The cart starts at random, is paid for its position, and fails beyond 0.3 m."""
    about = {
        "obs": ["cart"],
        "reward": {"position": (1.0, position), "alive": (1.0, C.alive())},
        "failure": C.Check(position, "position") > 0.3,
        "max_steps": 7,
        "reset": [resets.qpos_uniform(0.2), resets.qvel_normal(0.5)],
        "info": {"x": position, "count": lambda sim: sim.steps},
        "reset_info": ["x", "count"],
    }
    return Task(**(about | changes))


def always_three(**changes):
    """Every episode takes three steps and pays 1 for each."""
    about = {"obs": ["cart"], "reward": {"one": (1.0, C.alive())}, "max_steps": 3}
    return Task(**(about | changes))


def env(worlds=3, the_task=None, **options):
    return VectorEnv(CART, the_task or task(), worlds, engine="reference", **options)


def single(the_task=None):
    return SingleEnv(env(1, the_task, backend="numpy", autoreset="disabled"))


def actions(worlds, steps, seed=0):
    """Random actions [steps, W, 1], some beyond their bounds."""
    g = torch.Generator().manual_seed(seed)
    return 3.0 * torch.rand(steps, worlds, 1, generator=g) - 1.5
