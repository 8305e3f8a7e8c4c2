"""Many XPath queries, one pass over a packet."""
