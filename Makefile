# toold's build. `make help` lists what there is. Everything works on a bare
# Debian or Ubuntu as root with nothing but git, make and Go; what else is needed
# is installed by scripts/install-deps, which says so.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:

# Go is often installed without being in PATH.
export PATH := $(PATH):/usr/local/go/bin
# Stamping needs a repository that git trusts, which root's git does not do with
# somebody else's; the version is given below.
export GOFLAGS := -buildvcs=false

RELEASE := $(shell sed -n 's/^const Release = "\(.*\)"/\1/p' client/release.go)
VERSION ?= $(RELEASE)$(shell git -c safe.directory='*' describe --always --exclude='*' --dirty 2>/dev/null | sed 's/^/+/')
LDFLAGS := -s -w -X main.version=$(VERSION)
GOBUILD := CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)'
FUZZTIME ?= 30s

.DEFAULT_GOAL := build

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

.PHONY: deps
deps: ## install what the build and the tests need (Debian, Ubuntu; as root)
	@scripts/install-deps

.PHONY: build
build: deps bin/runc bin/ripgrep/rg ## build bin/toold, bin/toolctl, bin/toolagent and bin/runc; bin/ripgrep beside them
	@[ -e bin/toold ] || echo "building toold $(VERSION) (a minute or two, once)"
	@mkdir -p bin
	@$(GOBUILD) -o bin/ ./cmd/toold ./cmd/toolctl ./cmd/toolagent

# The pinned runtime. It needs cgo, for libseccomp and for the code that runs
# before Go does in a container's first process; static, it runs on any system.
bin/runc: tools/go.mod tools/go.sum | deps
	@echo "building runc $$(sed -n 's|.*opencontainers/runc v\([0-9.]*\).*|\1|p' tools/go.mod) (a minute or two, once)"
	@mkdir -p bin
	@cd tools && CGO_ENABLED=1 go build -tags 'seccomp netgo osusergo' -trimpath -ldflags '-s -w -linkmode external -extldflags -static' -o ../bin/runc github.com/opencontainers/runc
	@touch bin/runc

# What searches in every sandbox, and for the tests the other one that may.
bin/ripgrep/rg: tools/ripgrep/package-lock.json scripts/install-ripgrep | deps
	@scripts/install-ripgrep
	@touch bin/ripgrep/rg
bin/ripgrep-debian/rg: scripts/install-ripgrep | deps
	@scripts/install-ripgrep --debian bin/ripgrep-debian
	@touch bin/ripgrep-debian/rg

# gVisor: the same, a module of its own because it asks for more of its own. It
# needs neither cgo nor anything of the host.
.PHONY: runsc
runsc: bin/runsc ## build bin/runsc, for sessions with a kernel of their own (gVisor)
bin/runsc: tools/runsc/go.mod tools/runsc/go.sum | deps
	@version=$$(sed -n 's|.*gvisor.dev/gvisor v0.0.0-\([0-9]*\)[0-9]\{6\}-.*|\1|p' tools/runsc/go.mod); \
	echo "building runsc $$version (a minute or two, once)"; mkdir -p bin; \
	cd tools/runsc && CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X gvisor.dev/gvisor/runsc/version.version=$$version" -o ../../bin/runsc gvisor.dev/gvisor/runsc
	@touch bin/runsc

# Without it the tests that want it say why they do not run.
bin/prometheus: | deps
	@scripts/install-prometheus || true

.PHONY: image
VARIANT ?= tools
image: deps ## build the default tool image, bin/image/toold-tools.tar (VARIANT=small for tests, PACKAGES= for more in it)
	@PACKAGES="$(PACKAGES)" SOURCES="$(SOURCES)" FRESH="$(FRESH)" scripts/image $(VARIANT)

# The root file system whose systemd the tests of deploy/systemd boot.
.PHONY: bin/systemd-root
bin/systemd-root: | deps
	@scripts/systemd-root || true

