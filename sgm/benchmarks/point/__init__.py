"""PointEnv, the paper's first benchmark."""
