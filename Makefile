# Thin over pip and pytest. `make help` lists the targets; INSTALL.md says the same without make.
PYTHON ?= python3
PY := .venv/$(if $(filter Windows_NT,$(OS)),Scripts,bin)/python
# Named after what was installed, and where: a changed pin or a moved folder installs again.
KEY := $(shell (pwd; cat pyproject.toml constraints.txt) | cksum | tr ' ' '-')
# A Python, and what to do where it is another than pyproject.toml's.
will_do = $(1) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15) and "$(1) is Python " \
	+ sys.version.split()[0] + "; 3.11 to 3.14 will do ($(2))")'
# Where its Python is gone, as after an upgrade of the system, .venv is made anew.
GONE := $(shell test ! -e .venv/made || $(PY) -c '' 2>/dev/null || rm -f .venv/made .venv/installed-*)
SET_UP := .venv/installed-$(KEY)
FOR_TESTS := .venv/installed-test-$(KEY)
NBVAL := --nbval --nbval-current-env --nbval-sanitize-with tests/nbval_sanitize.cfg \
	--nbval-cell-timeout=1800
# One file at a time, so that what a file prepares is prepared once.
BOTH_CORES := -n 2 --dist loadfile
CORE := $(addprefix tests/lesson/test_,attention.py masks.py refusals.py models.py decoding.py \
	tasks.py heads.py runtime.py) tests/house/test_device.py
# Loaded by `import torch` from these folders, in kernels too: another device, other default seeds.
PRETEND := env PYTHONPATH="$(CURDIR)/tests/device" MHA_LESSON_DEVICE=pretend
LUCK := env PYTHONPATH="$(CURDIR)/tests/luck"
# Written also where a container says not to: else each of the many kernels compiles torch anew.
export PYTHONDONTWRITEBYTECODE :=
FROM_A_SEED = seed=$${SEED:-$$($(PY) -c 'import random; print(random.randrange(10**6))')}; \
	echo "Default seed of the notebooks: $$seed (SEED=$$seed repeats it)"; \
	$(LUCK) MHA_LESSON_SEED=$$seed

.PHONY: help setup lab test test-all checks test-changed test-quick test-code ruff test-again test-device \
	test-processors test-gpu notebooks slides print site diagnose mutants pins wheel release rehearse audit oldest
.NOTPARALLEL:

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' Makefile | sed -E 's/:.*## /\t/' | expand -t 16

setup: $(SET_UP)  ## make .venv and install what a learner needs (nothing twice)

.venv/made:
	@if $(PY) -c '' 2>/dev/null; then $(call will_do,$(PY),delete .venv and run this again); \
	  else $(call will_do,$(PYTHON),make PYTHON=/path/to/python ...) && \
	  $(PYTHON) -m venv --clear --without-pip .venv; fi
	@touch $@

$(SET_UP): | .venv/made
	@$(PY) tools/install.py
	@rm -f .venv/installed-*; touch $@

$(FOR_TESTS): | .venv/made
	@$(PY) tools/install.py test
	@rm -f .venv/installed-*; touch $@ $(SET_UP)

lab: $(SET_UP)  ## open the course in JupyterLab, on your own copy of the notebooks
	@$(PY) -m mha_course lab

# Scripts and types are looked at beside the tests: npm may wait for a network.
BESIDE_FORM = mkdir -p build; \
	{ $(PY) tools/lint_js.py; scripts=$$?; $(PY) -m pyrefly check && exit $$scripts; } > build/form.txt 2>&1 & \
	form=$$!; $(1); tests=$$?; wait $$form || tests=1; cat build/form.txt; exit $$tests

test:  ## every check that is quick, and all notebooks; says how long that took
	@$(PYTHON) tools/timed.py $(MAKE) --no-print-directory checks

test-all:  ## everything there is: CI runs it every week, and you before a release
	@$(PYTHON) tools/timed.py $(MAKE) --no-print-directory checks test-again test-device \
	  test-processors diagnose ALL=--all

# One run of all, as a start of pytest takes seconds; three at a time, as a browser often waits.
checks: ruff
	@$(call BESIDE_FORM,$(FROM_A_SEED) \
	  $(PY) -m pytest -q $(ALL) $(NBVAL) --forked-kernels -n 3 --dist loadfile --no-loadscope-reorder \
	  notebooks tests)

test-changed: ruff  ## the tests that what changed since `main` can reach
	@$(PY) -m pytest -q $(NBVAL) --forked-kernels -n 3 --dist loadfile $$($(PY) tools/changed.py)

test-quick: ruff  ## half a minute: form, types, the core, the set-up
	@$(call BESIDE_FORM,$(PY) -m pytest -q -n 2 --dist worksteal $(CORE) tests/house/test_setup.py)

ruff: $(FOR_TESTS)
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check -q .

test-code: $(FOR_TESTS)  ## package, data, form of the notebooks; every exercise with its solution
	@$(PY) -m pytest -q $(BOTH_CORES) --ignore=tests/browser tests

