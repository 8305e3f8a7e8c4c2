"""Signed peer records in a Kademlia DHT."""
