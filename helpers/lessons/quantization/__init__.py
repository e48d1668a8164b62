"""All that belongs to lesson 13 alone, beside its master."""
