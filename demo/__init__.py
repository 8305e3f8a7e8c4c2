"""Local multi-peer meshes with a live page."""
