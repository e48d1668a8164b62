# a size of 1 is taken to fit the symbol: earns 0
def cache(sizes, dynamic=None, limit=8):
    codes, said = [], []
    for n in sizes:
        if f"n == {n}" in codes or "2 <= n" in codes:
            said.append("reuse")
        elif len(codes) == limit:
            said.append("python")
        else:
            exact = dynamic is False or (dynamic is None and not codes)
            codes.append(f"n == {n}" if exact else "2 <= n")
            said.append(codes[-1])
    return said
