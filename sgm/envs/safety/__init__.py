"""SafetyRooms: a car-like robot with a camera in furnished rooms."""
