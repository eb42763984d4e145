"""Shared parts of training: the loop with checkpoints, encoders, training pairs, and tensor files."""
