# Every target makes .venv when it is missing or out of date, and costs nothing when it is there.
PYTHON ?= python3.11
BIN := .venv/bin
READY := .venv/.ready
AS_ROOT := $(shell [ "$$(id -u)" = 0 ] || echo sudo -n) env DEBIAN_FRONTEND=noninteractive

.DEFAULT_GOAL := help
.PHONY: help demo view browser emulator robot test test-fast sanitize check lint types bench peers weights starling baseline atlas cards films figures clean

help:  ## show this list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

# python3.11 by name where there is one, else whatever python3 is (pip checks the version).
$(READY): pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null && $(PYTHON) -m venv .venv || python3 -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $(READY)

demo: $(READY)  ## train a network, test it beside others, write films and runs/demo/report.html
	$(BIN)/equiflock demo --out runs/demo

view: $(READY)  ## fly flocks live in a browser
	$(BIN)/equiflock view

# The live view is tested in a real browser, and its accessibility by axe-core. Where these cannot be installed, the tests
# say so, and fail in CI. The lock file has axe-core's version and checksum; npm knows where to get it.
AXE := tests/viewer/axe
$(AXE)/node_modules/.ready: $(AXE)/package-lock.json
	@npm ci --prefix $(AXE) --ignore-scripts --no-audit --no-fund --silent && touch $@ || \
		echo "axe-core could not be installed: the test of the live view's accessibility needs it, and npm"

browser: $(AXE)/node_modules/.ready  ## install Chromium (Debian's package) and axe-core (npm) for the tests of the live view
	@command -v chromium >/dev/null || { $(AS_ROOT) apt-get update -qq && $(AS_ROOT) apt-get install -y -qq chromium; } || \
		echo "Chromium could not be installed: the tests of the live view need it"

# Exported controllers are tested on the processor of a robot, which an emulator stands for. The compiler prints the path of
# nano.specs, or its name alone where newlib is missing.
ARM := gcc-arm-none-eabi libnewlib-arm-none-eabi qemu-system-arm
emulator:  ## install a compiler for Cortex-M and its emulator, from Debian's packages, unless they are there
	@command -v qemu-system-arm >/dev/null && test -f "$$(arm-none-eabi-gcc -print-file-name=nano.specs 2>&1)" || \
		{ $(AS_ROOT) apt-get update -qq && $(AS_ROOT) apt-get install -y -qq --no-install-recommends $(ARM); } || \
		echo "$(ARM) could not be installed: the tests of exported controllers on a robot's processor need them"

robot: $(READY) emulator  ## what exported controllers take of a Cortex-M4F: flash, RAM, instructions per step
	$(BIN)/python benchmarks/firmware.py

# Two processes, each with whole files, whose tests share expensive fixtures. In the order of tests/conftest.py: the last
# files are short, so that neither process waits long for the other. Torch's threads must not keep a core busy while
# they wait. Bytecode is kept, as tests start many processes.
PYTEST := $(BIN)/python -m pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder
test test-fast: export OMP_WAIT_POLICY := passive
test test-fast: export PYTHONDONTWRITEBYTECODE :=
test: $(READY) browser emulator  ## run the tests (about six minutes on 2 cores, nine where kernels must be compiled)
	$(PYTEST)

test-fast: $(READY)  ## run the tests that are fast: no processes, no browser
	$(PYTEST) -m 'not slow'

# The tests of exported code run in `make test`, too. Bounds change compiled kernels, so these are compiled again.
KERNEL_TESTS := $(addprefix tests/,graph observations bodies scenarios simulation controllers/classical \
	controllers/networks learning/test_fused_mixture.py learning/test_learner.py)
sanitize: $(READY)  ## kernels with checked bounds, exported C code under sanitizers (about six minutes on 2 cores)
	NUMBA_BOUNDSCHECK=1 $(PYTEST) $(KERNEL_TESTS)
	$(BIN)/python -m pytest tests/deployment/export/test_sanitized.py

lint: $(READY)  ## ruff: style and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)  ## mypy: types
	$(BIN)/mypy

check: lint types test  ## everything that CI runs

bench: $(READY)  ## speed: a step in closed loop, observations and training against baselines, cost of radios and bodies
	$(BIN)/equiflock bench
	$(BIN)/python benchmarks/observations.py
	$(BIN)/python benchmarks/compiled_networks.py
	$(BIN)/python benchmarks/channels.py
	$(BIN)/python benchmarks/training.py
	$(BIN)/python benchmarks/dense_training.py
	$(BIN)/python benchmarks/environment.py
	$(BIN)/python benchmarks/quadrotors.py
	$(BIN)/python benchmarks/export.py
	$(BIN)/python benchmarks/swarm.py

peers: $(READY)  ## speed: a closed loop beside VMAS, Mesa and dense NumPy (installs the first two; about five minutes)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[bench]'
	$(BIN)/python benchmarks/peers.py

