"""OGBench: every method on the same distance and controller, learned offline."""
