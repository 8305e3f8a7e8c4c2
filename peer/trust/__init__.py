"""Packets that prove themselves: a root signs them in batches, and every hop checks them before they count."""
