"""GripperLift-v0: reach, close, lift, all within two seconds."""

from alloy.envs.recipes.recipe import Recipe

GRIPPER_LIFT = Recipe(
    env_id="GripperLift-v0",
    worlds=1024,
    steps=25,
    epochs=5,
    minibatches=4,
    gamma=0.98,
    iterations=300,
    success_bar=0.95,
)
