"""All that belongs to lesson 18 alone, beside its master."""