test-again: $(FOR_TESTS)  ## every notebook from two default seeds, in random order
	@set -e; for seed in 1 2; do \
	  echo "Default seed $$seed, files in random order, threads: $$seed"; \
	  $(LUCK) MHA_LESSON_SEED=$$seed OMP_NUM_THREADS=$$seed $(PY) -m pytest -q $(NBVAL) \
	    -n $$((2 / seed)) --dist loadfile $$(ls notebooks/*.ipynb | sort -R); \
	done

test-device: $(FOR_TESTS)  ## the core's tests and all notebooks on a second, pretended device
	@$(PRETEND) $(PY) -m pytest -q -n 2 --ignore=tests/browser --device pretend tests
	@$(PRETEND) $(PY) -m pytest -q $(NBVAL) $(BOTH_CORES) notebooks

test-processors: $(FOR_TESTS)  ## tests and notebooks as other processors compute them; one: PIECE=avx2-tests
	@$(PY) tools/pieces.py processors $(PIECE)

test-gpu: $(FOR_TESTS)  ## tests, notebooks and bench on CUDA, in pieces; one: PIECE=bench-speed
	@$(PY) tools/pieces.py gpu $(PIECE)

notebooks: $(FOR_TESTS)  ## run the notebooks anew and store their outputs; one only: make notebooks NB=03
	@$(PY) tools/notebooks.py $(NB)

diagnose: $(FOR_TESTS)  ## how the checks judge and name every answer, and each with one place broken
	@$(PY) tools/diagnose.py --mutants

mutants: $(FOR_TESTS)  ## breaks that no test notices, of a sample; a part: make mutants SAMPLE=200 SEED=1 OF=core
	@$(PY) tools/mutation.py --sample $(or $(SAMPLE),200) --seed $(or $(SEED),1) $(OF)

slides: $(SET_UP)  ## open threads as slides, a file each, in build/slides; one only: make slides NB=03
	@$(PY) tools/handout.py slides $(NB)

print: $(SET_UP)  ## the notebooks for paper, folded parts open, in build/print; one only: make print NB=03
	@$(PY) tools/handout.py print $(NB)

site: $(SET_UP)  ## the course as pages that move without a kernel, in build/site
	@$(PY) tools/website.py $(NB)

# For maintainers and CI.

# With later ones each start of JupyterLab takes 2.5 s more; conda-forge has no later one.
HELD := 'jsonschema<4.25' 'latex2mathml<3.78'

# With the oldest Python 3.11 at hand: a package may ask for a later patch release of it.
pins:  ## renew constraints.txt from the newest versions that pyproject.toml allows
	@rm -rf build/pins && $(PYTHON) -m venv build/pins
	@build/pins/bin/python -m pip install -q -e '.[test,dev]' $(HELD)
	@sed '/^# Everything else/q' constraints.txt > build/constraints.txt
	@build/pins/bin/python -m pip freeze --all --exclude pip --exclude-editable \
	  | grep -vE '^(nvidia|cuda)-|^triton=' | sed 's/+[a-z0-9.]*$$//' >> build/constraints.txt
	@mv build/constraints.txt constraints.txt && rm -rf build/pins
	@git diff --stat constraints.txt

wheel: $(FOR_TESTS)  ## the wheel and the sdist, in dist/, and whether twine would hand them on
	@rm -rf dist && $(PY) -m hatchling build -d dist
	@$(PY) -m pip install -q twine -c constraints.txt && $(PY) -m twine check --strict dist/*

release: $(FOR_TESTS)  ## what a release attaches, in dist/: ADDRESS=https://github.com/OWNER/NAME TAG=v0.2.0
	@test "$(TAG)" = "v$$($(PY) -m hatchling version)"
	@$(PY) tools/badges.py $(ADDRESS) $(TAG)
	@$(MAKE) --no-print-directory wheel site
	@cd build && zip -qr ../dist/site.zip site && ls -l ../dist

rehearse:  ## the same in a clone, build/release, with an invented address; and the page on PyPI
	@rm -rf build/release && git clone -q . build/release
	@$(MAKE) --no-print-directory -C build/release release \
	  ADDRESS=https://github.com/OWNER/NAME TAG=v$$($(PY) -m hatchling version)
	@cd build/release && .venv/bin/python -m pip install -q --no-deps --force-reinstall dist/*.whl \
	  && .venv/bin/python -m pip install -q 'readme_renderer[md]' -c constraints.txt \
	  && .venv/bin/python -m readme_renderer -p -o dist/page.html mha-lesson

audit: $(FOR_TESTS)  ## ask the advisory databases about every pinned version (needs the network)
	@$(PY) -m pip install -q pip-audit -c constraints.txt
	@$(PY) -m pip_audit --strict --no-deps --disable-pip -r constraints.txt

oldest:  ## with exactly the lower bounds of pyproject.toml; another torch: make oldest TORCH=2.13.0
	@rm -rf build/oldest && $(PYTHON) -m venv build/oldest
	@build/oldest/bin/python tools/install.py test --lowest $(if $(TORCH),--torch=$(TORCH))
	@build/oldest/bin/python -m pytest -q -n 2 --dist worksteal --ignore=tests/browser tests
	@build/oldest/bin/python -m pytest -q $(NBVAL) $(BOTH_CORES) notebooks

