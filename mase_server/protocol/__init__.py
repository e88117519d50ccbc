"""The messages between the processes and the clients. Only the standard library, because every side loads it."""
