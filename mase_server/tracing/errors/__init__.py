"""An exception out of a person's code, told at their own line with what would mend it."""
