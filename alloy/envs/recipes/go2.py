"""Go2Velocity-v0: many worlds and short rollouts, as is usual for legged robots; small networks."""

from alloy.envs.recipes.recipe import Recipe

GO2 = Recipe(
    env_id="Go2Velocity-v0",
    worlds=2048,
    steps=24,
    epochs=4,
    minibatches=4,
    actor=(128, 64),
    critic=(128, 64),
    entropy_coef=0.003,
    init_noise_std=0.5,
    iterations=300,
    success_bar=0.95,
)
