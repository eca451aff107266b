# Everything a newcomer needs; `make` alone lists it.
.DEFAULT_GOAL := help
.PHONY: help venv demo test soak check format bench cluster cluster-down cluster-programs docs-reference lock clean

ARGS ?=

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

venv:  ## make .venv with the project and its tools
	@scripts/make-venv

demo: venv  ## train LeNet-5 on MNIST with two workers, for real
	@demo/run

test: venv  ## install what the tests need, then run them all (ARGS="-k name" for some)
	@scripts/test $(ARGS)

soak: venv  ## run the long tests under faults and hostile load, which print what they measure (ARGS="-k name" for some)
	@nice .venv/bin/python -m pytest -q -s -m soak $(ARGS)

check: venv  ## lint, types and architecture: half a minute
	@.venv/bin/ruff check .
	@.venv/bin/ruff format --check .
	@.venv/bin/mypy
	@.venv/bin/lint-imports
	@.venv/bin/deptry src
	@.venv/bin/python -m pytest -q tests/architecture

format: venv  ## format the code
	@.venv/bin/ruff check --fix .
	@.venv/bin/ruff format .

bench: venv  ## run the benchmarks; each prints a ratio to a bare baseline
	@cd benchmarks && for program in cli_start run_latency job_throughput daemon history log_ingest install_size ddp_overhead recovery placement placement_speed queueing fairness scheduler registry serving serving_grpc serving_peers router autoscale endpoint; do echo "== $$program" >&2; nice ../.venv/bin/python $$program.py || exit 1; done

cluster: venv  ## start a real Kubernetes cluster on this machine, and say how to use it
	@PYTHONPATH=tests .venv/bin/python -m cluster up

cluster-down: venv  ## end it, and whatever a crash left of one
	@PYTHONPATH=tests .venv/bin/python -m cluster down

cluster-programs: venv  ## build its programs (etcd, kube-apiserver, kubelet ...): minutes, once
	@PYTHONPATH=tests .venv/bin/python -m cluster build

docs-reference: venv  ## write docs/reference from the models
	@.venv/bin/python scripts/reference

lock: venv  ## write requirements/dev.lock anew
	@.venv/bin/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --no-annotate --group dev pyproject.toml -o requirements/dev.lock

clean:  ## remove what was made here
	rm -rf .venv .venv.lock .venvs dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
