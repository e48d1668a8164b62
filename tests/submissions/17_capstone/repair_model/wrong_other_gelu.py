# GELU by erf, where the script has tanh: earns 0
def repair_model(script):
    return script.replace(activation=F.gelu)
