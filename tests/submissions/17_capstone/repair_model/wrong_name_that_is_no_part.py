# a part that the script has not: earns 0
def repair_model(script):
    return script.replace(activations=lambda x: F.gelu(x, approximate="tanh"))
