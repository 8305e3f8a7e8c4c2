"""Carriers of datagrams beside UDP: connections that take the same datagrams where a network drops UDP. docs/dcp.md."""
