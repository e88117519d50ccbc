"""The API over MessagePack-RPC: sockets, clients, limits."""
