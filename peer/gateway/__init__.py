"""A stream for browsers and other languages, over WebSocket and Server-Sent Events. Specification: docs/gateway.md."""
