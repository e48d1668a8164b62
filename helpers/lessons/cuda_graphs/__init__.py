"""All that belongs to lesson 07 alone, beside its master."""
