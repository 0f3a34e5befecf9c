"""What each of two processes does in test_train.py: train, and write down what it has."""

import importlib
import sys
from pathlib import Path

import torch

from alloy.envs.recipes import Recipe
from alloy.envs.wrappers.run import Options, Run

if __name__ == "__main__":
    lib, folder = sys.argv[1], Path(sys.argv[2])
    sizes = {"worlds": 8, "steps": 8, "epochs": 2, "actor": (8,), "critic": (8,), "iterations": 2}
    options = Options(
        Recipe("InvertedPendulum-v5", **sizes),
        lib=lib,
        engine="reference",
        threads=1,
        log_dir=folder,
        progress=False,
    )
    run = Run(options)
    policy = importlib.import_module(f"alloy.envs.wrappers.train_{lib}").train(run)
    about = {
        "policy": policy.packed(),
        "env_steps": run.env_steps,
        "seeds": run.env.unwrapped._episode.seed.tolist(),
    }
    torch.save(about, folder / f"{run.processes.rank}.pt")
    run.close()
