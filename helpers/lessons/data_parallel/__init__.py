"""All that belongs to lesson 14 alone, beside its master."""
