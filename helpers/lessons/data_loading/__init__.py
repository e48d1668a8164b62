"""All that belongs to lesson 04 alone, beside its master."""
