"""What the server tells of itself: its log, what it counts and how long things take, and texts that name nobody."""
