# The only front door. `make run` starts everything on this machine; `make test` needs nothing installed by hand.
SHELL := /bin/bash
export PATH := $(CURDIR)/.tools/bin:$(PATH)

# Built programs the tests start.
BINS := --workspace --bins

.PHONY: help run demo tools build test test-root sim check fmt bench docs clean

help: ## What there is
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

run: build ## Start everything on this machine
	target/debug/resident dev

demo: build ## Play a small job and show each state change
	target/debug/resident demo

tools: ## Fetch nats-server, Claude Code and bubblewrap
	@tools/fetch

build: tools
	cargo build $(BINS)

test: build ## Everything that runs as an ordinary user
	cargo test --workspace

test-root: build ## What needs root or mounts
	cargo test --workspace --test root

sim: tools ## The simulation: SEEDS=n runs from SEED=n on, or the one of REPLAY=file
	SEED=$(SEED) SEEDS=$(SEEDS) REPLAY=$(REPLAY) cargo test --workspace --test sim it_holds -- --nocapture

check: ## Format and lints
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings

fmt:
	cargo fmt --all

bench: tools ## Print the numbers we promise, as ratios
	cargo build --release $(BINS) --bench bench
	cargo bench --workspace --bench bench

docs: build ## Write the generated pages anew
	RESIDENT_WRITE_DOCS=1 cargo test --workspace --test tidy

clean:
	rm -rf .tools .data
	cargo clean
