# The project's only task runner. Everything lives in .venv and target; nothing
# is installed elsewhere. Needs Rust (cargo, rustc) and CPython 3.11 or newer.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.SUFFIXES:
MAKEFLAGS += --no-builtin-rules

export VIRTUAL_ENV := $(CURDIR)/.venv
export PATH := $(VIRTUAL_ENV)/bin:$(PATH):$(HOME)/.cargo/bin
# Without this cargo and maturin each find a Python of their own, and build PyO3
# once for each.
export PYO3_PYTHON := $(VIRTUAL_ENV)/bin/python
# maturin refuses to choose between a conda environment and .venv.
unexport CONDA_PREFIX PYTHONHOME PYTHONPATH

READY := .venv/.ready
BUILT := .venv/.built
PEER_READY := .venv/.peer-ready
RAY_READY := .venv/.ray-ready
SOURCES := Cargo.toml Cargo.lock pyproject.toml \
	$(shell find rust -name target -prune -o \( -name '*.rs' -o -name Cargo.toml \) -print)

# Extra arguments, for example: make test PYTEST_ARGS='-k streams'
PYTEST_ARGS ?=
CARGO_TEST_ARGS ?=
PEERS_ARGS ?=
LOOM_ARGS ?=
DEMO_ARGS ?=
MUTANT_ARGS ?=
STRESS_SECONDS ?= 60
FUZZ_SECONDS ?= 60

PEERS = cargo run --release --locked --manifest-path bench/peers/Cargo.toml --target-dir target/peers --
# Builds of their own, without the long link: they are not measured.
QUICKLY = CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16
MODELLED = RUSTFLAGS='--cfg loom' CARGO_TARGET_DIR=target/loom $(QUICKLY)
SANITIZED = RUSTC_BOOTSTRAP=1 RUSTFLAGS='-Zsanitizer=address -Cunsafe-allow-abi-mismatch=sanitizer' \
	CARGO_TARGET_DIR=target/asan $(QUICKLY)

# Expanded in recipes only, so that `make help` and `make clean` need neither.
CARGO = $(shell PATH='$(PATH)'; command -v rustc >/dev/null && command -v cargo)
SUPPORTED := import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11) or sys.implementation.name != "cpython")
PYTHON ?= $(shell for python in python3 python3.14 python3.13 python3.12 python3.11; do \
	if $$python -c '$(SUPPORTED)' 2>/dev/null; then echo $$python; break; fi; done)

.PHONY: help demo test lint bench bench-report ray mutants loom stress asan corpus fuzz fmt clean toolchain

help: ## Show what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(BUILT) ## Build, then route real prompts over four live engine streams
	python -m examples.demo $(DEMO_ARGS)

test: $(BUILT) $(PEER_READY) ## Build, then run the Rust and the Python tests
# The binding holds no algorithm and no Rust test; leaving it out spares a
# second build of PyO3.
	cargo test --release --locked --workspace --exclude kvindex-python $(CARGO_TEST_ARGS)
	python -m pytest $(PYTEST_ARGS)

lint: $(BUILT) ## Check formats, lints, types, stubs and file rules
	cargo fmt --all --check
	cargo fmt --manifest-path bench/peers/Cargo.toml --check
	cargo fmt --manifest-path fuzz/Cargo.toml --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	ruff check .
	ruff format --check .
	mypy
	python -m mypy.stubtest kvindex._core
	python .ci/check_files.py
	python -m tests.mutants --check

bench: $(BUILT) $(PEER_READY) ## Build, then measure, beside the peers where they install
	mkdir -p target/bench
	rm -f target/bench/*.jsonl
	python -m pytest bench --benchmark-only --benchmark-quiet -q --figures target/bench/python.jsonl $(PYTEST_ARGS)
	$(PEERS) --json target/bench/peers.jsonl $(PEERS_ARGS) > target/bench/peers.txt
	python -m bench.table target/bench/*.jsonl

ray: $(BUILT) $(RAY_READY) ## Install Ray Serve (0.5 GB), then test the example that runs in it
	python -m pytest tests/test_ray_serve.py

bench-report: $(READY) ## Show the figures of the last bench as plots on one page
	python -m bench.report --out target/bench/report target/bench/*.jsonl

mutants: $(READY) ## Break the sources in many ways and see that tests catch each
	python -m tests.mutants $(MUTANT_ARGS)

loom: | toolchain ## Try all interleavings of small models of readers and a writer
	$(MODELLED) cargo test --release --locked --package kvindex --lib interleaved $(LOOM_ARGS)

stress: | toolchain ## Let readers and writers race for STRESS_SECONDS a test
	KVINDEX_STRESS_SECONDS=$(STRESS_SECONDS) cargo test --release --locked --package kvindex --test stress -- --nocapture

asan: | toolchain ## The same under AddressSanitizer
	KVINDEX_STRESS_SECONDS=$(STRESS_SECONDS) $(SANITIZED) cargo test --release --locked --package kvindex \
		--test stress --target $$(rustc -vV | sed -n 's/^host: //p') -- --nocapture

corpus: | toolchain ## Replay the inputs that fuzzing kept
	cargo test --release --locked --manifest-path fuzz/Cargo.toml --target-dir target/fuzz --test corpus

fuzz: | toolchain ## Look for new inputs, FUZZ_SECONDS a target; needs cargo-fuzz
	for target in decode:4096 wire:2048 operations:256; do \
		name=$${target%:*}; mkdir -p target/corpus/$$name; \
		RUSTC_BOOTSTRAP=1 cargo fuzz run --target-dir target/cargo-fuzz $$name target/corpus/$$name fuzz/corpus/$$name \
			-- -max_total_time=$(FUZZ_SECONDS) -max_len=$${target#*:}; \
	done

fmt: $(READY) ## Format and fix what can be fixed by machine
	cargo fmt --all
	cargo fmt --manifest-path bench/peers/Cargo.toml
	cargo fmt --manifest-path fuzz/Cargo.toml
	ruff check --fix-only .
	ruff format .

clean: ## Remove everything that was made
	rm -rf .venv target dist .benchmarks .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find python tests examples bench -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true
	rm -f python/kvindex/*.so

toolchain:
	$(if $(CARGO),,$(error kvindex needs Rust: install cargo and rustc 1.88 or newer (rustup does) and run make again))
	$(if $(PYTHON),,$(error kvindex needs CPython 3.11 or newer with its venv module (Debian: python3-venv): install it, or name one with make PYTHON=...))
	@:

$(READY): requirements/dev.txt | toolchain
	$(PYTHON) -m venv --clear .venv
	.venv/bin/python -m pip install --disable-pip-version-check --requirement requirements/dev.txt
	touch $@

# There is no wheel of the peer for every machine: without it kvindex is measured
# alone, its tests are skipped, and the next run tries again.
$(PEER_READY): requirements/bench.txt $(READY)
	if .venv/bin/python -m pip install --disable-pip-version-check --requirement requirements/bench.txt; \
	then touch $@; else echo "The peer cannot be installed here: nothing is compared with it."; fi

$(RAY_READY): requirements/ray.txt $(READY)
	.venv/bin/python -m pip install --disable-pip-version-check --requirement requirements/ray.txt
	touch $@

$(BUILT): $(READY) $(SOURCES) | toolchain
	maturin develop --release --locked
	touch $@
