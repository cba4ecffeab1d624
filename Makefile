# Carboy: build it, test it, tend it. The work itself is in scripts/.
#
# The guest agent, with its sudo, and the program of our own templates are built
# first, then the programs that carboy executes, which carry those, and last the one
# binary that users get, which carries these. All are static, and all but that one are
# built without a stamp of the commit, so that their bytes, and all that is
# compiled over them, change only when their code does.

GO = go
BIN = bin
GUEST = internal/guest/guestbin/bin/carboy-guest
SUDO = internal/guest/sudo/bin/carboy-sudo
SERVICE = internal/guest/servicebin/bin/carboy-service
FUZZTIME = 30s
CYCLES = 100
BENCH = .
PKG = ./...

# The same flags for building, vetting and testing: others would compile gVisor
# a second time, which takes minutes.
STATIC = CGO_ENABLED=0 GOFLAGS="-trimpath -buildvcs=false"

.PHONY: build programs rules share install uninstall release release-check try-install guest weak test test-long test-agents deps machine lint lint-all bench bench-agents bench-peers bench-gate bench-e2b bench-box escape fuzz generate generate-check tidy-check gvisor-latest clean

build: programs
	$(STATIC) $(GO) build -ldflags "-s -w -X main.version=$$(scripts/version.sh)" -o $(BIN)/carboy ./cmd/carboy

# What carboy executes, and carries packed. Packing runs here, for whatever machine the
# rest is built.
PROGRAMS = carboy-daemon carboy-gate carboy-gvisor
PACKING =
PACK = env -u GOOS -u GOARCH $(STATIC) $(GO) run ./cmd/carboy-pack $(PACKING)
programs: guest rules
	for p in $(PROGRAMS); do $(STATIC) $(GO) build -ldflags "-s -w" -o $(BIN)/programs/$$p ./cmd/$$p || exit; done
	$(PACK) internal/program/bin $(PROGRAMS:%=$(BIN)/programs/%)

# What is installed beside the binary, made from its commands' own text and its modules.
share: build
	SOURCE_DATE_EPOCH="$$(scripts/epoch.sh)" $(STATIC) $(GO) run ./cmd/carboy-manual "$$(scripts/version.sh)" $(BIN)/share
	$(STATIC) scripts/third-party.sh $(BIN)/carboy $(PROGRAMS:%=$(BIN)/programs/%) $(GUEST) $(SUDO) $(SERVICE) >$(BIN)/share/THIRD-PARTY-LICENSES

# After make build share. As root, this runs no compiler.
PREFIX = /usr/local
DESTDIR =
install:
	CARBOY_BUILT=$(BIN) PREFIX="$(PREFIX)" DESTDIR="$(DESTDIR)" scripts/install.sh install

uninstall:
	CARBOY_BUILT=$(BIN) PREFIX="$(PREFIX)" DESTDIR="$(DESTDIR)" scripts/install.sh uninstall

# Archives, packages, bills of materials and provenance, into bin/release: of the commit.
release:
	scripts/release.sh $(BIN)/release

release-check:
	scripts/release-check.sh

# Everything that docs/install.md says, in a clean tree of Debian's.
try-install:
	scripts/try-install.sh

# What secrets look like, of a published module: embedded in the git gate.
rules:
	scripts/rules.sh

guest:
	$(STATIC) $(GO) build -ldflags "-s -w" -o $(SUDO) ./cmd/carboy-sudo
	$(STATIC) $(GO) build -ldflags "-s -w" -o $(GUEST) ./cmd/carboy-guest
	$(STATIC) $(GO) build -ldflags "-s -w" -o $(SERVICE) ./cmd/carboy-service

# The same programs, with weaknesses to be seeded: for test/escape and test/e2e.
weak: guest rules
	$(STATIC) $(GO) build -tags weakened -ldflags "-s -w" -o $(BIN)/carboy-guest-weak ./cmd/carboy-guest
	for p in $(PROGRAMS); do $(STATIC) $(GO) build -tags weakened -ldflags "-s -w" -o $(BIN)/programs/weak/$$p ./cmd/$$p || exit; done
	$(PACK) internal/program/weakbin $(PROGRAMS:%=$(BIN)/programs/weak/%)
	$(STATIC) $(GO) build -tags weakened -ldflags "-s -w" -o $(BIN)/carboy-weak ./cmd/carboy

