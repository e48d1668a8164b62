# a function in place of the script: earns 0
def repair(script):
    return repair_data
