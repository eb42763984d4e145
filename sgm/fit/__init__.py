"""From a source of experience to an agent in a folder, with a page about it."""
