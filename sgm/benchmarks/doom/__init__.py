"""ViZDoom, the paper's second benchmark."""
