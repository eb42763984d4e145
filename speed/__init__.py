"""Speed claims, each a ratio against a baseline measured in the same run."""
