"""All that belongs to lesson 02 alone, beside its master."""
