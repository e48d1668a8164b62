"""All that belongs to lesson 03 alone, beside its master."""
