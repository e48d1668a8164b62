"""All that belongs to lesson 06 alone, beside its master."""
