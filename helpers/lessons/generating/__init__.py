"""All that belongs to lesson 20 alone, beside its master."""
