"""The server's own half: environments, workers, snapshots. No torch here."""
