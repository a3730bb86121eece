# make demo      run the main job on a federation of three sites, one of which is killed
# make demo-data  a graph over market data that may not leave the EU, on four sites, one killed
# make demo-grids  one job over a real Slurm, rented "instances" and a local pool
# make test      the fast suite: pure tests, then those with real processes
# make thorough  what the fast suite leaves out for its length: more kills, larger crowds
# make explore   the pure tests with new random examples
# make check     lint, types, import rules
# make bench     benchmarks, with results in benchmarks/results (long)
# make stress    the transport's stress test and other long tests
# make swarm     random worlds until one breaks: SEEDS=300, or MINUTES=5 of them
# make mutants   small changes to a branch's lines that no pure test notices: BASE=main, or FILES=…
# make chaos     real faults on three real sites, reconciled afterwards: MINUTES=2 SEED=1 (as root)
# make fuzz      odd messages to all ports of a real gateway: MESSAGES=10000000 SEED=1
# make growth    a pool on a simulated cloud: from 0 to 20,000 slots and back, and days of work
# make year      three sites in 2023, alone and together: a report with pictures; or DAYS=7 of it
# Each sets up what it needs, in .venv. PYTHON names another interpreter (3.11 or newer).

PYTHON ?= python3
PY := .venv/bin/python

# Containers often forbid it: then each of hundreds of processes compiles all that it imports.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo demo-data demo-grids test thorough explore check stress swarm mutants chaos fuzz year growth bench format clean

.venv/ready: pyproject.toml requirements-dev.txt federation/gridfed/__init__.py
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv .venv
	$(PY) -m pip install --quiet --disable-pip-version-check -r requirements-dev.txt
	$(PY) -m pip install --quiet --disable-pip-version-check --no-deps -e .
	rm -rf .venv/dask-2024.8.0  # for tests with a Dask from before its graphs had nodes
	$(PY) -m pip install --quiet --disable-pip-version-check --no-deps dask==2024.8.0 --target \
		$$($(PY) -c 'import sysconfig; print(sysconfig.get_path("purelib", vars={"base": ".venv/dask-2024.8.0"}))')
	touch $@

demo: .venv/ready
	$(PY) examples/federated_risk.py

demo-data: .venv/ready
	$(PY) examples/data_risk.py

demo-grids: .venv/ready
	$(PY) examples/three_grids.py

test: .venv/ready
	$(PY) -m tests.suite $(if $(FLAKY),--flaky $(FLAKY))

thorough: .venv/ready
	$(PY) -m tests.suite --thorough $(if $(FLAKY),--flaky $(FLAKY))

explore: .venv/ready
	HYPOTHESIS_PROFILE=explore $(PY) -m pytest -n 2 --dist worksteal -m "not real and not stress"

check: .venv/ready
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy
	.venv/bin/lint-imports

stress: .venv/ready
	$(PY) -m pytest -m stress --timeout 1800

swarm: .venv/ready
	$(PY) -m simulations swarm $(if $(MINUTES),--minutes $(MINUTES),--seeds $(or $(SEEDS),300))

mutants: .venv/ready
	$(PY) -m tests.mutants $(if $(FILES),--files $(FILES),--base $(or $(BASE),main)) \
		$(if $(TESTS),--tests $(TESTS)) $(if $(SAMPLE),--sample $(SAMPLE))

chaos: .venv/ready
	$(PY) -m tests.chaos --minutes $(or $(MINUTES),2) --seed $(or $(SEED),1)

fuzz: .venv/ready
	$(PY) -m tests.fuzz --messages $(or $(MESSAGES),10000000) --seed $(or $(SEED),1)

year: .venv/ready
	$(PY) -m simulations year $(if $(DAYS),--days $(DAYS))

growth: .venv/ready
	$(PY) -m simulations growth

bench: .venv/ready
	$(PY) -m pip install --quiet --disable-pip-version-check -e '.[bench]'
	$(PY) -m benchmarks all

format: .venv/ready
	.venv/bin/ruff check --fix .
	.venv/bin/ruff format .

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
