"""Settings of every test: one thread per process, and memory that is never zero by luck."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
# Compiling takes seconds for each environment; tests of the lanes engine ask for it by name.
os.environ.setdefault("ALLOY_ENGINE", "reference")

import torch

torch.set_num_threads(1)
# Deterministic mode also fills torch.empty with NaN, so a value that was never written shows up.
torch.use_deterministic_algorithms(True, warn_only=True)
