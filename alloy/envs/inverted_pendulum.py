"""InvertedPendulum-v5: Gymnasium's environment, on the file of the installed package."""

from __future__ import annotations

from alloy.envs import gymnasium_suite as suite
from alloy.envs import resets
from alloy.envs.checks import Check
from alloy.envs.task import Task
from alloy.scene import Scene


def inverted_pendulum(
    xml_file: str = "inverted_pendulum.xml",
    frame_skip: int = 2,
    reset_noise_scale: float = 0.01,
) -> tuple[Scene, Task]:
    """Scene and task; the arguments are those of Gymnasium's `InvertedPendulumEnv`.

    Args:
        xml_file: MJCF file, by its name in Gymnasium's assets or by its path.
        frame_skip: physics steps per control step.
        reset_noise_scale: half width of the uniform noise at the start of an episode.
    """
    fallen = Check(lambda sim: sim.qpos[:, 1].abs() > 0.2, "fallen")
    reward = {"reward_survive": (1.0, ~fallen)}
    return suite.gymnasium_scene(xml_file, frame_skip), Task(
        obs=[suite.positions(), suite.velocities()],
        reward=reward,
        failure=fallen,
        max_steps=1000,
        reset=[resets.qpos_uniform(reset_noise_scale), suite.qvel_uniform(reset_noise_scale)],
        info=suite.reported(reward),
    )
