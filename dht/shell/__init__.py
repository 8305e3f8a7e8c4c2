"""The DHT on sockets and event loops: everything here does I/O, everything beside it is pure."""
