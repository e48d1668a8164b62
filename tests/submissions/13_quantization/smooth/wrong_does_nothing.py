# leaves all as it was: outputs equal, nothing easier to round: earns 0
def smooth(norm, linears, amax, alpha=0.5):
    pass
