# replaces a part of another exercise: earns 0
def repair_data(script):
    return script.replace(through=lambda block, x: block(x))
