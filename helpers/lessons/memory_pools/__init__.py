"""All that belongs to lesson 08 alone, beside its master."""
