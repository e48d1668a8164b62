"""All that belongs to lesson 00 alone, beside its master."""
