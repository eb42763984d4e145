"""What training shares: the loop with its checkpoints, encoders, pairs, tensors on disk."""
