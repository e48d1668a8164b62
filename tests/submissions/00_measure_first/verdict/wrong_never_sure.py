# never wrong, never of use: earns 0
def verdict(before, after):
    if len(before) != len(after):
        raise ValueError
    return "cannot tell"
