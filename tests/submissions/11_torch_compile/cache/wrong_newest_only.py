# only the newest code is looked at: earns 0
def cache(sizes, dynamic=None, limit=8):
    codes, said = [], []
    for n in sizes:
        if codes and (codes[-1] == f"n == {n}" or (n >= 2 and codes[-1] == "2 <= n")):
            said.append("reuse")
        elif len(codes) == limit:
            said.append("python")
        else:
            exact = n == 1 or dynamic is False or (dynamic is None and not codes)
            codes.append(f"n == {n}" if exact else "2 <= n")
            said.append(codes[-1])
    return said
