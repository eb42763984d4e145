"""Point mazes of OGBench, with many robots at once."""
