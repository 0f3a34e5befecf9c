"""HalfCheetah-v5: few worlds and long rollouts, so that many updates fit into the minutes."""

from alloy.envs.recipes.recipe import Recipe

HALF_CHEETAH = Recipe(
    env_id="HalfCheetah-v5",
    worlds=512,
    steps=32,
    epochs=5,
    minibatches=8,
    actor=(256, 128),
    critic=(256, 128),
    reward_scale=0.1,
    iterations=400,
    return_bar=4000.0,
)
