"""SafetyRooms: a wheeled robot with a camera in furnished rooms."""
