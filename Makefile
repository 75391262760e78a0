# Twelve verbs at the most, with their variants. Everything happens in .venv, made from the lock file; for another Python, in one of its own:
# `make quick PYTHON=python3.13 VENV=.venv-3.13`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
LOCK := requirements/dev.txt
# Without bytecode, every process that a test starts would compile Reyn again, which takes longer than its work.
unexport PYTHONDONTWRITEBYTECODE
# Tests have their files in memory if it has room for them: on a disk, most of their time would be spent in `fsync`.
MEMORY := $(shell test "$$(df -Pk /dev/shm 2> /dev/null | awk 'END {print $$4}')" -gt 2000000 2> /dev/null && echo /dev/shm)
quick test test-all cover fuzz: export TMPDIR := $(or $(MEMORY),$(TMPDIR),/tmp)
CORES := $(shell getconf _NPROCESSORS_ONLN)
# Tests wait for the processes that they start, so there is one more than there are cores; the quick ones start none.
WORKERS = $(shell echo $$(( $(CORES) + 1 )))
quick: WORKERS = $(CORES)
PYTEST = $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

.PHONY: setup demo quick test test-all check cover bench chaos chaos-cluster fuzz docs lock clean

## setup: make .venv with everything a contributor needs
setup: $(VENV)/ready

$(VENV)/ready: $(LOCK) pyproject.toml
	@echo "Making $(VENV) from $(LOCK); the first time this takes about half a minute ..."
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $(LOCK)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	touch $@

## demo: run a skill on a small model, kill it in mid-answer, resume it, look at what it left
demo: $(VENV)/demo
	@$(BIN)/python examples/demo.py

# A user of Reyn needs less than a contributor.
$(VENV)/demo: pyproject.toml
	@if [ ! -e $(VENV)/ready ]; then \
		echo "Making $(VENV) with Reyn and a local model's engine; the first time this takes half a minute ..." && \
		$(PYTHON) -m venv $(VENV) && \
		$(BIN)/python -m pip install --disable-pip-version-check --editable '.[local,serve]'; \
	fi
	@touch $@

## quick: the tests of the inner loop; a minute and a half on two idle cores
# Every package is tested, each property with a tenth of its examples, each test with three of its cases at most. Left out: what
# is marked `slow`, kills, faults, fuzzing, attacks, the docs, whole programs, signals, sandboxes, servers and the small model.
SLOW := examples contributing mcp sandbox functions/test_configured_tools.py functions/test_killed.py functions/test_typing.py \
	permissions/test_mutants.py permissions/test_preview.py ops/test_outside_op.py cli/test_questions.py cli/test_terminal.py \
	runtime/test_answering.py kernel/kill kernel/test_bounds.py faults docs test_programs.py test_decisions.py lint/test_fuzz.py \
	fuzz chaos postgres packages ops/test_containment.py cli/test_interrupts.py kernel/test_python_steps.py \
	models/test_openai.py models/test_openai_tools.py models/test_providers.py ops/test_web.py ops/test_programs.py \
	ops/test_program_changes.py chat/test_agents_recorded.py chat/test_agents_that_fail.py chat/test_stops.py chat/test_injections.py \
	chat/test_conversations.py cli/test_chat.py cli/test_chats.py cli/test_chat_kill.py cli/test_next_actions.py cli/test_other_runs.py \
	functions/test_chat.py kernel/test_forks.py kernel/test_handoffs.py kernel/test_iterate.py kernel/test_prompt_budget.py \
	skills/test_skill_builder.py runtime/test_archives.py attacks chat/test_kills.py cli/test_imports.py engines/test_temporal.py \
	expressions/test_oracle.py gateway/test_load.py kernel/test_costs.py kernel/test_nothing_twice.py kernel/test_tools_together.py \
	models/test_conformance.py models/test_plugins.py permissions/test_all_ways.py runtime/test_sync.py secrets/test_scrubber.py \
	gateway/test_conformance.py gateway/test_openapi.py cli/test_followed_advice.py kernel/test_aborted_sub_runs.py \
	kernel/test_call_slots.py test_acts.py \
	runtime/test_notebook.py runtime/test_readers.py runtime/test_prune.py runtime/test_trials.py runtime/test_submitted_branches.py \
	chat/test_routing.py chat/test_agents_that_ask.py chat/test_streams.py chat/test_memory.py chat/test_building.py \
	chat/test_long_turns.py kernel/test_must.py kernel/test_must_again.py kernel/test_forks_anywhere.py kernel/test_laws.py \
	kernel/test_local_values.py kernel/test_node_errors.py kernel/test_loops.py kernel/test_shared_histories.py \
	kernel/test_ends_of_visits.py models/test_thoughts.py journal/test_replaced.py journal/test_threads.py ops/test_skill_drafts.py \
	retrieval/test_passages.py permissions/test_live_rules.py functions/test_partials.py context/test_field_order.py \
	cli/test_loading.py cli/test_usage.py lint/test_before_runs.py lint/test_broken_nodes.py gateway/test_access.py \
	gateway/test_guide.py functions/test_turns.py runtime/test_watch.py functions/test_image_parameters.py test_routing.py
