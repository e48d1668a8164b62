# the script as it was: earns 0
def repair(script):
    return script