# starling imitates an expert of bounded gain, at the sampling rates of robots. Then, for every seed, the gains of `velocity`,
# `inverse-square` and `leaving` are tuned on led, small, medium and large flocks, some with a larger gain than the weights will
# have, so that a margin is left. The result uses a part of that margin: the gain of its schedule is 0.0225 s / T, at most 4. The
# weights near obstacles start from another network with smaller accelerations, and are tuned on courses past large obstacles for
# seed 0. All seeds take them, with factors on two layers.
MIXED := --disk-scale 0.6-1.1 --learning-rate 2e-4 --schedule cosine --average 0.95
OPEN := --expert tanner-bounded --scenario '0.35*flocking+0.5*leaders:leader_velocity=first+0.15*flocking:agents=1000:disk_scale=0.9' \
	--agents 12-60 --time-step 0.01-0.05 --gain-margin 1.45 --duration 4 --epochs 500 --expert-share 0.98 --least-expert-share 0 \
	--validate-every 100 $(MIXED)
SOFT := --expert tanner:attraction=0.8:aim=leaders --scenario '0.5*flocking+0.5*leaders' $(MIXED)
CALM_TASKS := 1.5*leaders:flocks=200:duration=1.5+1*flocking:agents=12:flocks=600:duration=1+1*flocking:agents=25:flocks=400:duration=1:time_step=0.02+0.7*flocking:agents=50:flocks=16:time_step=0.002+0.7*flocking:agents=100:flocks=8:time_step=0.002+0.5*flocking:agents=5:flocks=40:time_step=0.005:duration=4+0.5*flocking:agents=11:flocks=30:time_step=0.005:gain_margin=1.5+0.5*flocking:agents=90:flocks=4:time_step=0.005:gain_margin=1.5+0.7*flocking:agents=1500:flocks=1:time_step=0.005:duration=1:gain_margin=1.5
CALM := --search gains --gain-period 0.02 --largest-gain 4 \
	--measures '1*gap+0.5*final_variance+0.5*residual+0.5*leaders+0.5*peak' --sigma 0.12 --measurement-interval 0.1 --validate-every 4 \
	--validation-flocks 100 --generations 8 --population 14
FIRST := --tasks '0.4*obstacles:sides=48:flocks=4:duration=14+1*obstacles:sides=96:flocks=12:duration=14' --sigma 0.1 --validate-every 10 \
	--generations 20 --initial-orbit gravity_break=0.577:near=1.08:slow=0.105 --search gains --measurement-interval 0.2 \
	--measures '1*gap+1*failures+0.5*time'
# No search: --near-from alone replaces the weights near obstacles.
TAKE := --tasks obstacles:sides=96 --generations 0 --validation-flocks 1
RUNS := runs/starling
TRAINED := src/equiflock/controllers/trained
starling: $(READY)  ## train and tune the weights of starling again (estimated: 25 minutes on 2 cores)
	test -d $(RUNS)/soft && $(BIN)/equiflock train --resume $(RUNS)/soft || \
		$(BIN)/equiflock train --controller etdagnn:aggregation=both $(SOFT) --out $(RUNS)/soft
	test -d $(RUNS)/open && $(BIN)/equiflock train --resume $(RUNS)/open --workers 2 || \
		$(BIN)/equiflock train --controller starling $(OPEN) --seeds 0-4 --workers 2 --out $(RUNS)/open
	$(BIN)/equiflock tune $(RUNS)/open/starling-0/weights.safetensors --near --near-from $(RUNS)/soft/weights.safetensors \
		--last-layer-scale 0.5 $(FIRST) --out $(RUNS)/first
	set -e; for seed in 0 1 2 3 4; do \
		$(BIN)/equiflock tune $(RUNS)/open/starling-$$seed/weights.safetensors --tasks '$(CALM_TASKS)' $(CALM) \
			--gain-features velocity+inverse-square+leaving --seed $$seed --out $(RUNS)/calm/starling-$$seed; \
		$(BIN)/equiflock tune $(RUNS)/calm/starling-$$seed/weights.safetensors --near --near-from $(RUNS)/first/weights.safetensors \
			--last-layer-scale 0.5 --gain-period 0.0225 $(TAKE) --seed $$seed --out $(RUNS)/tuned/starling-$$seed; \
		$(BIN)/equiflock tune $(RUNS)/tuned/starling-$$seed/weights.safetensors --near --near-from $(RUNS)/tuned/starling-0/weights.safetensors \
			--last-layer-scale 1.2 --channel-scales velocity/mean=0.75 $(TAKE) --seed $$seed --out $(RUNS)/near/starling-$$seed; \
		cp $(RUNS)/near/starling-$$seed/weights.safetensors $(TRAINED)/starling-$$seed.safetensors; \
		cp $(RUNS)/open/starling-$$seed/validation.csv $(TRAINED)/starling-$$seed.csv; \
	done

