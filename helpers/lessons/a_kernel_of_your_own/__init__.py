"""All that belongs to lesson 21 alone, beside its master."""
