"""The processes of a demo: started, watched, hurt and brought back."""
