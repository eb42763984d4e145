"""The commands that make an agent from a source of experience, evaluate it, clean it up and report on it."""
