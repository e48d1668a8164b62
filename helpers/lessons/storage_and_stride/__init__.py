"""All that belongs to lesson 01 alone, beside its master."""
