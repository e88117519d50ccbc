"""The person's file as a running program: calm, watched, and without what it lacks."""
