"""DoomMaze: mazes in first-person view in the Doom engine."""
