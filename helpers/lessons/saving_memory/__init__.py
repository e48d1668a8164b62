"""All that belongs to lesson 09 alone, beside its master."""
