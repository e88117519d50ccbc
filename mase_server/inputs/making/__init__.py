"""Making an instance of a class when nobody said with what: from what the workspace says, else guessed and repaired."""
