"""All that belongs to lesson 05 alone, beside its master."""
