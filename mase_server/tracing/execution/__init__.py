"""Running the user's file as a program: quietly, under observation, and with replacements for what it lacks."""
