"""All that belongs to lesson 12 alone, beside its master."""
