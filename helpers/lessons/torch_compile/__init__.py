"""All that belongs to lesson 11 alone, beside its master."""
