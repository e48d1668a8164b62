# after a 1, the next size gets code of its own: earns 0
def cache(sizes, dynamic=None, limit=8):
    codes, said = [], []
    for n in sizes:
        if f"n == {n}" in codes or (n >= 2 and "2 <= n" in codes):
            said.append("reuse")
        elif len(codes) == limit:
            said.append("python")
        else:
            others = [c for c in codes if c != "n == 1"]
            exact = n == 1 or dynamic is False or (dynamic is None and not others)
            codes.append(f"n == {n}" if exact else "2 <= n")
            said.append(codes[-1])
    return said
