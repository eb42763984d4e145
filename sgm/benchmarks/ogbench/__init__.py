"""OGBench: all methods with the same distance and controller, learned offline."""
