"""The command on a pole with few worlds and tiny networks, and what it wrote."""

import csv

from alloy.envs.wrappers import train

ENV = "InvertedPendulum-v5"
SMALL = ("--worlds", "8", "--threads", "1", "--episodes", "4", "--no-progress", "--no-video")
NETS = ("--set", "actor=[8]", "critic=[8]", "steps=8", "epochs=2", "--env", "max_episode_steps=40")


def run(folder, *more, lib="rsl_rl"):
    return train.main([ENV, "--lib", lib, *SMALL, *NETS, "--log-dir", str(folder), *more])


def rows(folder):
    with (folder / "progress.csv").open() as file:
        return list(csv.DictReader(file))
