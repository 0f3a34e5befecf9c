"""GripperLift-v0: reach, close, lift, all within two seconds.

The way down teaches the policy to press the hand's target to its lower end, and a policy that has
lost its noise there never tries to lift. So noise begins wide and entropy is paid for: with an
entropy coefficient of 0.001 and a standard deviation of 0.6 no seed lifted in 300 iterations, with
these values all do in about 50.
"""

from alloy.envs.recipes.recipe import Recipe

GRIPPER_LIFT = Recipe(
    env_id="GripperLift-v0",
    worlds=1024,
    steps=25,
    epochs=5,
    minibatches=4,
    actor=(64, 64),
    critic=(64, 64),
    gamma=0.98,
    entropy_coef=0.01,
    init_noise_std=1.0,
    iterations=120,
    success_bar=0.95,
)
