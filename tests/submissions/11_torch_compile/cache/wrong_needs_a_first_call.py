# cannot do without a first call: earns 1
def cache(sizes, dynamic=None, limit=8):
    first = sizes[0]
    codes = ["2 <= n" if dynamic is True and first > 1 else f"n == {first}"]
    said = list(codes)
    for n in sizes[1:]:
        if f"n == {n}" in codes or n > 1 and "2 <= n" in codes:
            said.append("reuse")
        elif len(codes) >= limit:
            said.append("python")
        else:
            codes.append(f"n == {n}" if n == 1 or dynamic is False else "2 <= n")
            said.append(codes[-1])
    return said
