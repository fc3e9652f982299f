# Leveret: `make help` lists what there is.
SHELL := /bin/sh
export LEVERET_MODELS_DIR ?= .models
VENV := .venv
INSTALLED := $(VENV)/.installed

.PHONY: help install demo run test check image-test report-test schemas soak bench lock clean

help: ## List the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

install: $(INSTALLED) ## Make .venv from the lock (PYTHON, TORCH_INDEX)

$(INSTALLED): requirements.lock pyproject.toml deploy/install.sh
	@deploy/install.sh
	@touch $@

demo: $(INSTALLED) ## From nothing to two answers over RabbitMQ; stops everything again
	@$(VENV)/bin/python deploy/demo/demo.py

run: $(INSTALLED) ## The same set-up as the demo, and the daemon stays up
	@$(VENV)/bin/python deploy/demo/demo.py --stay

test: $(INSTALLED) ## All tests, on a private RabbitMQ node and the real small model
	@tests/needs.sh
	@# Shared cores stall now and then: what failed is run once more, and a second failure is one.
	$(VENV)/bin/python -m pytest || { [ $$? = 1 ] && $(VENV)/bin/python -m pytest --last-failed; }

check: $(INSTALLED) ## Lint, format, types, import rules, Dockerfile, alert rules, units
	$(VENV)/bin/ruff check
	$(VENV)/bin/ruff format --check
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports
	$(VENV)/bin/hadolint Dockerfile
	deploy/prometheus/check.sh
	deploy/systemd/check.sh

image-test: $(INSTALLED) ## Build the image with the small model, run it locked down (Docker, else buildah as root)
	@PYTHONPATH=deploy/demo $(VENV)/bin/python deploy/image/image_test.py

report-test: $(INSTALLED) ## The HTML reports of leveret eval in Chromium: plots drawn, nothing cut off, printable
	$(VENV)/bin/python -m pytest tests/browser/report_in_browser.py

schemas: $(INSTALLED) ## The JSON Schema test suite as a table: enforced, refused and why
	$(VENV)/bin/python -m tests.schema_suite.report

soak: $(INSTALLED) ## The long forms: 20 schemas, 30 prompts against transformers, ten minutes of faults
	LEVERET_TEST_SCHEMA_SEEDS=10 LEVERET_TEST_PARITY_PROMPTS=30 $(VENV)/bin/python -m pytest \
		tests/engine/test_everyday_schemas.py tests/engine/test_parity.py
	LEVERET_SOAK_SECONDS=600 $(VENV)/bin/python -m pytest -s tests/soak

bench: $(INSTALLED) ## Measure prefill, decode, time to first token, memory
	$(VENV)/bin/leveret bench

lock: COMPILE := uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--excludes deploy/lock/excludes.txt --no-emit-index-url --custom-compile-command "make lock"
lock: OTEL := import tomllib; \
	print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["otel"], sep="\n")
lock: $(INSTALLED) ## Resolve all locks anew from pyproject.toml (needs uv on the PATH)
	$(COMPILE) --extra dev --output-file requirements.lock pyproject.toml deploy/lock/torch.in
	$(COMPILE) --constraint requirements.lock --output-file deploy/lock/runtime.lock pyproject.toml deploy/lock/torch.in
	@# What the extra needs, to be installed together with runtime.lock.
	$(VENV)/bin/python -c '$(OTEL)' | $(COMPILE) --constraint requirements.lock --output-file deploy/lock/otel.lock -

clean: ## Remove .venv, the models and all caches
	rm -rf $(VENV) .models .work build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find daemon schemas tests deploy -name __pycache__ -type d -prune -exec rm -rf {} +
