"""OGBench's point mazes, many robots at once."""
