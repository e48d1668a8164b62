"""All that belongs to lesson 16 alone, beside its master."""