# The quick gates, then the tests, those from outside included. Of what can be done any
# number of times it does a little.
test: deps machine build weak
	$(STATIC) scripts/lint.sh quick
	bin="$$(cd $(BIN) && pwd)" && CARBOY_BIN="$$bin/carboy" \
		CARBOY_WEAK_BIN="$$bin/carboy-weak" CARBOY_WEAK_GUEST="$$bin/carboy-guest-weak" exec scripts/test.sh $(ARGS)

# The same with all of it, before a release: kills at more moments, gigabytes, each client
# over each wall, each weakness, and CYCLES sandboxes made and removed. It takes hours:
# make test-long ARGS='-run TestBox'
test-long:
	CARBOY_LONG=1 CARBOY_CYCLES=$(CYCLES) $(MAKE) test

# Real coding agents of npm, with a fake model, behind each wall: a gigabyte to install,
# and as long as make test. make test-agents RUN=TestHeadless/claude
RUN = .
test-agents: build
	agents="$$(scripts/agents.sh)" && CARBOY_BIN="$$(cd $(BIN) && pwd)/carboy" CARBOY_AGENTS="$$agents" $(STATIC) \
		$(GO) test -count=1 -v -timeout 90m -run '$(RUN)' ./test/agents

# From carboy claude to the agent's first byte, beside the agent alone.
bench-agents: build
	agents="$$(scripts/agents.sh)" && CARBOY_BIN="$$(cd $(BIN) && pwd)/carboy" CARBOY_AGENTS="$$agents" CARBOY_ROUNDS=$(ROUNDS) $(STATIC) \
		$(GO) test -count=1 -v -timeout 60m -run TestFirstByte ./test/agents

# What tests need and this machine lacks.
deps:
	scripts/deps.sh

# What tests need that can't be installed: they may not miss it afterwards.
machine:
	scripts/machine.sh

# The gates that need nothing but Go.
lint: guest
	$(STATIC) scripts/lint.sh

# The long list of .golangci.yml as well, and what may leave a diff. The first
# run builds the linter.
lint-all: lint tidy-check generate-check
	$(STATIC) scripts/golangci.sh

# One package or benchmark: make bench PKG=./internal/workspace BENCH=Diff
bench: guest
	$(STATIC) $(GO) test -run '^$$' -bench '$(BENCH)' -benchmem $(PKG)

# Tries to get out of every wall, and seeds each weakness that has a name.
escape:
	scripts/escape.sh

# What measures. It runs in sandboxes too, so it is static.
$(BIN)/carboy-bench: FORCE
	$(STATIC) $(GO) build -ldflags "-s -w" -o $@ ./test/bench
FORCE:

# carboy-bench beside the sandboxes of others: installs them, and starts
# Docker's engine for as long as it takes.
bench-peers: build $(BIN)/carboy-bench
	scripts/bench.sh

# What the way through a gate costs, beside other proxies that intercept TLS.
bench-gate: build $(BIN)/carboy-bench
	scripts/bench-gate.sh

# What E2B's own SDK waits for, over each wall, cold and from the warm pool.
ROUNDS = 30
bench-e2b: build deps
	CARBOY_BIN="$$(cd $(BIN) && pwd)/carboy" CARBOY_E2B_ROUNDS=$(ROUNDS) $(STATIC) \
		$(GO) test -count=1 -v -timeout 60m -run TestE2BLatency ./test/e2e

# Sessions by Box's RPC, beside Docker's command line as in bench-peers: make
# bench-box ARGS='--rounds 10'
bench-box: build $(BIN)/carboy-bench
	scripts/bench.sh --only sessions,crowd $(ARGS)

# Each target for FUZZTIME, one after the other.
fuzz: guest
	$(STATIC) FUZZTIME=$(FUZZTIME) scripts/fuzz.sh

generate:
	$(STATIC) $(GO) generate ./...

generate-check: generate
	git diff --exit-code -- '*.pb.go' '*.connect.go'

tidy-check:
	$(GO) mod tidy -diff

# Would the newest gVisor do? Leaves this tree as it is.
gvisor-latest:
	scripts/gvisor-latest.sh

clean:
	rm -rf $(BIN) $(GUEST) $(SERVICE) $(SUDO) internal/program/bin/* internal/program/weakbin/* test/e2b/node_modules
