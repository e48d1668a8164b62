def cache(sizes, dynamic=None, limit=8):
    exact, any_size, said = set(), False, []
    for n in sizes:
        if n in exact or (any_size and n > 1):
            said += ["reuse"]
            continue
        if len(exact) + any_size >= limit:
            said += ["python"]
            continue
        if n > 1 and (dynamic or (dynamic is None and exact)):
            any_size = True
            said += ["2 <= n"]
        else:
            exact.add(n)
            said += [f"n == {n}"]
    return said
