# Everything runs in .venv, made on first use. With a virtual environment of your own:
#   make test VENV=/path/to/venv   (it needs `pip install -e .[dev]`, and is left as it is)
VENV ?= .venv
PYTHON ?= python3
CONSTRAINTS ?= constraints/cpu.txt
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu
JOBS ?= auto

PY := $(VENV)/bin/python
PIP := $(PY) -m pip install --disable-pip-version-check -c $(CONSTRAINTS)
READY := $(if $(filter .venv,$(VENV)),.venv/.installed)

# One process per core does better than many threads on small tensors.
export OMP_NUM_THREADS ?= 1

# Libraries that `make train-smoke` tries.
LIBRARIES ?= rsl_rl torchrl sb3 skrl

.PHONY: demo test test-slow train-smoke check bench venv clean

demo: $(READY)  ## build two environments, step them, draw a picture into out/
	$(PY) scripts/demo.py

test: $(READY)  ## the fast tests
	$(PY) -m pytest -n $(JOBS) -m "not slow"

test-slow: $(READY)  ## the tests that take minutes
	$(PY) -m pytest -n $(JOBS) -m slow

train-smoke: $(READY)  ## a few iterations with every learning library
	@for lib in $(LIBRARIES); do \
	  $(PY) -m alloy.envs.wrappers.train InvertedPendulum-v5 --lib $$lib --worlds 64 --iterations 3 \
	    --episodes 16 --log-dir out/smoke/$$lib --overwrite --no-progress --no-video || exit 1; \
	done

check: $(READY)  ## lint, types, layers
	$(PY) -m ruff check .
	$(PY) -m pyright --pythonpath $(PY)
	$(PY) -m pytest -q tests/test_layers.py

bench: $(READY)  ## env-steps/s beside mujoco.rollout; options in ARGS="..."
	$(PY) scripts/bench.py $(ARGS)

venv: $(READY)

.venv/.installed: pyproject.toml constraints/cpu.txt
	$(PYTHON) -m venv .venv
	$(PIP) torch || $(PIP) --index-url $(TORCH_INDEX) torch
	$(PIP) -e ".[dev]"
	touch $@

clean:
	rm -rf .venv out build *.egg-info .pytest_cache .ruff_cache
