# The commands of this project. `make help` lists them.

GO      ?= go
LINT    := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
DATA    ?= .stack
FUZZTIME ?= 60s

.PHONY: help
help: ## list the commands
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: quickstart
quickstart: ## serve everything in one process, orders in memory
	$(GO) run ./services/quickstart

.PHONY: up
up: ## start real engines on this machine, create and migrate the databases
	@$(GO) run ./internal/localstack/cmd up -data $(DATA)

.PHONY: down
down: ## stop what `make up` started; the data stays
	@$(GO) run ./internal/localstack/cmd down -data $(DATA)

.PHONY: test
test: ## run every test, on real engines
	$(GO) vet ./...
	$(GO) test -timeout 30m ./...

.PHONY: faults
faults: ## the long fault runs: 10,000 orders each, freezes of 15 s, full disks (root); all twins
	$(GO) test -tags faults -count=1 -timeout 80m -v ./services/internal/e2e -args -long
	$(GO) test -count=1 -timeout 30m -v ./syncer -run NeverLies -args -rounds 200
	$(GO) test -count=1 -timeout 60m -v ./internal/twins -args -long

.PHONY: race
race: ## run every test under the race detector
	$(GO) test -race -timeout 60m ./...

.PHONY: fuzz
fuzz: ## run every fuzz test, one after the other, each for FUZZTIME (60s)
	@set -e; for file in $$(grep -rl '^func Fuzz' --include='*_test.go' . | sort); do \
		for name in $$(sed -n 's/^func \(Fuzz[A-Za-z0-9]*\)(.*/\1/p' $$file); do \
			echo "$$(dirname $$file) $$name"; \
			$(GO) test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 2s $$(dirname $$file); \
		done; \
	done

.PHONY: lint
lint: ## check style
	$(GO) run $(LINT) run ./...

.PHONY: verify
verify: ## check that generated code and go.mod are up to date
	$(GO) generate ./syncer/mirrorpb
	$(GO) mod tidy -diff
	git diff --exit-code -- syncer/mirrorpb

.PHONY: bench
bench: ## time the pure parts: placement, ids, an order's JSON, the payment config
	$(GO) test -run '^$$' -bench . -benchmem ./slot ./shardmap ./idgen ./lane ./httpapi ./payconfig

.PHONY: load
load: ## measure Octopay beside its baselines, in under 15 minutes, into loadtest/results
	$(GO) run ./loadtest compare

.PHONY: load-big
load-big: ## measure what stored rows and the number of databases cost (some GiB of disk)
	$(GO) run ./loadtest big

.PHONY: soak
soak: ## half an hour of constant load: does anything grow?
	$(GO) run ./loadtest soak

.PHONY: profile
profile: ## profiles of orderd and syncerd under load, into loadtest/results
	$(GO) run ./loadtest profile
