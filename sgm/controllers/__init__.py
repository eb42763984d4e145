"""Short-range goal-reaching policies, one file each. Importing this package imports no learning framework."""
