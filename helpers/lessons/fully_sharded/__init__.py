"""All that belongs to lesson 15 alone, beside its master."""
