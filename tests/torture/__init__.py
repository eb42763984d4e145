"""Long runs: every fault at every position. `make torture` runs them; the tests run a sample."""
