"""Kernels run in Triton's interpreter here: it must be chosen before they are defined."""

import os

os.environ["TRITON_INTERPRET"] = "1"

from scripts.kernels import fast_interpreter

fast_interpreter()