quick: setup
	$(PYTEST) -q --hypothesis-profile=quick -m "not real_model and not slow" \
		$(addprefix --ignore=tests/,$(SLOW))

## test: everything, with some of the cases of long tests; fifteen minutes on two idle cores
# The kills come first, in processes of their own: a small process forks faster.
test: check $(VENV)/openai-2/ready
	$(BIN)/reyn models pull smollm2
	$(PYTEST) tests/kernel/kill
	$(PYTEST) --ignore=tests/kernel/kill
	PYTHONPATH=$(VENV)/openai-2 $(PYTEST) $(addprefix tests/models/test_,openai.py openai_tools.py cancelling.py conformance.py litellm.py) \
		tests/models/test_providers.py -k "not anthropic and not gemini and not local"

# All cases of the tests that are marked `sampled`, of which `make test` has some. `.ci/run` runs a part of it after `make test`.
test-all: setup
	ALL_CASES=1 $(PYTEST) tests/kernel/kill
	ALL_CASES=1 $(PYTEST) -m sampled --ignore=tests/kernel/kill

# The adapter works with both current majors of the SDK. LiteLLM needs version 2.
$(VENV)/openai-2/ready: requirements/openai-2.txt | setup
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade --require-hashes -r $< --target $(@D)
	touch $@

## check: style, types, layers, generated pages, the site
check: setup
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .
	$(BIN)/mypy --platform darwin --cache-dir .mypy_cache/darwin & darwin=$$!; $(BIN)/mypy; code=$$?; wait $$darwin && exit $$code
	$(BIN)/lint-imports --no-logo
	$(BIN)/python tools/docs_pages.py --check
	$(BIN)/python tools/sync_stubs.py --check
	$(BIN)/zensical build --clean --strict

## cover: branch coverage: 93 % of the package, 95 % of the language and its linter
# Measured in one process: what only child processes do (kills, whole programs, pages of the docs) does not count.
cover: setup
	$(BIN)/coverage run -m pytest -q -p no:xdist -m "not real_model" $(addprefix --ignore=tests/,kernel/kill docs fuzz test_programs.py)
	$(BIN)/coverage report --skip-covered --fail-under=93
	$(BIN)/coverage report --format=total --fail-under=95 --include='src/reyn/skills/*,src/reyn/lint/*'

## bench: the measured targets, each beside its figure; `make bench OF=tests.expressions.oracle` (another implementation of CEL, five minutes), `OF=bench.small`, `OF=bench.decisions`, `OF=bench.routing` or `OF=bench.acts` for the small model, an hour; `OF=bench.retrieval` for search indexes, `OF=bench.cluster` for workers on PostgreSQL, `OF=bench.gateway` for `reyn serve`
OF ?= bench
bench: setup
	$(BIN)/python -m $(OF)

## chaos: thousands of kills at random moments
chaos: setup
	KILL_EVERYWHERE=1 $(PYTEST) tests/kernel/kill
	$(BIN)/python -m tests.chaos --kills 2000
	$(BIN)/python -m tests.chaos.edits

# The same for workers on PostgreSQL; an hour on four idle cores. `make chaos-cluster ATTACK='--kills 50 --seed 1'` is shorter.
chaos-cluster: setup
	$(BIN)/python -m tests.chaos.cluster $(ATTACK)

## fuzz: random hostile answers, archives, skills, servers and system-call errors, for SECONDS
SECONDS ?= 60
fuzz: setup
	$(BIN)/python -m tests.fuzz --seconds $(SECONDS)

## docs: build the site into site/
docs: setup
	$(BIN)/python tools/docs_pages.py
	$(BIN)/python tools/notebook.py
	$(BIN)/python tools/sync_stubs.py
	$(BIN)/zensical build --clean

## lock: pin the development environment anew
COMPILE := $(BIN)/pip-compile --quiet --generate-hashes --no-emit-index-url --no-emit-find-links --strip-extras --allow-unsafe
lock:
	$(COMPILE) --extra dev --output-file $(LOCK) pyproject.toml
	$(COMPILE) --output-file requirements/openai-2.txt requirements/openai-2.in
	$(COMPILE) --output-file requirements/office.txt requirements/office.in

## clean: remove everything that can be made again
clean:
	rm -rf .venv .venv-* .coverage site .mypy_cache .ruff_cache .import_linter_cache .hypothesis .bench-small .bench-decisions .bench-routing .bench-acts examples/*/.reyn
