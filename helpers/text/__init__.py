"""How the course says things: tables with their evidence, seconds and bytes in words, places in code."""
