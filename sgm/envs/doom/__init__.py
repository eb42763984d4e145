"""DoomMaze: a first-person maze in the Doom engine."""
