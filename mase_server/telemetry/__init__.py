"""The server's own records: its log, its counters and timings, and texts without personal data."""