# Without it the test that wants it says why it does not run.
bin/sshd: | deps
	@scripts/install-sshd || true

# The linter and the generators that read the OpenAPI document.
.PHONY: bin/openapi
bin/openapi: | deps
	@scripts/install-openapi || true

# The agents that are run as they ship.
.PHONY: bin/agents
bin/agents: | deps
	@scripts/install-agents || true

# What sessions of the tests of the network run.
.PHONY: clients
clients: | deps
	@scripts/install-clients || true

.PHONY: test
test: build clients bin/ripgrep-debian/rg bin/runsc bin/prometheus bin/sshd bin/systemd-root bin/openapi bin/agents ## run every test on every tier, with the coverage of the packages that must have it
	@scripts/test

.PHONY: check
check: deps bin/ripgrep/rg bin/ripgrep-debian/rg bin/golangci-lint ## vet, lint, the tests that need no root: the first minutes of CI
# vet is the linter's. Its analyses and the tests that wait fill each other's gaps, once
# there is what both need of the compiler.
	@go list -export -deps ./... >/dev/null
	@$(MAKE) --no-print-directory -j2 --output-sync=target lint rootless

.PHONY: rootless
rootless:
	@scripts/rootless

.PHONY: install uninstall
install: ## put what was built, man pages, completions and the systemd units in place (DESTDIR, PREFIX=/usr/local)
	@DESTDIR="$(DESTDIR)" PREFIX="$(PREFIX)" scripts/install
uninstall: ## remove what install put there (the same DESTDIR, PREFIX); state and configuration stay
	@DESTDIR="$(DESTDIR)" PREFIX="$(PREFIX)" scripts/install --uninstall

.PHONY: demo root
root:
	@[ "$$(id -u)" = 0 ] || { echo "demo: toold makes containers and must run as root" >&2; exit 1; }
demo: root build $(if $(filter runsc,$(RUNTIME)),bin/runsc) ## show it at work, on one screen (RUNTIME=runsc, DRIVER=docker: the same elsewhere)
	@scripts/demo

bin/golangci-lint: tools/lint/go.mod tools/lint/go.sum | deps
	@echo "building golangci-lint (some minutes, once)"
	@mkdir -p bin
	@cd tools/lint && CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o ../../bin/golangci-lint github.com/golangci/golangci-lint/v2/cmd/golangci-lint
	@touch bin/golangci-lint

.PHONY: lint
lint: deps bin/golangci-lint ## check style and the rules of .golangci.yml
# Collecting less often takes a third off its time; the limit keeps small machines alive.
	@GOGC=400 GOMEMLIMIT=4GiB bin/golangci-lint run ./...

.PHONY: fmt
fmt: bin/golangci-lint ## format the code
	@bin/golangci-lint fmt ./...

.PHONY: bench bench-smoke
bench: build ## measure, side by side with fork+exec, runc and docker (minutes)
	@go run ./bench
bench-smoke: build ## run the benchmarks once, to see that they run
	@go run ./bench -smoke

.PHONY: vm-test
VMTESTS ?= ^(TestFirstConnectionStarts|TestWork|TestWithoutNetAdmin)$$
vm-test: build ## see it work on Debian's own kernels and systemd, in virtual machines (minutes)
	@TOOLD_TEST_STOCK='$(VMTESTS)' TOOLD_TEST_REQUIRE=vm go test -count=1 -v -timeout 90m -run TestStockHost ./test/systemd

.PHONY: chaos
chaos: build bin/runsc ## kill daemons in the middle of things for long, on every tier
	@scripts/chaos

.PHONY: long
long: build ## run the random tests of rules, bash and the network for hours; prints seeds (TEXTS=1000000)
	@TEXTS="$(TEXTS)" scripts/long

.PHONY: fuzz
fuzz: deps ## run each fuzz target for FUZZTIME (30s)
	@scripts/fuzz $(FUZZTIME)

.PHONY: clean
clean: ## remove what was built
	@rm -rf bin
