"""All that belongs to lesson 19 alone, beside its master."""
