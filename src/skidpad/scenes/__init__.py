"""One immutable piece of world: road map, logged tracks, traffic signals; and how files become one."""
