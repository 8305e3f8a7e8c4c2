"""Raw feed text and FAA XML to packets in the archive, and synthetic text to try it with."""
