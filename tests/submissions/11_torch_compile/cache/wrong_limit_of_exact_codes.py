# the limit holds for sizes that differ, and a 1 is compiled all the same: earns 0
def cache(sizes, dynamic=None, limit=8):
    codes, said = [], []
    for n in sizes:
        if f"n == {n}" in codes or (n >= 2 and "2 <= n" in codes):
            said.append("reuse")
        elif n > 1 and len(codes) >= limit:
            said.append("python")
        else:
            exact = n == 1 or dynamic is False or (dynamic is None and not codes)
            codes.append(f"n == {n}" if exact else "2 <= n")
            said.append(codes[-1])
    return said
