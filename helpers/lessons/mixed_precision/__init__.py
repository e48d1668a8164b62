"""All that belongs to lesson 10 alone, beside its master."""
