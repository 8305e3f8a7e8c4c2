"""The second application: news. Hundreds of feeds, one visitor that polls them, and readers who pick a few each."""