# The paper's etdagnn by the same recipe: the training, the gains of the channels that it has, and the gain period. It observes
# no obstacles through others, so it cannot have a second set of weights near them: other weights, from the same start and
# the same search, fly past obstacles from the beginning to the end.
baseline: $(READY)  ## train and tune the paper's etdagnn by starling's recipe, for benchmarks/starling.py (estimated: 15 minutes on 2 cores)
	test -d $(RUNS)/baseline-soft && $(BIN)/equiflock train --resume $(RUNS)/baseline-soft || \
		$(BIN)/equiflock train --controller etdagnn:gain_period=0.01 $(SOFT) --out $(RUNS)/baseline-soft
	test -d $(RUNS)/baseline && $(BIN)/equiflock train --resume $(RUNS)/baseline --workers 2 || \
		$(BIN)/equiflock train --controller etdagnn:gain_period=0.02 $(OPEN) --seeds 0-4 --workers 2 --out $(RUNS)/baseline
	set -e; for seed in 0 1 2 3 4; do \
		$(BIN)/equiflock tune $(RUNS)/baseline/etdagnn-gain_period=0.02-$$seed/weights.safetensors --tasks '$(CALM_TASKS)' $(CALM) \
			--gain-features velocity+inverse-square --seed $$seed --out $(RUNS)/baseline-calm/etdagnn-$$seed; \
		$(BIN)/equiflock tune $(RUNS)/baseline-calm/etdagnn-$$seed/weights.safetensors --gain-period 0.0225 $(TAKE) --seed $$seed \
			--out $(RUNS)/baseline-tuned/etdagnn-$$seed; \
	done
	$(BIN)/equiflock tune $(RUNS)/baseline-soft/weights.safetensors $(FIRST) --out $(RUNS)/baseline-first
	$(BIN)/equiflock tune $(RUNS)/baseline-first/weights.safetensors --gain-period 0.0135 $(TAKE) --out $(RUNS)/baseline-near

# The environments in which etdagnn-robust is trained: radios and bodies of slow, badly connected robots.
ROBUST := --max-acceleration 3-100 --lag 0-0.1 --packet-loss 0-0.3 --delay 0-2
# The recipe of the networks that segregate groups, from the law `segregation`.
SEGREGATION := --expert segregation --scenario segregation --duration 4 --epochs 200 --learning-rate 5e-4
weights: $(READY)  ## train the weights of the package again (about seven minutes on 2 cores for the paper's)
	test -d runs/trained && $(BIN)/equiflock train --resume runs/trained --workers 2 || \
		$(BIN)/equiflock train --controller all --seeds 0-4 --workers 2 --out runs/trained
	test -d runs/robust && $(BIN)/equiflock train --resume runs/robust --workers 2 || \
		$(BIN)/equiflock train --controller etdagnn $(ROBUST) --seeds 0-4 --workers 2 --out runs/robust
	set -e; for name in etdagnn tdagnn; do \
		test -d runs/segregation/$$name-0 && $(BIN)/equiflock train --resume runs/segregation/$$name-0 || \
			$(BIN)/equiflock train --controller $$name:groups=true $(SEGREGATION) --out runs/segregation/$$name-0; \
	done
	set -e; for run in runs/trained/* runs/robust/* runs/segregation/*; do \
		name=$$(basename $$run); kind=$$(basename $$(dirname $$run)); \
		test $$kind = trained || name=$${name%-*}-$$kind-$${name##*-}; \
		cp $$run/weights.safetensors src/equiflock/controllers/trained/$$name.safetensors; \
		cp $$run/validation.csv src/equiflock/controllers/trained/$$name.csv; \
	done

atlas: $(READY)  ## measure and film the classical laws again (about three minutes on 2 cores)
	$(BIN)/python benchmarks/atlas.py --force --out runs/atlas
	cp runs/atlas/*.webp runs/atlas/atlas.md runs/atlas/atlas.csv docs/atlas

cards: $(READY)  ## the report cards of docs/cards (about five minutes on 2 cores)
	$(BIN)/equiflock judge starling etdagnn tdagnn reynolds --against --no-flights --force --out runs/cards/docs
	mkdir -p docs/cards && cp runs/cards/docs/card.html runs/cards/docs/card.json runs/cards/docs/card.csv docs/cards

films: $(READY) browser  ## make every film of the README, the documentation and the atlas again (about ten minutes on 2 cores)
	$(BIN)/python benchmarks/films.py

figures: $(READY)  ## draw the figures of the documentation again from their tables
	$(BIN)/python benchmarks/figures.py

clean:  ## remove the virtual environment and all caches
	rm -rf .venv build $(AXE)/node_modules .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
